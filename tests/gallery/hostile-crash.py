# Crashes Python: reads at address 0.
import ctypes


def split_at(node, position):
    return ctypes.string_at(0)
