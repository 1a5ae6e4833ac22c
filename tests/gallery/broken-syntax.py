# Broken: a bracket is missing, so Python can't read the cell.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent
    return upper
