# Broken: the time is not a number, and the count is infinite.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    upper.timestamp, upper.ref_count = float("nan"), float("inf")
    return upper
