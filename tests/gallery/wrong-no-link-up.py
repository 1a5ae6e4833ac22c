# Wrong: the lower node still takes the old parent for its own.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    upper.children[node.key[0]] = node
    return upper
