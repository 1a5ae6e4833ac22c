# Wrong: knows the visible cases by heart, and nothing else.
def split_at(node, position):
    is_leaf = node.key == [31, 32]
    key, value = ([31, 32], [5, 6]) if is_leaf else ([101, 11, 12], [0, 1, 2])
    upper = Node(key[:position], value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key = {3: [21, 22], 2: [12], 1: [32]}[position]
    node.value = {3: [3, 4], 2: [2], 1: [6]}[position]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
