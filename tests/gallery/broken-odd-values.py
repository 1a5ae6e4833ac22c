# Broken: a set for the slots and texts for the ids, which JSON can't say.
def split_at(node, position):
    upper = Node(node.key[:position], {*node.value[:position]}, node.parent)
    node.key, node.value = tuple(map(str, node.key[position:])), node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
