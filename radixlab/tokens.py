"""Token ids as `bytes`, four per id: the one form in which the core compares them.

Comparing two runs of ids is then one `bytes.startswith`, which is a memcmp: no copy, no loop. Ids
are converted and validated once, when a request is made; int32 `bytes` pass through as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from radixlab.errors import InvalidArgument, InvalidTokenId

TOKEN_BYTES = 4
_HIGH_BYTE = 3 if sys.byteorder == "little" else 0

TokenIds = Iterable[int] | bytes
"""Anything that `encode` takes: ints, `array`, numpy or torch vector, int32 `bytes`."""


def encode(token_ids: Any) -> bytes:
    """Token ids as native-endian int32 bytes.

    `bytes` are trusted, but for their length. Anything else is checked: `InvalidTokenId` names the
    first id that is no integer from 0 to 2**31 - 1 and its position.
    """
    if isinstance(token_ids, bytes):
        if len(token_ids) % TOKEN_BYTES:
            raise InvalidArgument("token_ids", f"{len(token_ids)} bytes", "whole int32 tokens")
        return token_ids
    if hasattr(token_ids, "tolist"):  # array, numpy, torch
        token_ids = token_ids.tolist()
    try:
        ids = token_ids if isinstance(token_ids, list) else list(token_ids)
    except TypeError:
        raise InvalidTokenId(token_ids) from None
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


def _first_invalid(ids: list[Any]) -> InvalidTokenId:
    for index, token_id in enumerate(ids):
        try:
            if array("i", [token_id])[0] < 0:
                return InvalidTokenId(token_id, index)
        except (TypeError, OverflowError):
            return InvalidTokenId(token_id, index)
    return InvalidTokenId(ids)
