"""How fast, how large, how right: radixlab beside textbook baselines and SGLang.

`make bench`, or `python -m tests.bench --help`.
"""
