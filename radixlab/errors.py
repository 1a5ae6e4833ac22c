"""Every way the library says no, with the numbers that explain it.

A refused call changes nothing: the state after an error is the state before it. Errors about the
caller's input are also `ValueError`s. The numbers of a message are fields of the exception too.
"""

from __future__ import annotations


class RadixLabError(Exception):
    """Base class of all errors that radixlab raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Made again without its `__init__`, which takes numbers and not the finished message."""
        return type(self).__new__, (type(self), *self.args), getattr(self, "__dict__", None)


class EmptyPrompt(RadixLabError, ValueError):
    """A request needs at least one token: without one there is nothing to take logits from."""

    def __init__(self) -> None:
        super().__init__("the prompt has no tokens; at least 1 is needed")


class InvalidTokenId(RadixLabError, ValueError):
    """A token id that is no integer from 0 to 2**31 - 1; `index` is its place in the sequence."""

    def __init__(self, token_id: object, index: int | None = None) -> None:
        self.token_id, self.index = token_id, index
        where = "" if index is None else f" at position {index}"
        super().__init__(f"token id {token_id!r}{where} is not an integer from 0 to 2147483647")


class LengthMismatch(RadixLabError, ValueError):
    """A key and its value must have one token slot for each token id."""

    def __init__(self, tokens: int, slots: int) -> None:
        self.tokens, self.slots = tokens, slots
        super().__init__(f"{tokens} token ids need {tokens} token slots, got {slots}")


class InvalidPageSize(RadixLabError, ValueError):
    """A page holds at least one token; a pool holds whole pages, and fewer than 2**31 slots."""

    def __init__(self, page_size: object, pages: object = None) -> None:
        self.page_size, self.pages = page_size, pages
        page = f"page_size must be a positive integer, got {page_size!r}"
        pool = f"a pool needs at least 1 page of {page_size!r} tokens and fewer than 2**31 slots"
        super().__init__(page if pages is None else f"{pool}, got {pages!r} pages")


class InvalidArgument(RadixLabError, ValueError):
    """Any other argument outside its range: `name`, what was asked (`got`), what is allowed."""

    def __init__(self, name: str, got: object, allowed: str) -> None:
        self.name, self.got, self.allowed = name, got, allowed
        super().__init__(f"{name} must be {allowed}, got {got!r}")


class NotLocked(RadixLabError):
    """Unlocking, or using as a held prefix, a handle that holds no lock."""

    def __init__(self, action: str, cached_len: int) -> None:
        self.action, self.cached_len = action, cached_len
        super().__init__(f"cannot {action}: the handle of {cached_len} tokens holds no lock")


class AlreadyLocked(RadixLabError):
    """A handle holds at most one lock: match again to get another handle."""

    def __init__(self, cached_len: int) -> None:
        self.cached_len = cached_len
        super().__init__(f"the handle of {cached_len} tokens is locked already; match again")


class StaleHandle(RadixLabError):
    """The matched prefix was evicted before it was locked: matched is not yet held.

    Or its last node has become part of a longer one, when a split was undone.
    """

    def __init__(self, cached_len: int) -> None:
        self.cached_len = cached_len
        super().__init__(f"the matched prefix of {cached_len} tokens was evicted; match again")


class StillLocked(RadixLabError):
    """The cache can't be cleared while somebody holds a prefix."""

    def __init__(self, protected: int) -> None:
        self.protected = protected
        super().__init__(f"cannot clear the cache: {protected} tokens are held by running requests")


class ForeignHandle(RadixLabError, ValueError):
    """The handle was made by another cache."""

    def __init__(self, cached_len: int) -> None:
        self.cached_len = cached_len
        super().__init__(f"the handle of {cached_len} tokens belongs to another cache")


class WrongState(RadixLabError):
    """A request was asked for a step that does not follow from the state it is in."""

    def __init__(self, action: str, request_id: object, state: str, needed: str) -> None:
        self.action, self.request_id, self.state, self.needed = action, request_id, state, needed
        what = f"cannot {action} request {request_id}"
        super().__init__(f"{what}: it is {state}, and must be {needed}")


class DoubleFree(RadixLabError):
    """Slots given back twice, or by somebody who does not own them."""

    def __init__(self, what: str, asked: int, held: int) -> None:
        self.what, self.asked, self.held = what, asked, held
        super().__init__(f"double free of {what}: asked to free {asked} slots, {held} are held")


class PoolExhausted(RadixLabError):
    """More slots asked for than can be had: those `free` and `evictable`, less those `promised`.

    Promised is what requests that run will need and don't have yet.
    """

    def __init__(self, asked: int, free: int | None, evictable: int = 0, promised: int = 0) -> None:
        self.asked, self.free, self.evictable, self.promised = asked, free, evictable, promised
        there = f"{evictable} are" if free is None else f"{free} are free and {evictable}"
        theirs = f", {promised} of them promised to running requests" if promised else ""
        super().__init__(f"asked for {asked} slots; {there} evictable{theirs}")


class RequestTooLong(RadixLabError, ValueError):
    """A request that could not run even alone: `needed` of the `limit` that `what` has.

    A pool has slots, a model's context positions.
    """

    def __init__(self, request_id: object, needed: int, limit: int, what: str = "pool") -> None:
        self.request_id, self.needed, self.limit, self.what = request_id, needed, limit, what
        unit = "positions" if what == "context" else "slots"
        super().__init__(f"request {request_id} needs {needed} {unit}; the {what} has {limit}")
