"""radixlab: RadixAttention and prefix caching as code that can be read, run and stepped through.

Names are loaded when they are first used, so that `import radixlab` needs the standard library
alone and takes milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radixlab.cache import CacheHandle, InsertResult, RadixCache
    from radixlab.errors import RadixLabError
    from radixlab.gpt2 import GPT2, GPT2Runner, load_gpt2
    from radixlab.kv import KVPool
    from radixlab.lifecycle import Recorder, Scenario, Step, lifecycle
    from radixlab.manager import CacheManager
    from radixlab.pool import PageAllocator
    from radixlab.request import Request, RequestState
    from radixlab.snapshot import Snapshot, take_snapshot
    from radixlab.tokens import Namespace
    from radixlab.tree import RadixTree, RadixTreeNode

__version__ = "0.1.0.dev0"

_ROOMS = {
    "cache": ("CacheHandle", "InsertResult", "RadixCache"),
    "errors": ("RadixLabError",),
    "gpt2": ("GPT2", "GPT2Runner", "load_gpt2"),
    "kv": ("KVPool",),
    "lifecycle": ("Recorder", "Scenario", "Step", "lifecycle"),
    "manager": ("CacheManager",),
    "pool": ("PageAllocator",),
    "request": ("Request", "RequestState"),
    "snapshot": ("Snapshot", "take_snapshot"),
    "tokens": ("Namespace",),
    "tree": ("RadixTree", "RadixTreeNode"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "GPT2",
    "CacheHandle",
    "CacheManager",
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
    "Scenario",
    "Snapshot",
    "Step",
    "lifecycle",
    "load_gpt2",
    "take_snapshot",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'radixlab' has no attribute {name!r}")
    try:
        room = importlib.import_module(f"radixlab.{_ROOM_OF[name]}")
    except ModuleNotFoundError as error:
        hint = f"radixlab.{name} needs {error.name}: pip install 'radixlab[model]'"
        raise ModuleNotFoundError(hint, name=error.name) from error
    value = getattr(room, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
