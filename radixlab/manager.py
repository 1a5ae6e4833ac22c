"""Where the tree and the pool meet: the only place where token slots change their owner.

Every slot has one owner: the free list, the cache, or the private part of a running request. This
is the work of mini-SGLang's CacheManager, with its rules (chapter, section 4.2).
"""

from __future__ import annotations

from array import array

from radixlab.cache import CacheHandle, InsertResult, RadixCache
from radixlab.errors import DoubleFree, InvalidArgument, PoolExhausted, RequestTooLong, WrongState
from radixlab.events import Observer
from radixlab.eviction import EvictionStrategy
from radixlab.pool import PageAllocator
from radixlab.request import ABORTED, FINISHED, RUNNING, WAITING, Request


class CacheManager:
    """A prefix cache over a pool of `num_pages` pages of `page_size` tokens.

    `strategy` decides what is evicted first (LRU); an `observer` is told what is stored and
    removed; `checked=True` makes the pool notice every double free exactly. All sizes are in
    tokens. `running` lists the requests that were started and not yet freed; `evicted_tokens`
    counts all that was ever evicted.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int = 1,
        *,
        strategy: EvictionStrategy | None = None,
        observer: Observer | None = None,
        checked: bool = False,
    ) -> None:
        self.pool = PageAllocator(num_pages, page_size, checked=checked)
        self.cache = RadixCache(page_size, strategy, observer)
        self.page_size = page_size
        self.running: dict[Request, None] = {}
        self.evicted_tokens = 0

    @property
    def available_size(self) -> int:
        """Slots that can be had: the free ones, and those that eviction would free."""
        return self.pool.free_size + self.cache.evictable_size

    @property
    def promised_size(self) -> int:
        """Slots that all running requests together may still ask for before they end."""
        return sum(map(self.remaining_size, self.running))

    def round_up(self, num_tokens: int) -> int:
        """`num_tokens` rounded up to whole pages."""
        return -(-num_tokens // self.page_size) * self.page_size

    def round_down(self, num_tokens: int) -> int:
        """`num_tokens` rounded down to whole pages."""
        return num_tokens - num_tokens % self.page_size

    def check_can_start(self, request: Request) -> int:
        """How many slots the request will ever need, in whole pages.

        Raises `WrongState` unless it waits, `RequestTooLong` if the whole pool is too small.
        """
        if request.state is not WAITING:
            raise WrongState("start", request.request_id, request.state, WAITING)
        needed = self.round_up(request.max_len)
        if needed > self.pool.total_size:
            raise RequestTooLong(request.request_id, needed, self.pool.total_size)
        return needed

    def match(self, request: Request) -> CacheHandle:
        """Step 1: the longest cached prefix of the request, as a handle that holds nothing yet.

        The last token is left out, since without computing at least one there are no logits to draw
        from. So the match ends at the last whole page within `num_tokens - 1`.
        """
        limit = request.num_tokens - 1
        return self.cache.match_prefix(request.tokens, limit=limit, namespace=request.namespace)

    def lock(self, request: Request, handle: CacheHandle) -> None:
        """Step 3: protect the matched prefix and write its slots to the page table.

        The request runs from now on. Raises `WrongState` unless it was waiting, `RequestTooLong`
        when it could not run even with the pool to itself, and what `RadixCache.lock` raises.
        """
        self.check_can_start(request)
        if handle.cached_len >= request.num_tokens:
            raise InvalidArgument("handle", handle, f"of at most {request.num_tokens - 1} tokens")
        key = b"".join([node._key for node in handle.node.path()])
        own = not key or handle.node.namespace == request.namespace
        if not own or not request.tokens.startswith(key):
            raise InvalidArgument("handle", handle, "of a prefix of the request")
        self.cache.lock(handle)
        self._start(request, handle)

    def admit(self, request: Request, reserved: int = 0, *, match: bool = True) -> bool:
        """Match and lock the request if all it will ever need can be had; else hold nothing.

        `reserved` slots are promised to others. The size is checked before and after locking, as
        in mini-SGLang's PrefillAdder: a prefix that is held is no longer there to be evicted.
        Without `match` nothing is looked for.
        """
        needed = self.check_can_start(request) + reserved
        handle = self.match(request) if match else CacheHandle(self.cache, self.cache.tree.root)
        needed -= handle.cached_len
        if needed > self.available_size:
            return False
        self.cache.lock(handle)
        if needed > self.available_size:
            self.cache.unlock(handle)
            return False
        self._start(request, handle)
        return True

    def remaining_size(self, request: Request) -> int:
        """Slots that a running request may still ask for before it ends."""
        return self.round_up(request.max_len) - len(request.page_table)

    def no_room_for(self, request: Request) -> PoolExhausted:
        """The error that says, in numbers, why a request can't be admitted now."""
        needed, free = self.round_up(request.max_len), self.pool.free_size
        return PoolExhausted(needed, free, self.cache.evictable_size, self.promised_size)

    def shortage(self, request: Request, num_tokens: int) -> int:
        """How many slots must be evicted before the request can have `num_tokens` positions."""
        missing = self.round_up(num_tokens) - len(request.page_table)
        return max(0, missing - self.pool.free_size)

    def allocate(self, request: Request, num_tokens: int) -> array[int]:
        """Step 4: give the request slots for its first `num_tokens` positions, and return the new.

        Only what its page table lacks is allocated, in whole pages, and the cache evicts first if
        the free list is too short. Raises `PoolExhausted` before anything is evicted.
        """
        if request not in self.running:
            raise _not_running("allocate for", request)
        if request.handle is None or not request.handle.locked:
            raise WrongState("allocate for", request.request_id, "unlocked", "locked")
        missing = self.round_up(num_tokens) - len(request.page_table)
        if missing > (free := self.pool.free_size):
            if missing > self.available_size:
                raise PoolExhausted(missing, free, self.cache.evictable_size)
            self.evict(missing - free)
        slots = self.pool.allocate(max(0, missing) // self.page_size)
        request.page_table.extend(slots)
        return slots

    def evict(self, num_tokens: int) -> array[int]:
        """Step 7: take unlocked leaves out of the tree and put their slots on the free list."""
        slots = self.cache.evict(num_tokens)
        self.pool.free(slots)
        self.evicted_tokens += len(slots)
        return slots

    def cache_request(self, request: Request) -> InsertResult:
        """Step 5: make what the request has computed findable for others.

        Called after prefill and again at the end, when the output is inserted below the prompt: the
        border between both stays a border of nodes, so that the output can be evicted first.

            position      0 ....... held ...... found ...... cached ..... end of the page table
            owner before  | tree    | request   | request    | request    |
            owner after   | tree    | free list | tree       | request    |
            table after   | same    | the tree's| same       | same       |

        In `held .. found` somebody else was faster: those slots are duplicates. They are freed, and
        the page table is pointed at the tree's slots before anyone can reuse its own.
        """
        if request not in self.running:
            raise _not_running("cache", request)
        old, table = request.handle, request.page_table
        assert old is not None
        result = self.cache.insert_prefix(
            request.tokens,
            table,
            limit=request.computed_len,
            border=request.prompt_len,
            held=old,
            namespace=request.namespace,
            priority=request.priority,
        )
        held, found, new = old.cached_len, result.cached_len, result.handle
        self.cache.move_lock(old, new)
        if found > held:
            duplicates = table[held:found]
            table[held:found] = new.value[held:found]
            self.pool.free(duplicates)
        request.handle = new
        return result

    def unlock(self, request: Request) -> None:
        """Step 6: let go of the prefix, which stays cached, evictable if nobody else holds it."""
        if request not in self.running:
            raise _not_running("unlock", request)
        assert request.handle is not None
        self.cache.unlock(request.handle)

    def free(self, request: Request) -> array[int]:
        """Step 7: put the request's private slots, those not in the tree, on the free list.

        Ends the request: finished if it has all its tokens, else aborted. Returns the slots.
        """
        if request not in self.running:
            raise _not_running("free the slots of", request)
        assert request.handle is not None
        if request.handle.locked:
            raise WrongState("free the slots of", request.request_id, "locked", "unlocked")
        private = request.page_table[request.handle.cached_len :]
        self.pool.free(private)
        request.handle, request.page_table = None, array("i")
        request.state = FINISHED if request.is_done else ABORTED
        del self.running[request]
        return private

    def release(self, request: Request) -> None:
        """Unlock and free, at whatever point the request is; one that waits holds nothing.

        Raises `DoubleFree` for a request that has ended already.
        """
        if request.state is WAITING:
            request.state = ABORTED
            return
        if request.state is not RUNNING:
            raise DoubleFree(f"{request.state} request {request.request_id}", request.max_len, 0)
        if request.handle is not None and request.handle.locked:
            self.unlock(request)
        self.free(request)

    def clear(self) -> None:
        """Forget all that is cached and free its slots; refused while anybody holds a prefix."""
        self.pool.free(self.cache.clear())

    def check_integrity(self) -> None:
        """Raise AssertionError unless every slot has exactly one owner and all counts agree."""
        handles = [r.handle for r in self.running if r.handle is not None and r.handle.locked]
        self.cache.check_integrity(handles)
        owned = self.pool.free_slots.tolist()
        for node in self.cache.tree.nodes():
            owned += node.value
        for request in self.running:
            owned += self._check_running(request)
        total = self.pool.total_size
        counts = f"{len(owned)} slots are owned, {len(set(owned))} different ones, of {total}"
        assert sorted(owned) == list(range(total)), counts

    def _check_running(self, request: Request) -> array[int]:
        handle, table = request.handle, request.page_table
        assert request.state is RUNNING and handle is not None
        held = not handle.locked or table[: handle.cached_len] == handle.value
        assert held, "a page table left the tree's slots"
        assert len(set(table)) == len(table), "a slot stands in a page table twice"
        assert handle.cached_len <= request.computed_len <= len(table) == self.round_up(len(table))
        return table[handle.cached_len :]

    def __str__(self) -> str:
        """The tree, and who has the slots."""
        cache, pool = self.cache, self.pool
        private = pool.total_size - self.available_size - cache.protected_size
        cached = f"{cache.evictable_size} evictable, {cache.protected_size} protected"
        return f"{cache}\n{pool.free_size} free, {cached}, {private} private"

    def _start(self, request: Request, handle: CacheHandle) -> None:
        request.handle, request.page_table = handle, handle.value
        request.cache_hit_len = request.computed_len = handle.cached_len
        request.state = RUNNING
        self.running[request] = None


def _not_running(action: str, request: Request) -> WrongState:
    if request.state is RUNNING:
        return WrongState(action, request.request_id, "running elsewhere", "running here")
    return WrongState(action, request.request_id, request.state, RUNNING)
