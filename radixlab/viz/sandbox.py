"""A cache to play with: prompts are typed, and each action is a step that can be undone.

This is the playground without its buttons. Every action goes through `CacheManager`, so what is
refused here is refused for the same reason in an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from radixlab.errors import InvalidArgument, RadixLabError
from radixlab.lifecycle import Recorder, Step
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.snapshot import Snapshot, diff
from radixlab.tokens import brief
from radixlab.viz.words import count, verb


class NobodyRuns(RadixLabError):
    """There is no request to be ended."""

    def __init__(self) -> None:
        super().__init__("no request runs: lock a prompt first")


class Tokenizer(Protocol):
    """Text to token ids and back; `radixlab.GPT2` is one."""

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""

    def decode(self, token_ids: list[int]) -> str:
        """The text of token ids."""


class Words:
    """Every new word gets the next number: the first is 1."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """One id for each word."""
        return [self.ids.setdefault(word, len(self.ids) + 1) for word in text.split()]

    def decode(self, token_ids: list[int]) -> str:
        """The words again; "?" for an id that was not given out."""
        words = {number: word for word, number in self.ids.items()}
        return " ".join(words.get(token_id, "?") for token_id in token_ids)


class Action(NamedTuple):
    """Something that was done, so that it can be done again."""

    name: str
    argument: Any

    def __str__(self) -> str:
        typed = self.name in ("match", "lock", "insert")
        return f"{self.name} ‘{self.argument}’" if typed else f"{self.name} {self.argument}"


class Sandbox:
    """A manager of `num_pages` pages, the requests typed so far, and every step since the start.

    Each action returns what it did in a sentence or two. `done` is the last action as one step,
    whatever steps it took; None at the start, and once it is undone. Raises what the manager
    raises; a refused action changes nothing and can't be undone.
    """

    def __init__(
        self, num_pages: int = 8, page_size: int = 1, tokenizer: Tokenizer | None = None
    ) -> None:
        self.num_pages, self.page_size = num_pages, page_size
        self.tokenizer: Tokenizer = Words() if tokenizer is None else tokenizer
        self.history: list[Action] = []
        self.done: Step | None
        self._start()

    def _start(self) -> None:
        self.manager = CacheManager(self.num_pages, self.page_size, checked=True)
        self.requests: list[Request] = []
        self.recorder = Recorder(self.manager, self.requests)
        self.recorder.requests = self.requests
        self.before, self.done = self.start, None

    @property
    def steps(self) -> list[Step]:
        """What has happened, one step for each thing that changed."""
        return self.recorder.steps

    @property
    def start(self) -> Snapshot:
        """The state before the first step: empty."""
        return self.recorder.start

    @property
    def state(self) -> Snapshot:
        """The state now."""
        return self.steps[-1].snapshot if self.steps else self.start

    @property
    def running(self) -> list[str]:
        """Ids of the requests that hold a lock."""
        return [str(request.request_id) for request in self.manager.running]

    def decode_one(self, token_id: int) -> str:
        """The text of one token id."""
        return self.tokenizer.decode([token_id])

    # --- actions --------------------------------------------------------------------------------
    def match(self, text: str) -> str:
        """How much of a prompt is cached? Holds nothing."""
        return self._do("match", text)

    def lock(self, text: str) -> str:
        """A new request: match and lock what is cached of its prompt."""
        return self._do("lock", text)

    def insert(self, text: str) -> str:
        """Allocate what is missing and insert the prompt, by a request that ends at once.

        If a request with this prompt runs, it does so, and stays.
        """
        return self._do("insert", text)

    def unlock(self, request_id: str) -> str:
        """End a request whose prompt was inserted: its prefix stays cached."""
        return self._do("unlock", request_id)

    def abort(self, request_id: str) -> str:
        """End a request at whatever point it is."""
        return self._do("abort", request_id)

    def evict(self, num_tokens: int) -> str:
        """Take leaves that nobody holds out of the tree, to free `num_tokens` slots or more."""
        return self._do("evict", num_tokens)

    def undo(self) -> str:
        """Take the last action back, by doing all others again."""
        if not self.history:
            raise InvalidArgument("undo", "no action", "called after at least one action")
        *again, last = self.history
        self._repeat(again)
        self.done = None
        return f"Undone: {last}."

    def _repeat(self, actions: list[Action]) -> None:
        """Start again, and do only these."""
        self.history = []
        self._start()
        for action in actions:
            self._do(*action)

    def _do(self, name: str, argument: Any) -> str:
        act: Callable[[Any], str] = getattr(self, f"_{name}")
        before, shown = self.state, (self.before, self.done)
        try:
            said = act(argument)
        except RadixLabError:  # after a match, say, that has cut an edge
            self._repeat(self.history)
            self.before, self.done = shown
            raise
        self.history.append(Action(name, argument))
        step = next(step for step in reversed(self.steps) if step.name == name)
        changes = diff(before, self.state)
        self.before = before
        self.done = replace(step, caption=said, changes=changes, snapshot=self.state)
        return said

    def _new_request(self, text: str) -> Request:
        return Request(self.tokenizer.encode(text), request_id=f"R{len(self.requests) + 1}")

    def _match(self, text: str) -> str:
        request = Request(self.tokenizer.encode(text))
        handle = self.manager.match(request)
        caption = _found(handle.cached_len, request.num_tokens, self.page_size)
        return self._record(1, self.manager.match, caption, node=handle.node)

    def _lock(self, text: str) -> str:
        return self._admit(self._new_request(text))

    def _admit(self, request: Request) -> str:
        if not self.manager.admit(request, self.manager.promised_size):
            raise self.manager.no_room_for(request)
        self.requests.append(request)
        assert request.handle is not None
        caption = (
            f"{request.request_id}: {_slots(request.page_table)} can't be evicted now; they open "
            "the page table."
            if request.page_table
            else f"{request.request_id}: nothing was found, so there is nothing to hold."
        )
        node = request.handle.node
        return self._record(3, self.manager.cache.lock, caption, request=request, node=node)

    def _insert(self, text: str) -> str:
        ids = Request(self.tokenizer.encode(text)).prompt
        waiting = [r for r in self.manager.running if r.prompt == ids and not r.output]
        request = waiting[0] if waiting else self._new_request(text)
        if not waiting:
            self._admit(request)
        shortage = self.manager.shortage(request, request.num_tokens)
        room = 0 < shortage <= self.manager.cache.evictable_size  # else `allocate` says why not
        said = f"{self._evict(shortage)} " if room else ""
        slots = self.manager.allocate(request, request.num_tokens)
        if slots:
            leave = verb(len(slots), "leaves", "leave")
            caption = f"{request.request_id}: {_slots(slots)} {leave} the free list."
            self._record(4, self.manager.allocate, caption, request=request)
        said += self._compute(request)
        if waiting:
            return f"{said} It runs on, and holds what is cached of it until it is unlocked."
        self._unlock(str(request.request_id))
        return f"{said} It has ended and holds nothing; what is cached of it stays."

    def _compute(self, request: Request) -> str:
        """Insert what has its slots, as if computed."""
        assert request.handle is not None
        held, total = request.handle.cached_len, request.num_tokens
        own = request.page_table[held:total]
        request.computed_len = total
        found = self.manager.cache_request(request).cached_len
        request.output.append(0)
        cached = request.handle.cached_len
        caption = (
            f"{request.request_id}: {count(cached, 'token')} can be found by all now; "
            f"{found} {verb(found, 'was', 'were')} there before."
        )
        insert, node = self.manager.cache.insert_prefix, request.handle.node
        self._record(5, insert, caption, name="insert", request=request, node=node)
        said = f"{request.request_id}: {held} of {count(total, 'token')} found, {len(own)} computed"
        said += f" into {_slots(own)}."
        if found > held:
            twice = own[: found - held]
            are, their = (verb(len(twice), *forms) for forms in (("is", "are"), ("its", "their")))
            tokens = verb(len(twice), "token", "tokens")
            said += f" {_slots(twice)} {are} freed at once: the tree has {their} {tokens}."
        if cached < total:
            said += f" Only whole pages are cached: {count(cached, 'token')}."
        return said

    def _unlock(self, request_id: str) -> str:
        request = self._find(request_id)
        if not request.output:
            raise InvalidArgument(
                "request", request_id, "inserted first; abort ends one that is not"
            )
        assert request.handle is not None
        node, cached = request.handle.node, request.handle.cached_len
        private = request.page_table[cached:]
        self.manager.release(request)
        stays = "its prefix stays cached" if cached else "it fills no page, so nothing stays cached"
        caption = f"{request_id}: {stays}. It has ended and holds nothing."
        if private:
            caption += f" {_slots(private)} {verb(len(private), 'is', 'are')} free again."
        return self._record(6, self.manager.cache.unlock, caption, request=request, node=node)

    def _abort(self, request_id: str) -> str:
        request = self._find(request_id)
        assert request.handle is not None
        private = len(request.page_table) - request.handle.cached_len
        self.manager.release(request)
        caption = (
            f"{request_id}: aborted; its lock and {count(private, 'private slot')} are given back."
        )
        return self._record(7, self.manager.release, caption, name="abort", request=request)

    def _evict(self, num_tokens: int) -> str:
        evictable = self.manager.cache.evictable_size
        if not 1 <= num_tokens <= evictable:
            allowed = f"from 1 to the {evictable} that {verb(evictable, 'is', 'are')} evictable"
            raise InvalidArgument("slots to evict", num_tokens, allowed)
        slots = self.manager.evict(num_tokens)
        caption = f"Unheld leaves go; {_slots(slots)} {verb(len(slots), 'is', 'are')} free again."
        return self._record(7, self.manager.cache.evict, caption)

    def _find(self, request_id: str) -> Request:
        for request in self.manager.running:
            if str(request.request_id) == request_id:
                return request
        if not self.running:
            raise NobodyRuns
        raise InvalidArgument("request", request_id, f"one that runs ({', '.join(self.running)})")

    def _record(self, number: int, function: Callable[..., Any], caption: str, **more: Any) -> str:
        return self.recorder.record(number, function, caption, **more).caption


def _found(cached_len: int, num_tokens: int, page_size: int) -> str:
    """What a match says: the last token is never matched, and pages only as a whole."""
    if not cached_len:
        if num_tokens == 1:
            return "Its only token is its last, and the last is always computed."
        if page_size > 1:
            return "No whole page before its last token is cached."
        return "Nothing of it is cached."
    last = ", the last one left out" if cached_len == num_tokens - 1 else ""
    are = verb(cached_len, "is", "are")
    return f"{cached_len} of {num_tokens} tokens {are} cached{last}. Found is not yet held."


def _slots(slots: Sequence[int]) -> str:
    return brief(slots, "p")


def say(error: RadixLabError) -> str:
    """An error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
