"""The life of a request, one step at a time (chapter, section 4.2).

`lifecycle` drives the very functions that an engine calls and stops after each: match, schedule,
lock, allocate (evicting if short), prefill and insert, decode, unlock, free. Each stop is a `Step`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from radixlab.errors import InvalidArgument
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.scheduler import (
    Chunk,
    Matched,
    ModelRunner,
    NullRunner,
    PrefixAware,
    SchedulePolicy,
    fcfs,
)
from radixlab.snapshot import Changes, Snapshot, diff, snapshot_tree, take_snapshot
from radixlab.tokens import brief
from radixlab.tree import RadixTreeNode


@dataclass(frozen=True, slots=True)
class Step:
    """One step and the state after it.

    `number` is the chapter's (1 to 7), `name` what was done, `caption` one sentence with the
    numbers in it, `function` the dotted name of the code that did it, `nodes` the uuids of the path
    it worked on.
    """

    number: int
    name: str
    caption: str
    function: str
    request_id: str | None
    nodes: tuple[int, ...]
    changes: Changes
    snapshot: Snapshot

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for JSON."""
        return asdict(self)


class Recorder:
    """Makes steps of any sequence of calls: call something, then `record` what it was.

    Each step compares the manager with how it was at the step before. `requests` are shown in the
    snapshots also while they wait and after they have ended.
    """

    def __init__(self, manager: CacheManager, requests: Iterable[Request] = ()) -> None:
        self.manager, self.requests = manager, list(requests)
        self.steps: list[Step] = []
        self.start = take_snapshot(manager, self.requests)

    def record(
        self,
        number: int,
        function: Callable[..., Any],
        caption: str,
        *,
        name: str | None = None,
        request: Request | None = None,
        node: RadixTreeNode | None = None,
    ) -> Step:
        """The step that `function` has just done; `node` is where its path ends."""
        before = self.steps[-1].snapshot if self.steps else self.start
        after = take_snapshot(self.manager, self.requests)
        step = Step(
            number=number,
            name=name or function.__name__,
            caption=caption,
            function=f"{function.__module__}.{getattr(function, '__qualname__', 'policy')}",
            request_id=None if request is None else str(request.request_id),
            nodes=() if node is None else tuple(n.uuid for n in node.path()),
            changes=diff(before, after),
            snapshot=after,
        )
        self.steps.append(step)
        return step


def lifecycle(
    manager: CacheManager,
    requests: Iterable[Request],
    *,
    policy: SchedulePolicy = fcfs,
    runner: ModelRunner | None = None,
    batch_size: int = 1,
) -> Generator[Step]:
    """Serve the requests and yield a `Step` after each thing that happens.

    Up to `batch_size` requests run together, from admission to the end of the last; then all that
    wait are matched again. Without a `runner` nothing is computed and every drawn token is 0.
    Requests may be released between steps; those still running when the generator is closed are.
    Raises `InvalidArgument` for a batch of fewer than 1 and a policy that is none, and before the
    first step `RequestTooLong`; later `PoolExhausted`, with nothing running, when a request can't
    be admitted because others hold the slots, and `InvalidArgument` when the policy names nobody.
    """
    if batch_size < 1:
        raise InvalidArgument("batch_size", batch_size, "1 or more")
    if not callable(policy):
        raise InvalidArgument("policy", policy, "a function (`make_policy` knows their names)")
    queue = list(requests)
    for request in _waiting(queue):
        manager.check_can_start(request)
    life = _Life(Recorder(manager, queue), runner or NullRunner())
    try:
        while queue := _waiting(queue):
            ordered = arrange(policy, (yield from life.match_all(queue)), manager.running)
            if not ordered and _waiting(queue):
                raise InvalidArgument("policy", policy, "one that names somebody who waits")
            yield life.schedule(ordered, policy)
            batch = yield from life.start_batch(ordered[:batch_size])
            yield from life.prefill(batch)
            while batch := _running(batch):
                for request in batch:
                    if request.is_done:
                        yield from life.finish(request)
                yield from life.decode(_running(batch))
    finally:
        for request in [r for r in manager.running if r in life.recorder.requests]:
            manager.release(request)


def arrange(
    policy: SchedulePolicy, waiting: Sequence[Matched], running: Collection[Request] = ()
) -> list[Matched]:
    """The order of a policy of either kind, for requests that have been matched."""
    if isinstance(policy, PrefixAware):
        return policy(waiting)
    matched = {each.request: each for each in waiting}
    named = policy(list(matched), running)
    return [matched[request] for request in dict.fromkeys(named) if request in matched]


class _Life:
    """The steps of `lifecycle`: each is a call into the core and a caption."""

    def __init__(self, recorder: Recorder, runner: ModelRunner) -> None:
        self.recorder, self.manager, self.runner = recorder, recorder.manager, runner
        self.prefilled_tokens = 0

    def match_all(self, waiting: Sequence[Request]) -> Generator[Step, None, list[Matched]]:
        matched = []
        for request in waiting:
            handle = self.manager.match(request)
            matched.append(Matched(request, handle, self.prefilled_tokens))
            found, of = handle.cached_len, _count(request.num_tokens, "token")
            caption = f"{found} of {of} {_verb(found, 'is', 'are')} cached"
            if handle.cached_len:
                caption += f", at {_slots(handle.value)}. Found is not yet held"
            yield self._step(1, self.manager.match, caption, request, handle.node)
        return [m for m in matched if m.request.state is RequestState.WAITING]

    def schedule(self, ordered: Sequence[Matched], policy: SchedulePolicy) -> Step:
        lengths = ", ".join(f"{m.request.request_id} ({m.uncached_len})" for m in ordered)
        name = getattr(policy, "__name__", "the policy").replace("_", "-")
        caption = f"{name} puts them in this order, with the tokens left to compute: {lengths}"
        place = {m.request: i for i, m in enumerate(ordered)}
        self.recorder.requests.sort(key=lambda r: place.get(r, -1))
        return self.recorder.record(2, policy, caption + ".", name="schedule")

    def start_batch(self, ordered: Sequence[Matched]) -> Generator[Step, None, list[Request]]:
        """Admit requests in order until one does not fit, each with the slots of its prompt."""
        batch: list[Request] = []
        for request in (each.request for each in ordered):
            if request.state is not RequestState.WAITING:
                continue
            if not self.manager.admit(request, self.manager.promised_size):
                if not batch:
                    raise self.manager.no_room_for(request)
                break
            batch.append(request)
            yield self._lock_step(request)
            yield from self.allocate(request, request.num_tokens)
        return _running(batch)

    def _lock_step(self, request: Request) -> Step:
        assert request.handle is not None
        path = request.handle.node.path()
        counts = ", ".join(f"{n.ref_count - 1} -> {n.ref_count}" for n in path) or "no node"
        caption = (
            f"{_slots(request.page_table)} can't be evicted now; "
            f"{_verb(len(request.page_table), 'it opens', 'they open')} the page table. "
            f"ref_count along the path: {counts}"
            if path
            else "nothing was found, so there is nothing to hold; the page table is empty"
        )
        return self._step(3, self.manager.cache.lock, caption, request, request.handle.node)

    def allocate(self, request: Request, num_tokens: int) -> Iterator[Step]:
        """Slots for the request's first `num_tokens` positions, evicting first if there are few."""
        if request.state is not RequestState.RUNNING:
            return
        needed = self.manager.round_up(num_tokens) - len(request.page_table)
        if shortage := self.manager.shortage(request, num_tokens):
            yield self.evict(request, needed, shortage)
        if needed > 0 and request.state is RequestState.RUNNING:
            slots = self.manager.allocate(request, num_tokens)
            caption = (
                f"{_slots(slots)} {_verb(len(slots), 'leaves', 'leave')} the free list; "
                f"the page table is now "
                f"{_slots(request.page_table)}"
            )
            yield self._step(4, self.manager.allocate, caption, request, _node(request))

    def evict(self, request: Request, needed: int, shortage: int) -> Step:
        free = self.manager.pool.free_size
        before = snapshot_tree(self.manager.cache.tree)
        slots = self.manager.evict(shortage)
        freed = set(slots)
        gone = [brief(n.key) for n in before if not freed.isdisjoint(n.value)]
        one, many = f"leaf {gone[0]} goes, since nobody holds it", " and ".join(gone)
        caption = (
            f"{_count(needed, 'slot')} needed, {free} free: the "
            f"{_verb(len(gone), one, f'leaves {many} go, since nobody holds them')}, "
            f"and {_slots(slots)} {_verb(len(slots), 'is', 'are')} free again"
        )
        return self._step(7, self.manager.cache.evict, caption, request)

    def prefill(self, batch: Sequence[Request]) -> Iterator[Step]:
        """Compute the uncached suffixes in one pass, then make each findable."""
        chunks = [Chunk(r, r.computed_len, r.num_tokens) for r in batch]
        if not chunks:
            return
        for chunk, token in zip(chunks, self.runner.prefill(chunks), strict=True):
            self.prefilled_tokens += chunk.end - chunk.start
            chunk.request.computed_len = chunk.end
            chunk.request.output.append(token)
        work = "; ".join(_prefill_caption(chunk) for chunk in chunks)
        yield self._step(5, self.runner.prefill, work, name="prefill")
        for request in batch:
            if request.state is RequestState.RUNNING:
                yield self.insert(request)

    def insert(self, request: Request) -> Step:
        assert request.handle is not None
        held = request.handle.cached_len
        before = request.page_table[held:]
        result = self.manager.cache_request(request)
        found, cached = result.cached_len, result.handle.cached_len
        key = memoryview(request.tokens).cast("i")
        parts = []
        if found > held:
            own, theirs = before[: found - held], request.page_table[held:found]
            are = _verb(len(own), "is", "are")
            parts.append(
                f"{brief(key[held:found])} {are} in the tree already: the "
                f"{_verb(len(own), 'duplicate', 'duplicates')} {_slots(own)} {are} freed, "
                f"and the page table points to {_slots(theirs)}"
            )
        if cached > found:
            new = _slots(request.page_table[found:cached])
            parts.append(f"{brief(key[found:cached])} -> {new} joins the tree, without a copy")
        caption = "; ".join(parts) or "no whole page is new, so the tree stays as it is"
        return self._step(
            5, self.manager.cache.insert_prefix, caption, request, result.handle.node, name="insert"
        )

    def decode(self, batch: Sequence[Request]) -> Iterator[Step]:
        """One more token for each request: a slot for the last one drawn, then one pass."""
        for request in batch:
            yield from self.allocate(request, request.num_tokens)
        if not (batch := _running(batch)):
            return
        for request, token in zip(batch, self.runner.decode(batch), strict=True):
            request.computed_len = request.num_tokens
            request.output.append(token)
        caption = "; ".join(
            f"{r.request_id} writes position {r.computed_len - 1} to "
            f"p{r.page_table[r.computed_len - 1]} and draws token {r.output[-1]}"
            for r in batch
        )
        yield self._step(6, self.runner.decode, caption, name="decode")

    def finish(self, request: Request) -> Iterator[Step]:
        """Insert what decode has added, unlock, and free what is not in the tree."""
        if request.state is not RequestState.RUNNING:
            return
        assert request.handle is not None
        if self.manager.round_down(request.computed_len) > request.handle.cached_len:
            yield self.insert(request)
        if request.state is RequestState.RUNNING:
            handle, cache = request.handle, self.manager.cache
            self.manager.unlock(request)
            counts = ", ".join(f"{n.ref_count + 1} -> {n.ref_count}" for n in handle.node.path())
            caption = (
                f"ref_count along the path: {counts or 'no node'}. Nothing is freed: "
                f"{cache.evictable_size} of {_count(cache.total_size, 'cached token')} "
                f"{_verb(cache.evictable_size, 'is', 'are')} evictable"
            )
            private = request.page_table[handle.cached_len :]
            if not private:
                self.manager.free(request)
            yield self._step(6, cache.unlock, caption, request, handle.node)
            if private and request.state is RequestState.RUNNING:
                self.manager.free(request)
                are, back = _verb(len(private), "is returns", "are return").split()
                caption = f"{_slots(private)} {are} not in the tree and {back} to the free list"
                yield self._step(7, self.manager.free, caption, request, name="free")

    def _step(
        self,
        number: int,
        function: Callable[..., Any],
        caption: str,
        request: Request | None = None,
        node: RadixTreeNode | None = None,
        name: str | None = None,
    ) -> Step:
        who = "" if request is None else f"{request.request_id}: "
        return self.recorder.record(
            number, function, f"{who}{caption}.", name=name, request=request, node=node
        )


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _waiting(requests: Sequence[Request]) -> list[Request]:
    return [r for r in requests if r.state is RequestState.WAITING]


def _running(requests: Sequence[Request]) -> list[Request]:
    return [r for r in requests if r.state is RequestState.RUNNING]


def _node(request: Request) -> RadixTreeNode | None:
    return None if request.handle is None else request.handle.node


def _prefill_caption(chunk: Chunk) -> str:
    request, start, end = chunk
    return (
        f"{request.request_id} computes {_count(end - start, 'token')} and reads {start} from the "
        f"cache; it draws token {request.output[-1]}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _slots(slots: Sequence[int]) -> str:
    return brief(slots, "p")
