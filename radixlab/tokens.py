"""Token ids as `bytes`, four per id: the one form in which the core compares them.

Comparing two runs of ids is then one `bytes.startswith`, which is a memcmp: no copy, no loop. Ids
are converted and validated once, when a request is made; int32 `bytes` pass through as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from radixlab.errors import InvalidArgument, InvalidTokenId

TOKEN_BYTES: Final = 4
_HIGH_BYTE: Final = 3 if sys.byteorder == "little" else 0


@dataclass(frozen=True, slots=True)
class Namespace:
    """What a prefix may be shared within: one adapter, one salt, one tenant.

    Equal token ids under different namespaces never share KV: another adapter computes other K and
    V, and a salt keeps the time to the first token from telling one tenant what another has asked.
    Each part is compared on its own, so that no two of them can run together into a third.
    """

    adapter: str | None = None
    salt: str | None = None
    tenant: str | None = None

    def __post_init__(self) -> None:
        for name, part in (("adapter", self.adapter), ("salt", self.salt), ("tenant", self.tenant)):
            if part is not None and not isinstance(part, str):
                raise InvalidArgument(name, part, "a string or None")


TokenIds = Iterable[int] | bytes
"""Anything that `encode` takes: ints, `array`, numpy or torch vector, int32 `bytes`."""


def encode(token_ids: Any) -> bytes:
    """Token ids as native-endian int32 bytes.

    `bytes` are trusted, but for their length. Anything else is checked: `InvalidTokenId` names the
    first id that is no integer from 0 to 2**31 - 1 and its position.
    """
    if isinstance(token_ids, (bytes, bytearray)):
        if len(token_ids) % TOKEN_BYTES:
            raise InvalidArgument("token_ids", f"{len(token_ids)} bytes", "whole int32 tokens")
        return token_ids if type(token_ids) is bytes else bytes(token_ids)
    if hasattr(token_ids, "tolist"):  # array, numpy, torch
        token_ids = token_ids.tolist()
    try:
        ids = token_ids if isinstance(token_ids, list) else list(token_ids)
    except TypeError:
        allowed = f"a sequence of token ids, not one {type(token_ids).__name__}"
        raise InvalidArgument("token_ids", token_ids, allowed) from None
    if "bool" in [kind.__name__ for kind in set(map(type, ids))]:  # a mask, Python's or numpy's
        raise _first_invalid(ids)
    try:
        key = array("i", ids).tobytes()
    except (TypeError, OverflowError):
        raise _first_invalid(ids) from None
    if not key[_HIGH_BYTE::TOKEN_BYTES].isascii():  # a negative id has its topmost bit set
        raise _first_invalid(ids)
    return key


def decode(key: bytes) -> list[int]:
    """The token ids of an encoded key."""
    return memoryview(key).cast("i").tolist()


def brief(numbers: Sequence[int], prefix: str = "", most: int = 8) -> str:
    """A list in brackets for people: the middle of a long one gives way to its length.

    `prefix` "p" is how the chapter writes token slots: p0, p1, ...
    """
    items = [f"{prefix}{number}" for number in numbers]
    if len(items) > most:
        items = [*items[: most // 2], f"... {len(items)} in all ...", *items[-2:]]
    return f"[{', '.join(items)}]"


def _first_invalid(ids: list[Any]) -> InvalidTokenId:
    for index, token_id in enumerate(ids):
        try:
            if type(token_id).__name__ == "bool" or array("i", [token_id])[0] < 0:
                return InvalidTokenId(token_id, index)
        except (TypeError, OverflowError):
            return InvalidTokenId(token_id, index)
    return InvalidTokenId(ids)
