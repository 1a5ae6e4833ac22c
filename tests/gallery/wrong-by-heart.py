# Wrong: knows the visible cases by heart, and nothing else.
def split_at(node, position):
    upper = Node([101, 11, 12][:position], [0, 1, 2][:position], node.parent)
    node.key = {3: [21, 22], 2: [12]}[position]
    node.value = {3: [3, 4], 2: [2]}[position]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
