# Broken: calls itself without an end.
def split_at(node, position):
    return split_at(node, position)
