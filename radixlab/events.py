"""What a cache tells others: which pages it has stored and removed, by hash.

A router that sends requests to the server which has their prefix needs no slots and no tree, only
to know which pages exist. As in SGLang and vLLM, a page's hash covers its tokens and the hash of
the page before it, so that one hash stands for a whole prefix. SHA-256, since a router that took
two prefixes for one would serve the wrong KV.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from radixlab.tokens import TOKEN_BYTES, Namespace


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Pages that were added after the page `parent_hash` (None: at the start of a prompt)."""

    block_hashes: tuple[bytes, ...]
    parent_hash: bytes | None
    token_ids: tuple[int, ...]
    page_size: int
    namespace: Namespace | None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Pages that are gone."""

    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is cached any more."""


CacheEvent = BlockStored | BlockRemoved | AllBlocksCleared
Observer = Callable[[CacheEvent], object]
"""Called after each change of the content, never for a split or a match.

It must not raise: its error would take the place of the call's answer, evicted slots for example.
An event hashes its whole path, so it costs time in proportion to the path's length.
"""


def page_hashes(key: bytes, page_size: int, namespace: Namespace | None = None) -> list[bytes]:
    """The hash of each whole page of a key: SHA-256 of the hash before it and the page's tokens.

    The chain starts from the hash of the namespace's name, so that equal tokens in two namespaces
    share no hash, and no page can be taken for a namespace: every page's text begins with a hash.
    """
    page_bytes = page_size * TOKEN_BYTES
    previous = hashlib.sha256(f"namespace {namespace!r}".encode()).digest()
    hashes = []
    for start in range(0, len(key) - page_bytes + 1, page_bytes):
        previous = hashlib.sha256(previous + key[start : start + page_bytes]).digest()
        hashes.append(previous)
    return hashes
