# Wrong: the upper node has neither the count nor the time of the old one.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
