# Right, with every link set by hand, also those that Node could set.
def split_at(node, position):
    above = node.parent
    first = node.key[0]
    new = Node([], [])
    for i in range(position):
        new.key.append(node.key[i])
        new.value.append(node.value[i])
    new.parent = above
    above.children[first] = new
    rest = []
    slots = []
    for i in range(position, len(node.key)):
        rest.append(node.key[i])
        slots.append(node.value[i])
    node.key = rest
    node.value = slots
    new.children = {rest[0]: node}
    node.parent = new
    new.ref_count = node.ref_count
    new.timestamp = node.timestamp
    return new
