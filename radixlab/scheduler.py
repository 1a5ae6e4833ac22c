"""Who runs next, and the contract with whatever computes (chapter, section 4.2, step 2)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import NamedTuple, Protocol

from radixlab.cache import CacheHandle
from radixlab.errors import InvalidArgument, RadixLabError
from radixlab.manager import CacheManager
from radixlab.request import Request, RequestState
from radixlab.tokens import TOKEN_BYTES
from radixlab.tree import RadixTree, RadixTreeNode


class Matched(NamedTuple):
    """A waiting request and the cached prefix that was found for it.

    `waited`: tokens that were prefilled since it arrived. `deprioritised`: see `mark_repeated`.
    """

    request: Request
    handle: CacheHandle
    waited: int = 0
    deprioritised: bool = False

    @property
    def uncached_len(self) -> int:
        """Tokens of the prompt that are still to be computed."""
        return self.request.num_tokens - self.handle.cached_len


PrefixUnaware = Callable[[Sequence[Request], Collection[Request]], list[Request]]
"""A policy that looks at requests alone: (waiting, in order of arrival; running) -> order."""


class PrefixAware:
    """Makes a policy of a function that sorts by what was found in the cache (a decorator)."""

    __name__: str

    def __init__(self, sort: Callable[[Sequence[Matched]], list[Matched]]) -> None:
        self._sort = sort
        update_wrapper(self, sort)

    def __call__(self, waiting: Sequence[Matched]) -> list[Matched]:
        """The waiting requests, given in order of arrival, in the order in which to run."""
        return self._sort(waiting)


SchedulePolicy = PrefixUnaware | PrefixAware
"""All of them, by name: `radixlab.policies`."""


def fcfs(waiting: Sequence[Request], running: Collection[Request] = ()) -> list[Request]:
    """First come, first served: the order of arrival, whatever is cached (mini-SGLang).

    With `in_batch_check` on, as it is by default, a request still lets one of the same prefix go
    first and waits a pass.
    """
    return list(waiting)


@PrefixAware
def shortest_prefill_first(waiting: Sequence[Matched]) -> list[Matched]:
    """The shortest uncached suffix first; ties in order of arrival (SGLang's schedule_policy).

    Whoever is deprioritised comes last, and a length counts as 1 at least. Both is SGLang's key:
    here the `Scheduler` lets the deprioritised wait, and a match leaves a token to compute.
    """
    return sorted(waiting, key=lambda each: (each.deprioritised, max(1, each.uncached_len)))


class Chunk(NamedTuple):
    """Work for one pass: compute positions `start .. end - 1` of a request.

    Everything before `start` is in the pool already; the page table has a slot for every position.
    """

    request: Request
    start: int
    end: int


class ModelRunner(Protocol):
    """Computes K and V at the slots of the page tables and draws tokens; it owns no slots.

    Both calls return one token id for each item, drawn from the logits of its last position. After
    a chunk that ends before the prompt does, that token means nothing.
    """

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Compute the uncached suffix of each prompt."""

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Compute the last drawn token of each request, at position `num_tokens - 1`."""


class NullRunner:
    """Computes nothing, draws token 0 and counts: it turns an engine into a simulator."""

    def __init__(self) -> None:
        self.prefilled_tokens = 0
        self.decoded_tokens = 0

    def prefill(self, chunks: Sequence[Chunk]) -> Sequence[int]:
        """Count the tokens that a model would have to compute."""
        self.prefilled_tokens += sum(end - start for _, start, end in chunks)
        return [0] * len(chunks)

    def decode(self, requests: Sequence[Request]) -> Sequence[int]:
        """Count one token for each request."""
        self.decoded_tokens += len(requests)
        return [0] * len(requests)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How much runs at once, in tokens and requests.

    `prefill_budget`: tokens that one prefill pass may compute; a longer prompt is cut into chunks.
    `max_running`: requests that run over the manager at once, started by this engine or another.
    `max_matched`: of a longer queue only the first are considered, and a prefix-aware policy gives
    way to fcfs (SGLang: lpm and hrrn, above 128). `in_batch_check`, `in_batch_defer`: see
    `mark_repeated`; who is marked waits, where SGLang only puts him last, and that under
    prefix-aware policies but dfs-weight. Under steady load who waits may wait long: where that
    matters, switch it off. Without `cache` nothing is inserted, nothing found, and the order that
    of arrival unless the policy is prefix-unaware.
    """

    prefill_budget: int = 4096
    max_running: int = 256
    max_matched: int = 128
    in_batch_check: int | None = None
    in_batch_defer: int = 32
    cache: bool = True

    def __post_init__(self) -> None:
        for name in ("prefill_budget", "max_running", "max_matched", "in_batch_defer"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise InvalidArgument(name, number, "an integer, 1 or more")


def mark_repeated(
    waiting: Sequence[Matched], settings: SchedulerSettings, started: Sequence[Request] = ()
) -> list[Matched]:
    """An in-batch prefix check, after SGLang's: mark whom this pass helps, and who should wait.

    Insertion comes after the forward pass, so requests that arrive together with one prefix don't
    find each other in the cache, and each would compute it. So a tree of this pass alone is filled
    in order, with the `started` prompts first; whoever would find there at least `in_batch_defer`
    tokens more than in the cache is `deprioritised`: in the next pass they are cached. Checked are
    requests with at most `in_batch_check` tokens cached (None: all, -1: nobody; SGLang: 32).
    """
    if settings.in_batch_check == -1 or not waiting:
        return list(waiting)
    tree = RadixTree(waiting[0].handle.cache.page_size)
    for request in started:
        _insert(tree, request, tree.root)
    marked = []
    for matched in waiting:
        request, found = matched.request, matched.handle.cached_len
        if settings.in_batch_check is None or found <= settings.in_batch_check:
            limit = len(request.tokens) - TOKEN_BYTES
            ahead = tree.walk(request.tokens, limit, tree.root, request.namespace)
            if ahead.path_len - found >= settings.in_batch_defer:
                matched = matched._replace(deprioritised=True)
            else:
                _insert(tree, request, ahead)
        marked.append(matched)
    return marked


def _insert(tree: RadixTree, request: Request, start: RadixTreeNode) -> None:
    key = request.tokens[: len(request.tokens) // tree.page_bytes * tree.page_bytes]
    node = tree.walk(key, len(key), start, request.namespace)
    if node.end < len(key):
        slots = array("i", bytes(len(key) - node.end))  # a tree wants slots; nobody reads these
        tree.add_leaf(node, key[node.end :], slots, request.namespace)


class Scheduler:
    """The waiting queue, and what of it is computed in the next prefill pass.

    The rules are those of mini-SGLang's PrefillAdder: a request is admitted when all it will ever
    need can be had beside what those running may still ask for, so nobody is ever thrown out again;
    the first that does not fit ends the pass; and at most one request, `chunked`, is in the middle
    of its prompt: it goes on first in the next pass, and neither decodes nor draws until then.

    Once nobody could start because the first did not fit (`refused`), nobody is matched or sorted
    again before something has changed, by anybody's hand: the room (what can be had less what is
    promised), the queue, or the cache by a match, an insertion or an unlock. So those who wait add
    nothing to what decode passes take. SGLang's `batch_is_full` knows only that somebody has ended.
    Raises `InvalidArgument` for a policy that is none.
    """

    def __init__(
        self,
        manager: CacheManager,
        policy: SchedulePolicy = fcfs,
        settings: SchedulerSettings | None = None,
    ) -> None:
        if not callable(policy):
            raise InvalidArgument("policy", policy, "a function (`make_policy` knows their names)")
        self.manager, self.policy = manager, policy
        self.settings = settings or SchedulerSettings()
        self.waiting: dict[Request, int] = {}  # and how much had been prefilled when it arrived
        self.chunked: Request | None = None
        self.prefilled_tokens = 0
        self.refused: Request | None = None
        self._seen = (0, 0)  # the state in which that was

    def add(self, request: Request) -> None:
        """Let a request wait."""
        self.waiting[request], self.refused = self.prefilled_tokens, None

    def forget_ended(self) -> None:
        """Drop what has ended, by whatever hand, from the queue and the middle of its prompt."""
        for request in [r for r in self.waiting if r.state is not RequestState.WAITING]:
            del self.waiting[request]
            self.refused = None
        if self.chunked is not None and self.chunked.state is not RequestState.RUNNING:
            self.chunked = None

    def next_chunks(self) -> list[Chunk]:
        """Admit what fits, give it slots, and return the pass: none if nothing can be prefilled.

        The policy, which may be anybody's, is asked before anything changes.
        """
        manager, running = self.manager, self.manager.running
        budget, most = self.settings.prefill_budget, self.settings.max_running
        if self.refused is not None and self._seen == self._state():
            return []
        self.refused = None
        started = [] if self.chunked is None else [self.chunked]
        left = sum(request.num_tokens - request.computed_len for request in started)
        ordered = self._order(started) if left < budget and len(running) < most else []
        chunks = [self._cut(request, budget) for request in started]
        budget -= sum(chunk.end - chunk.start for chunk in chunks)
        reserved = manager.promised_size if ordered else 0
        # a policy may name somebody twice, or end him
        for request in [r for r in dict.fromkeys(ordered) if r.state is RequestState.WAITING]:
            if not budget or len(running) >= most:
                break
            if not manager.admit(request, reserved, match=self.settings.cache):
                self.refused, self._seen = None if chunks else request, self._state()
                break
            del self.waiting[request]
            chunks.append(chunk := self._cut(request, budget))
            budget -= chunk.end - chunk.start
            reserved += manager.remaining_size(request)
        return chunks

    def refusal(self) -> RadixLabError:
        """Why `next_chunks` has started nobody, though requests wait; next time all are asked."""
        request, self.refused = self.refused, None
        if request is not None:
            return self.manager.no_room_for(request)
        running, most = len(self.manager.running), self.settings.max_running
        full = InvalidArgument("max_running", most, f"above the {running} that run elsewhere")
        silent = InvalidArgument("policy", self.policy, "one that names somebody who waits")
        return full if running >= most else silent

    def _state(self) -> tuple[int, int]:
        """What decides who of one queue fits: the cache's content, and the room."""
        return self.manager.cache.tick, self.manager.available_size - self.manager.promised_size

    def _order(self, started: Sequence[Request]) -> list[Request]:
        """Match those who wait and sort them, without those who had better wait for others."""
        settings, policy, waiting = self.settings, self.policy, list(self.waiting)
        if not isinstance(policy, PrefixAware):
            waiting = [r for r in policy(waiting, self.manager.running) if r in self.waiting]
        if not settings.cache:
            return waiting
        now, first = self.prefilled_tokens, waiting[: settings.max_matched]
        matched = [Matched(r, self.manager.match(r), now - self.waiting[r]) for r in first]
        matched = mark_repeated(matched, settings, started)
        if isinstance(policy, PrefixAware) and len(waiting) <= settings.max_matched:
            matched = policy(matched)
        return [each.request for each in matched if not each.deprioritised]

    def _cut(self, request: Request, budget: int) -> Chunk:
        """As much of the request as the budget allows, with slots for it."""
        start = request.computed_len
        end = min(start + budget, request.num_tokens)
        self.manager.allocate(request, end)
        self.prefilled_tokens += end - start
        self.chunked = request if end < request.num_tokens else None
        return Chunk(request, start, end)
