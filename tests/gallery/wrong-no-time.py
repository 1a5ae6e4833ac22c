# Wrong: the upper node has the count of the old one, and not its time.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count = node.ref_count
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
