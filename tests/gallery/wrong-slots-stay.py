# Wrong in a way that the sheet does not know: keys are cut, and the slots are not.
def split_at(node, position):
    upper = Node(node.key[:position], node.value, node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key = node.key[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
