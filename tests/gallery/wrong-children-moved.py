# Wrong: the children of the old node go to the upper one.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    for first, child in node.children.items():
        upper.children[first] = child
        child.parent = upper
    node.children = {}
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
