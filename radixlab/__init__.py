"""radixlab: RadixAttention and prefix caching as code that can be read, run and stepped through.

Names are loaded when they are first used, so that `import radixlab` needs the standard library
alone and takes milliseconds.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from radixlab._lazy import lazy

if TYPE_CHECKING:
    from radixlab.cache import CacheHandle, InsertResult, RadixCache
    from radixlab.engine import Engine
    from radixlab.errors import RadixLabError
    from radixlab.gpt2 import GPT2, load_gpt2
    from radixlab.kv import KVPool
    from radixlab.lifecycle import Recorder, Step
    from radixlab.manager import CacheManager
    from radixlab.pool import PageAllocator
    from radixlab.request import Request, RequestState, Sampling
    from radixlab.runner import GPT2Runner
    from radixlab.scenarios import Scenario
    from radixlab.serving import Served, Server, serve
    from radixlab.snapshot import Snapshot, take_snapshot
    from radixlab.tokens import Namespace
    from radixlab.tree import RadixTree, RadixTreeNode
    from radixlab.viz.dot import draw_tree
    from radixlab.viz.player import StepPlayer, play
    from radixlab.viz.playground import playground
    from radixlab.viz.poolsvg import draw_pool

__version__ = "0.1.0"

_ROOMS = {
    "cache": ("CacheHandle", "InsertResult", "RadixCache"),
    "engine": ("Engine",),
    "errors": ("RadixLabError",),
    "gpt2": ("GPT2", "load_gpt2"),
    "kv": ("KVPool",),
    "lifecycle": ("Recorder", "Step"),
    "manager": ("CacheManager",),
    "pool": ("PageAllocator",),
    "request": ("Request", "RequestState", "Sampling"),
    "runner": ("GPT2Runner",),
    "scenarios": ("Scenario",),
    "serving": ("Served", "Server", "serve"),
    "snapshot": ("Snapshot", "take_snapshot"),
    "tokens": ("Namespace",),
    "tree": ("RadixTree", "RadixTreeNode"),
    "viz.dot": ("draw_tree",),
    "viz.player": ("StepPlayer", "play"),
    "viz.playground": ("playground",),
    "viz.poolsvg": ("draw_pool",),
}
_find = lazy(__name__, _ROOMS, lambda room: "lab" if room.startswith("viz") else "model")

__all__ = [
    "GPT2",
    "CacheHandle",
    "CacheManager",
    "Engine",
    "GPT2Runner",
    "InsertResult",
    "KVPool",
    "Namespace",
    "PageAllocator",
    "RadixCache",
    "RadixLabError",
    "RadixTree",
    "RadixTreeNode",
    "Recorder",
    "Request",
    "RequestState",
    "Sampling",
    "Scenario",
    "Served",
    "Server",
    "Snapshot",
    "Step",
    "StepPlayer",
    "draw_pool",
    "draw_tree",
    "load_gpt2",
    "play",
    "playground",
    "serve",
    "take_snapshot",
]


def __getattr__(name: str) -> Any:
    if name == "viz":
        return importlib.import_module("radixlab.viz")
    return _find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _show_in_notebooks() -> None:
    """Where IPython runs already, trees and steps show themselves as pictures."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        from radixlab._display import register

        register(shell)


_show_in_notebooks()
