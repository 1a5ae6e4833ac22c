"""Each implementation as the two things that a serving loop asks of it: admit and finish.

Both are written out call by call, so that what is timed is the implementation's work and one
frame of ours. Where an engine would hold something already (a request's ids in the container that
its cache takes), `prepare` makes it, untimed, for all alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from radixlab.cache import RadixCache
from radixlab.manager import CacheManager
from radixlab.pool import PageAllocator
from radixlab.request import Request
from radixlab.tokens import TOKEN_BYTES
from tests.bench.baselines import ListRadixTree, Textbook, TokenTrie
from tests.bench.traces import TraceRequest

Admitted = tuple[int, Any, Any]
"""Tokens found, the page table (one slot for each token), and what else `finish` needs."""


def round_up(count: int, page_size: int) -> int:
    """`count` rounded up to whole pages."""
    return -(-count // page_size) * page_size


class Implementation(ABC):
    """A prefix cache with its free list, over a pool of `num_slots` tokens, in whole pages.

    `operations` names the calls inside `admit` and `finish` that can be timed on their own: what
    is done, the object, and its method. With `cuts_at_prompt` outputs are evicted apart from their
    prompts, so that in a full pool other hits follow.
    """

    name: ClassVar[str]
    cuts_at_prompt: ClassVar[bool] = False
    first_slot = 0
    operations: list[tuple[str, object, str]]

    @abstractmethod
    def __init__(self, num_slots: int, page_size: int) -> None: ...

    @abstractmethod
    def prepare(self, request: TraceRequest) -> Any:
        """Untimed: the request in the form that this implementation is given."""

    @abstractmethod
    def admit(self, prepared: Any) -> Admitted:
        """Match all but the prompt's last token, lock, evict if short, allocate, build the row."""

    @abstractmethod
    def finish(self, prepared: Any, admitted: Admitted) -> None:
        """Insert prompt and output, unlock, free the duplicates and what is not cached."""

    @abstractmethod
    def evict(self, num_tokens: int) -> object:
        """Evict alone, for the cost of one leaf among many."""

    @property
    @abstractmethod
    def free_size(self) -> int:
        """Tokens on the free list."""

    @property
    @abstractmethod
    def evictable_size(self) -> int:
        """Cached tokens that nobody holds."""

    @abstractmethod
    def num_nodes(self) -> int | None:
        """Nodes of the tree without its root, if they can be counted."""


class Core(Implementation):
    """`RadixCache` and `PageAllocator`, called directly."""

    name = "cache"

    def __init__(self, num_slots: int, page_size: int) -> None:
        self.page_size = page_size
        self.cache = cache = RadixCache(page_size)
        self.pool = pool = PageAllocator(num_slots // page_size, page_size)
        self.operations = [
            ("match", cache, "match_prefix"),
            ("lock", cache, "lock"),
            ("evict", cache, "evict"),
            ("allocate", pool, "allocate"),
            ("insert", cache, "insert_prefix"),
            ("unlock", cache, "unlock"),
            ("free", pool, "free"),
        ]

    def prepare(self, request: TraceRequest) -> tuple[bytes, int, int]:
        size = round_up(len(request.tokens), self.page_size)
        return request.tokens.tobytes(), request.prompt_len - 1, size

    def admit(self, prepared: Any) -> Admitted:
        key, limit, size = prepared
        cache, pool = self.cache, self.pool
        handle = cache.match_prefix(key, limit=limit)
        cache.lock(handle)
        missing = size - handle.cached_len
        if missing > (free := pool.free_size):
            pool.free(cache.evict(missing - free))
        row = handle.value
        row.extend(pool.allocate(missing // self.page_size))
        return handle.cached_len, row, handle

    def finish(self, prepared: Any, admitted: Admitted) -> None:
        key = prepared[0]
        held, row, handle = admitted
        cache, pool = self.cache, self.pool
        result = cache.insert_prefix(key, row, limit=len(key) // TOKEN_BYTES, held=handle)
        cache.unlock(handle)
        if result.cached_len > held:
            pool.free(row[held : result.cached_len])
        if len(row) > (cached := result.handle.cached_len):
            pool.free(row[cached:])

    def evict(self, num_tokens: int) -> object:
        return self.cache.evict(num_tokens)

    @property
    def free_size(self) -> int:
        return self.pool.free_size

    @property
    def evictable_size(self) -> int:
        return self.cache.evictable_size

    def num_nodes(self) -> int:
        return sum(1 for _ in self.cache.tree.nodes()) - 1


class Manager(Implementation):
    """`CacheManager`, with a request's whole path from its int32 bytes on."""

    name, cuts_at_prompt = "manager", True

    def __init__(self, num_slots: int, page_size: int) -> None:
        self.manager = manager = CacheManager(num_slots // page_size, page_size)
        self.operations = [
            ("match + lock", manager, "admit"),
            ("evict", manager, "evict"),
            ("allocate", manager, "allocate"),
            ("insert", manager, "cache_request"),
            ("unlock + free", manager, "release"),
        ]

    def prepare(self, request: TraceRequest) -> tuple[bytes, bytes, int]:
        """The last token drawn is never computed, so there is one more than those cached."""
        prompt, output = request.tokens[: request.prompt_len], request.tokens[request.prompt_len :]
        return prompt.tobytes(), output.tobytes() + bytes(TOKEN_BYTES), len(request.tokens)

    def admit(self, prepared: Any) -> Admitted:
        prompt, output, total = prepared
        request = Request(prompt, len(output) // TOKEN_BYTES)
        assert self.manager.admit(request)
        self.manager.allocate(request, total)
        return request.cache_hit_len, request.page_table, request

    def finish(self, prepared: Any, admitted: Admitted) -> None:
        _, output, total = prepared
        request = admitted[2]
        request.output.frombytes(output)
        request.computed_len = total
        self.manager.cache_request(request)
        self.manager.release(request)

    def evict(self, num_tokens: int) -> object:
        return self.manager.evict(num_tokens)

    @property
    def free_size(self) -> int:
        return self.manager.pool.free_size

    @property
    def evictable_size(self) -> int:
        return self.manager.cache.evictable_size

    def num_nodes(self) -> int:
        return sum(1 for _ in self.manager.cache.tree.nodes()) - 1


class Baseline(Implementation):
    """A textbook tree, with a list of free pages."""

    tree_type: ClassVar[type[Textbook]]

    def __init__(self, num_slots: int, page_size: int) -> None:
        self.page_size = page_size
        self.tree = tree = self.tree_type(page_size)
        self.free_pages = list(range(num_slots // page_size))
        self.operations = [
            ("match", tree, "match"),
            ("lock", tree, "lock"),
            ("evict", tree, "evict"),
            ("allocate", self, "allocate"),
            ("insert", tree, "insert"),
            ("unlock", tree, "unlock"),
            ("free", self, "free"),
        ]

    def allocate(self, num_tokens: int) -> list[int]:
        """Take whole pages from the end of the free list; their slots."""
        cut = len(self.free_pages) - num_tokens // self.page_size
        pages = self.free_pages[cut:]
        del self.free_pages[cut:]
        if self.page_size == 1:
            return pages
        return [p * self.page_size + offset for p in pages for offset in range(self.page_size)]

    def free(self, slots: list[int]) -> None:
        """Give whole pages back."""
        self.free_pages += [slot // self.page_size for slot in slots[:: self.page_size]]

    def prepare(self, request: TraceRequest) -> tuple[list[int], int, int]:
        size = round_up(len(request.tokens), self.page_size)
        return request.tokens.tolist(), request.prompt_len - 1, size

    def admit(self, prepared: Any) -> Admitted:
        tokens, limit, size = prepared
        node = self.tree.match(tokens, limit)
        self.tree.lock(node)
        missing = size - node.depth
        if missing > (free := self.free_size):
            self.free(self.tree.evict(missing - free))
        row = self.tree.path_slots(node)
        row += self.allocate(missing)
        return node.depth, row, node

    def finish(self, prepared: Any, admitted: Admitted) -> None:
        tokens = prepared[0]
        held, row, node = admitted
        found, end = self.tree.insert(tokens, row)
        self.tree.unlock(node)
        self.free(row[held:found])
        self.free(row[end.depth :])

    def evict(self, num_tokens: int) -> object:
        return self.tree.evict(num_tokens)

    @property
    def free_size(self) -> int:
        return len(self.free_pages) * self.page_size

    @property
    def evictable_size(self) -> int:
        return sum(len(node.tokens) for node in self.tree.nodes() if not node.ref_count)

    def num_nodes(self) -> int:
        return sum(1 for _ in self.tree.nodes())


class Lists(Baseline):
    """The radix tree with Python lists."""

    name, tree_type = "lists", ListRadixTree


class Trie(Baseline):
    """The token-by-token trie."""

    name, tree_type = "trie", TokenTrie


OWN: list[type[Implementation]] = [Core, Manager, Lists, Trie]
"""What runs everywhere; SGLang's join them where there is a wheel of it."""
