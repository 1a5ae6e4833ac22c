# Broken: all is right, and the return is missing.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    print(upper)
