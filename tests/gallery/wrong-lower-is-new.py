# Wrong: the new node is the lower one, in other words than the sheet's mistake.
def split_at(node, position):
    new = Node(node.key[position:], node.value[position:])
    new.ref_count, new.timestamp = node.ref_count, node.timestamp
    for first in list(node.children):
        child = node.children.pop(first)
        new.children[first] = child
        child.parent = new
    node.key = node.key[:position]
    node.value = node.value[:position]
    node.children[new.key[0]] = new
    new.parent = node
    return node
