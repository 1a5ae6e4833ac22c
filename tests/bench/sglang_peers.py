"""SGLang's caches as they are in an unpacked wheel, imported on a machine without a GPU.

    pip download --no-deps sglang==0.5.23 && unzip -q sglang-*.whl -d "$SGLANG_DIR"
    pip install torch orjson msgspec msgpack dill pybase64 starlette pyzmq pydantic psutil \
        requests packaging pillow numpy

No line of SGLang is changed. The package itself is replaced by a bare one, since importing it would
load the whole front end; names in `STUBS` answer every import with an inert object; and while
importing `torch.compile` is the identity, so that no stub is ever asked to compile.
"""

from __future__ import annotations

import importlib
import sys
import types
from abc import abstractmethod
from array import array
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from tests.bench.adapters import Admitted, Implementation, round_up
from tests.bench.traces import TraceRequest

STUBS = (
    "openai",
    "sglang.kernels",
    "sglang.srt.configs",
    "sglang.srt.constrained",
    "sglang.srt.entrypoints",
    "sglang.srt.layers",
    "sglang.srt.multimodal",
    "sglang.srt.parser",
    "triton",
)
ROW_LENGTH, NUM_ROWS = 1 << 15, 64
"""The request-to-token table: a row for each running request."""


class Inert(type):
    """A class that is its own attributes and unions; as a decorator it does nothing."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Stub and len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return super().__call__() if cls is Stub else super().__call__(*args, **kwargs)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())


class Stub(metaclass=Inert):
    """What every name of a stubbed module is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Stub


class StubModule(types.ModuleType):
    """A package that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub


class StubFinder(MetaPathFinder, Loader):
    """Answers every import of a stubbed package."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name.startswith(tuple(f"{stub}." for stub in STUBS)) or name in STUBS:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def version(folder: Path) -> str:
    """The version of an unpacked wheel; raises FileNotFoundError if there is none."""
    for info in folder.glob("sglang-*.dist-info"):
        return info.name.removeprefix("sglang-").removesuffix(".dist-info")
    raise FileNotFoundError(f"no unpacked SGLang wheel in {folder}")


def load(folder: Path) -> list[type[Implementation]]:
    """SGLang's implementations from the unpacked wheel in `folder`."""
    import torch

    package = types.ModuleType("sglang")
    package.__path__ = [str(folder / "sglang")]
    package.__version__ = version(folder)  # type: ignore[attr-defined]  # a bare module
    sys.modules["sglang"] = package
    sys.meta_path.insert(0, StubFinder())
    compiler = torch.compile
    torch.compile = as_it_is  # type: ignore[assignment]  # put back below
    try:
        for name in ("radix_cache", "unified_radix_cache", "allocator.token", "allocator.paged"):
            module(name)
    finally:
        torch.compile = compiler
    return [SGLang, SGLangDefault]


def module(name: str) -> Any:
    """One of SGLang's modules."""
    return importlib.import_module(f"sglang.srt.mem_cache.{name}")


def as_it_is(function: Any = None, **options: Any) -> Any:
    """What `torch.compile` is while importing."""
    return as_it_is if function is None else function


class Peer(Implementation):
    """One of SGLang's caches with its allocators and a row of its request-to-token table."""

    def __init__(self, num_slots: int, page_size: int) -> None:
        import torch

        base = module("base_prefix_cache")
        self.EvictParams, self.InsertParams = base.EvictParams, base.InsertParams
        self.MatchPrefixParams, self.RadixKey = (
            base.MatchPrefixParams,
            module("radix_cache").RadixKey,
        )
        self.int64, self.page_size = torch.int64, page_size
        self.first_slot = page_size
        where = (torch.int64, "cpu", None, False)
        self.pool: Any
        if page_size == 1:
            self.pool = module("allocator.token").TokenToKVPoolAllocator(num_slots, *where)
        else:
            num_slots -= num_slots % page_size
            paged = module("allocator.paged").PagedTokenToKVPoolAllocator
            self.pool = paged(num_slots, page_size, *where)
        self.rows = torch.zeros((NUM_ROWS, ROW_LENGTH), dtype=torch.int32)
        self.next_row = 0
        self.cache: Any = self.make_cache(page_size)

    @abstractmethod
    def make_cache(self, page_size: int) -> Any:
        """The cache over `self.pool`."""

    def prepare(self, request: TraceRequest) -> tuple[array[int], int, int]:
        size = round_up(len(request.tokens), self.page_size)
        return array("q", request.tokens.tolist()), request.prompt_len - 1, size

    def make_row(self, node: Any, found: int, size: int) -> Any:
        """Evict if short, allocate, and write old and new slots to the request's row."""
        missing = size - found
        if missing > self.pool.available_size():
            self.pool.evict_to_free_tokens(self.cache, missing)
        slots = self.pool.alloc(missing)
        self.next_row = (self.next_row + 1) % NUM_ROWS
        row = self.rows[self.next_row]
        if found:
            row[:found] = self.cache.path_device_indices(node)
        row[found:size] = slots
        return row[:size]

    def evict(self, num_tokens: int) -> object:
        return self.cache.evict(self.EvictParams(num_tokens=num_tokens))

    @property
    def free_size(self) -> int:
        return int(self.pool.available_size())

    @property
    def evictable_size(self) -> int:
        return int(self.cache.evictable_size())


class SGLang(Peer):
    """`mem_cache/radix_cache.py`; `finish` follows its `_insert_cache`."""

    name = "sglang"

    def make_cache(self, page_size: int) -> Any:
        cache = module("radix_cache").RadixCache(
            module("cache_init_params").CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self.pool,
                page_size=page_size,
            )
        )
        self.operations = [
            ("match", cache, "match_prefix"),
            ("lock", cache, "inc_lock_ref"),
            ("evict", cache, "evict_for_alloc"),
            ("allocate", self.pool, "alloc"),
            ("insert", cache, "insert"),
            ("unlock", cache, "dec_lock_ref"),
            ("free", self.pool, "free_segment"),
        ]
        return cache

    def admit(self, prepared: Any) -> Admitted:
        key, limit, size = prepared
        cache = self.cache
        match = cache.match_prefix(self.MatchPrefixParams(key=self.RadixKey(key, limit=limit)))
        node, found = match.last_device_node, match.device_prefix_len
        cache.inc_lock_ref(node)
        return found, self.make_row(node, found, size), node

    def finish(self, prepared: Any, admitted: Admitted) -> None:
        held, row, node = admitted
        key = self.RadixKey(prepared[0]).page_aligned(self.page_size)
        end = len(key)
        value = row[:end].to(dtype=self.int64, copy=True)
        found = self.cache.insert(self.InsertParams(key=key, value=value)).prefix_len
        self.cache.dec_lock_ref(node)
        self.pool.free_segment(row[held:found].to(self.int64), start_pos=held)
        self.pool.free_segment(row[end:].to(self.int64), start_pos=end)

    def num_nodes(self) -> int:
        count, stack = -1, [self.cache.root_node]
        while stack:
            count += 1
            stack += stack.pop().children.values()
        return count


class SGLangDefault(Peer):
    """What SGLang runs unless told otherwise: `UnifiedRadixCache` over the Rust core in its wheel.

    Its insertion frees the duplicates itself, as in `checkpoint_into_tree`.
    """

    name = "sglang-rust"

    def make_cache(self, page_size: int) -> Any:
        cache = module("unified_radix_cache").UnifiedRadixCache(
            module("cache_init_params").CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self.pool,
                page_size=page_size,
                tree_components=(module("unified_cache.component_type").ComponentType.FULL,),
                tree_core_backend="rust",
            )
        )
        assert cache._tree_core_backend == "rust"
        self.operations = [
            ("match", cache, "match_prefix"),
            ("lock", cache, "lock"),
            ("evict", cache, "evict_for_alloc"),
            ("allocate", self.pool, "alloc"),
            ("insert", cache, "insert"),
            ("unlock", cache, "unlock"),
            ("free", self.pool, "free_segment"),
        ]
        return cache

    def admit(self, prepared: Any) -> Admitted:
        key, limit, size = prepared
        cache = self.cache
        match = cache.match_prefix(self.MatchPrefixParams(key=self.RadixKey(key, limit=limit)))
        node, found = match.last_device_node, match.device_prefix_len
        lock = cache.lock(node)
        return found, self.make_row(node, found, size), lock

    def finish(self, prepared: Any, admitted: Admitted) -> None:
        held, row, lock = admitted
        key = self.RadixKey(prepared[0]).page_aligned(self.page_size)
        end = len(key)
        value = row[:end].to(dtype=self.int64, copy=True)
        self.cache.insert(self.InsertParams(key=key, value=value, prev_prefix_len=held))
        self.cache.unlock(lock)
        self.pool.free_segment(row[end:].to(self.int64), start_pos=end)

    def num_nodes(self) -> None:
        return None
