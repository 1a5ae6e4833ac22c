"""A request: its token ids, and what it holds of the cache and the pool while it runs."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Hashable
from enum import StrEnum

from radixlab.cache import CacheHandle
from radixlab.errors import EmptyPrompt, InvalidArgument
from radixlab.tokens import TOKEN_BYTES, Namespace, TokenIds, encode


class RequestState(StrEnum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


class Request:
    """One prompt to be continued by up to `max_new_tokens` tokens.

    `prompt` is validated here, once, and kept as int32 bytes; see `radixlab.tokens.encode` for what
    it may be. Raises `EmptyPrompt`, `InvalidTokenId`, and `InvalidArgument` for fewer than one new
    token. Its prefix is shared only with requests of an equal `namespace`.

    While it runs, the manager keeps here what the request holds: `handle`, the locked prefix;
    `page_table`, one token slot for each position from 0 on that has one; and `computed_len`, how
    many positions have their K and V in the pool. Of those, `cache_hit_len` were found there.
    """

    _ids = itertools.count()

    def __init__(
        self,
        prompt: TokenIds,
        max_new_tokens: int = 1,
        *,
        request_id: Hashable = None,
        namespace: Namespace | None = None,
    ) -> None:
        self.prompt = encode(prompt)
        if not self.prompt:
            raise EmptyPrompt
        if max_new_tokens < 1:
            raise InvalidArgument("max_new_tokens", max_new_tokens, "1 or more")
        if namespace is not None and not isinstance(namespace, Namespace):
            raise InvalidArgument("namespace", namespace, "a Namespace or None")
        self.max_new_tokens = max_new_tokens
        self.request_id = next(self._ids) if request_id is None else request_id
        self.namespace = namespace
        self.output: array[int] = array("i")
        self.state = RequestState.WAITING
        self.handle: CacheHandle | None = None
        self.page_table: array[int] = array("i")
        self.cache_hit_len = 0
        self.computed_len = 0

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // TOKEN_BYTES

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return len(self.prompt) // TOKEN_BYTES + len(self.output)

    @property
    def max_len(self) -> int:
        """Positions whose K and V this request will ever need.

        The last token to be drawn is not one of them: nothing is computed after it.
        """
        return self.prompt_len + self.max_new_tokens - 1

    @property
    def tokens(self) -> bytes:
        """Prompt and output so far, as int32 bytes."""
        return self.prompt + self.output.tobytes() if self.output else self.prompt

    @property
    def is_done(self) -> bool:
        """Whether all tokens that were asked for have been drawn."""
        return len(self.output) >= self.max_new_tokens

    def __repr__(self) -> str:
        return (
            f"<Request {self.request_id}: {self.prompt_len} + {len(self.output)} tokens, "
            f"{self.state}>"
        )
