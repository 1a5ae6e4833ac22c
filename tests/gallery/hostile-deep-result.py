# Gives back lists within lists within lists.
def split_at(node, position):
    deep = []
    for _ in range(10**5):
        deep = [deep]
    node.value = deep
    return node
