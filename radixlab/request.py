"""A request: its token ids, and what it holds of the cache and the pool while it runs."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from radixlab.cache import CacheHandle
from radixlab.errors import EmptyPrompt, InvalidArgument
from radixlab.tokens import TOKEN_BYTES, Namespace, TokenIds, decode, encode


class RequestState(StrEnum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


WAITING: Final = RequestState.WAITING
RUNNING: Final = RequestState.RUNNING
FINISHED: Final = RequestState.FINISHED
ABORTED: Final = RequestState.ABORTED


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn: the logits by `temperature`, of them the likeliest `top_p` in all.

    Draw number i of a request depends on its logits, `seed` and i alone, so that whoever shares
    the batch changes nothing. Without a Sampling a request is greedy. Raises `InvalidArgument`.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            allowed = "a number above 0 (without a Sampling a request is greedy)"
            raise InvalidArgument("temperature", self.temperature, allowed)
        if not 0 < self.top_p <= 1:
            raise InvalidArgument("top_p", self.top_p, "above 0 and at most 1")
        if not isinstance(self.seed, int):
            raise InvalidArgument("seed", self.seed, "an integer")


NO_TOKENS: Final[frozenset[int]] = frozenset()


class Request:
    """One prompt to be continued by up to `max_new_tokens` tokens.

    `prompt` is validated here, once, and kept as int32 bytes; see `radixlab.tokens.encode` for what
    it may be. Raises `EmptyPrompt`, `InvalidTokenId`, and `InvalidArgument` for fewer than one new
    token. Only requests of an equal `namespace` share its prefix. It ends early when it has
    drawn one of `stop_token_ids` (and keeps it), and draws as `sampling` says, without it greedily.
    A higher `priority` is worth more wherever priorities count (`radixlab.policies`, eviction
    strategy `priority`); requests of one `routing_key` want to run together.

    While it runs, the manager keeps here what the request holds: `handle`, the locked prefix;
    `page_table`, one token slot for each position from 0 on that has one; and `computed_len`, how
    many positions have their K and V in the pool. Of those, `cache_hit_len` were found there.
    """

    _ids: ClassVar[Iterator[int]] = itertools.count()

    def __init__(
        self,
        prompt: TokenIds,
        max_new_tokens: int = 1,
        *,
        request_id: Hashable = None,
        namespace: Namespace | None = None,
        stop_token_ids: Iterable[int] = NO_TOKENS,
        sampling: Sampling | None = None,
        priority: int = 0,
        routing_key: str = "",
    ) -> None:
        self.prompt = encode(prompt)
        if not self.prompt:
            raise EmptyPrompt
        if type(max_new_tokens) is not int or max_new_tokens < 1:
            raise InvalidArgument("max_new_tokens", max_new_tokens, "an integer, 1 or more")
        if namespace is not None and not isinstance(namespace, Namespace):
            raise InvalidArgument("namespace", namespace, "a Namespace or None")
        if type(priority) is not int:
            raise InvalidArgument("priority", priority, "an integer")
        if not isinstance(routing_key, str):
            raise InvalidArgument("routing_key", routing_key, "a string")
        if sampling is not None and not isinstance(sampling, Sampling):
            raise InvalidArgument("sampling", sampling, "a Sampling, or None, which is greedy")
        self.prompt_len = len(self.prompt) // TOKEN_BYTES
        """Tokens of the prompt."""
        self.max_new_tokens = max_new_tokens
        self.max_len = self.prompt_len + max_new_tokens - 1
        """Positions whose K and V this request will ever need.

        The last token to be drawn is not one of them: nothing is computed after it.
        """
        self.stop_token_ids = NO_TOKENS
        if stop_token_ids is not NO_TOKENS:
            self.stop_token_ids = frozenset(decode(encode(stop_token_ids)))
        self.sampling, self.priority, self.routing_key = sampling, priority, routing_key
        self.request_id = next(Request._ids) if request_id is None else request_id
        self.namespace, self.state = namespace, WAITING
        self.output: array[int] = array("i")
        self.handle: CacheHandle | None = None
        self.page_table: array[int] = array("i")
        self.cache_hit_len = self.computed_len = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt_len + len(self.output)

    @property
    def tokens(self) -> bytes:
        """Prompt and output so far, as int32 bytes."""
        return self.prompt + self.output.tobytes() if self.output else self.prompt

    @property
    def is_done(self) -> bool:
        """Whether all tokens that were asked for have been drawn, or a stop token."""
        output, stop = self.output, self.stop_token_ids
        return len(output) >= self.max_new_tokens or (len(output) > 0 and output[-1] in stop)

    def __repr__(self) -> str:
        tokens = f"{self.prompt_len} + {len(self.output)} tokens"
        return f"<Request {self.request_id}: {tokens}, {self.state}>"
