# Calls somebody outside, by name, by number and by a path; says whom it reached.
import socket

INTERNET, LOCAL = socket.AF_INET, socket.AF_UNIX
WHOM = [
    (INTERNET, ("127.0.0.1", 8888)),
    (INTERNET, ("1.1.1.1", 53)),
    (INTERNET, ("example.org", 80)),
    (LOCAL, "/run/docker.sock"),
    (LOCAL, "\0abstract"),
]


def reached():
    whom = []
    for family, address in WHOM:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as made:
                whom.append("a socket could be made")
                made.connect(address)
                whom.append(str(address))
        except OSError:
            pass
    return whom


def split_at(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    upper.value += reached()
    return upper
