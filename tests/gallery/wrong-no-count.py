# Wrong: the upper node has the time of the old one, and not its count.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.timestamp = node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
