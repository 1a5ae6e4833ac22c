# Gives back a megabyte and more.
def split_at(node, position):
    node.value = list(range(200_000))
    return node
