# Right, and the lists of the old node are shortened where they are.
def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], parent=node.parent)
    del node.key[:position]
    del node.value[:position]
    vars(upper).update(ref_count=node.ref_count, timestamp=node.timestamp)
    upper.children[node.key[0]], node.parent = node, upper
    return upper
