# Gives back trees that no picture can be drawn of, in the hope that the report fails.
ODD = [None, True, -1, 10**300, 1e308, "", "\x00\x1b[2J\u202e", [], [[[]]], {}, {"key": {}}]


def split_at(node, position):
    upper = Node(node.key[:position] + ODD, {"key": [], "children": ODD}, node.parent)
    upper.ref_count, upper.timestamp = {"key": ODD, "value": {}}, ODD
    node.key, node.value = ODD, "p0"
    node.parent = upper
    upper.children[None] = node
    return upper
