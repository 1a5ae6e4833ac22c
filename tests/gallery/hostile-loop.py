# Loops without an end.
def split_at(node, position):
    while True:
        pass
