"""The whole state as plain data: what pictures, captions and tests look at.

Taken from outside, from public state: the core doesn't know that it is being watched. Everything is
a frozen dataclass of numbers, strings and tuples, so `dataclasses.asdict` makes it JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.tokens import decode
from radixlab.tree import RadixTree

FREE, CACHED = "free", "cached"


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node of the tree; `parent` is a uuid, None for the root."""

    uuid: int
    parent: int | None
    key: tuple[int, ...]
    value: tuple[int, ...]
    ref_count: int
    timestamp: int
    namespace: str | None


@dataclass(frozen=True, slots=True)
class RequestSnapshot:
    """One request. Of its page table the first `cached_len` slots belong to the cache."""

    request_id: str
    state: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    page_table: tuple[int, ...]
    node: int | None
    cached_len: int
    cache_hit_len: int
    computed_len: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tree, pool and requests at one moment; all sizes in tokens.

    free + evictable + protected + private is always the size of the pool. `free_list` names pages
    by their first slot, the next to be allocated first.
    """

    page_size: int
    total_size: int
    evictable_size: int
    protected_size: int
    private_size: int
    free_list: tuple[int, ...]
    nodes: tuple[NodeSnapshot, ...]
    requests: tuple[RequestSnapshot, ...]

    @property
    def free_size(self) -> int:
        """Free token slots."""
        return len(self.free_list) * self.page_size

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the requests that wait, in order of arrival."""
        return tuple(r.request_id for r in self.requests if r.state == RequestState.WAITING)

    def owners(self) -> dict[int, str]:
        """Each slot's owner: "free", "cached" or the id of the request whose private slot it is.

        An id that is one of these two words is put in quotes.
        """
        owners = {slot: CACHED for node in self.nodes for slot in node.value}
        for request in self.requests:
            name = request.request_id
            owner = repr(name) if name in (FREE, CACHED) else name
            owners |= dict.fromkeys(request.page_table[request.cached_len :], owner)
        for page in self.free_list:
            owners |= dict.fromkeys(range(page, page + self.page_size), FREE)
        return owners


@dataclass(frozen=True, slots=True)
class SlotMove:
    """Slots that changed their owner."""

    slots: tuple[int, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two snapshots; nodes are named by uuid.

    `split` pairs each upper node made by a split with the node it was cut from; `healed` pairs each
    upper node that is gone again with the node that has its tokens now. `removed` are the others
    that are gone, with their tokens. `ref_counts` lists (uuid, before, after) of nodes in both, and
    of new ones that are held.
    """

    created: tuple[int, ...]
    removed: tuple[int, ...]
    split: tuple[tuple[int, int], ...]
    ref_counts: tuple[tuple[int, int, int], ...]
    slots: tuple[SlotMove, ...]
    healed: tuple[tuple[int, int], ...] = ()


def snapshot_tree(tree: RadixTree) -> tuple[NodeSnapshot, ...]:
    """All nodes of a tree, the root first, each before its children."""
    return tuple(
        NodeSnapshot(
            uuid=node.uuid,
            parent=None if node.parent is None else node.parent.uuid,
            key=tuple(node.key),
            value=tuple(node.value),
            ref_count=0 if node.parent is None else node.ref_count,
            timestamp=node.timestamp,
            namespace=None if node.namespace is None else str(node.namespace),
        )
        for node in tree.nodes()
    )


def take_snapshot(manager: CacheManager, requests: Iterable[Request] = ()) -> Snapshot:
    """The state of a manager, its running requests and any others that are to be shown."""
    shown = tuple(_snapshot_request(r) for r in dict.fromkeys([*requests, *manager.running]))
    return Snapshot(
        page_size=manager.page_size,
        total_size=manager.pool.total_size,
        evictable_size=manager.cache.evictable_size,
        protected_size=manager.cache.protected_size,
        private_size=sum(len(r.page_table) - r.cached_len for r in shown),
        free_list=tuple(manager.pool.free_list),
        nodes=snapshot_tree(manager.cache.tree),
        requests=shown,
    )


def _snapshot_request(request: Request) -> RequestSnapshot:
    handle = request.handle
    return RequestSnapshot(
        request_id=str(request.request_id),
        state=str(request.state),
        prompt=tuple(decode(request.prompt)),
        output=tuple(request.output),
        page_table=tuple(request.page_table),
        node=None if handle is None else handle.node.uuid,
        cached_len=0 if handle is None else handle.cached_len,
        cache_hit_len=request.cache_hit_len,
        computed_len=request.computed_len,
    )


def diff(before: Snapshot, after: Snapshot) -> Changes:
    """What happened between two snapshots of one manager."""
    old = {node.uuid: node for node in before.nodes}
    new = {node.uuid: node for node in after.nodes}
    counts = [(u, old[u].ref_count if u in old else 0, n.ref_count) for u, n in new.items()]
    split = [(upper, u) for u in new if u in old for upper in _new_above(u, old, new)]
    healed = [(upper, u) for u in new if u in old for upper in _new_above(u, new, old)]
    kept = {upper for upper, _ in healed}
    return Changes(
        created=tuple(uuid for uuid in new if uuid not in old),
        removed=tuple(uuid for uuid in old if uuid not in new and uuid not in kept),
        split=tuple(split),
        ref_counts=tuple(count for count in counts if count[1] != count[2]),
        slots=_slot_moves(before.owners(), after.owners()),
        healed=tuple(healed),
    )


def _new_above(
    uuid: int, old: dict[int, NodeSnapshot], new: dict[int, NodeSnapshot]
) -> Iterator[int]:
    """The new nodes between a node and its nearest old ancestor, the lowest first.

    Splits have put them there. Told backwards in time, they are those that healing takes away: what
    is evicted is a leaf, so a parent that is gone while its child is there was not.
    """
    while (parent := new[uuid].parent) is not None and parent not in old:
        yield parent
        uuid = parent


def _slot_moves(before: dict[int, str], after: dict[int, str]) -> tuple[SlotMove, ...]:
    moves: dict[tuple[str, str], list[int]] = {}
    for slot in sorted(before.keys() & after.keys()):
        if before[slot] != after[slot]:
            moves.setdefault((before[slot], after[slot]), []).append(slot)
    return tuple(SlotMove(tuple(slots), *owners) for owners, slots in moves.items())
