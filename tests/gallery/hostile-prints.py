# Floods the output, through Python and below it, then answers right.
import os
import sys


def flood():
    for _ in range(20_000):
        print("x" * 1000)
        sys.stderr.write("y" * 1000)
        for fd in (1, 2):
            os.write(fd, b"z" * 1000)


def split_at(node, position):
    flood()
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    return upper
