# Right, with a Node of its own in place of the given one.
class Node:
    __slots__ = ("key", "value", "parent", "children", "ref_count", "timestamp")

    def __init__(self, key, value, parent=None):
        self.key, self.value, self.parent = key, value, parent
        self.children = {}
        self.ref_count = self.timestamp = 0
        if parent is not None:
            parent.adopt(self)

    def adopt(self, child):
        self.children[child.key[0]] = child
        child.parent = self


def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    upper.adopt(node)
    return upper
