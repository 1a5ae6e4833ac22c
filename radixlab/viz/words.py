"""Token ids, slots and nodes in few words, the same in every picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape as _escape

from radixlab.snapshot import NodeSnapshot

Decode = Callable[[int], str]
"""The text of one token id, as a tokenizer tells it."""

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no character for."""

MAX_SHOWN = 6
"""An edge of more tokens than this is shortened in the middle."""


def shorten(items: Sequence[str], most: int = MAX_SHOWN) -> str:
    """A list in brackets; the middle of a long one gives way to three dots."""
    if len(items) > most:
        items = [*items[: most - 3], "…", *items[-2:]]
    return f"[{', '.join(items)}]"


def show_tokens(key: Sequence[int], decode: Decode | None = None, most: int = MAX_SHOWN) -> str:
    """The token ids of an edge, or their text pieces in quotes; a long edge with its length."""
    items = [str(t) for t in key] if decode is None else [_piece(decode(t)) for t in key]
    text = shorten(items, most)
    return f"{text} {len(key)} tokens" if len(key) > most else text


def show_slots(slots: Sequence[int], most: int = MAX_SHOWN) -> str:
    """Token slots the way the chapter writes them: [p0, p1]."""
    return shorten([f"p{slot}" for slot in slots], most)


def show_use(node: NodeSnapshot) -> str:
    """How many hold the node, and the logical time of its last use."""
    return f"ref_count {node.ref_count}, used at {node.timestamp}"


def count(number: int, noun: str) -> str:
    """A number and what it counts: 1 token, 2 tokens."""
    return f"{number} {noun}{'s' * (number != 1)}"


def verb(number: int, one: str, many: str) -> str:
    """The form of a verb that goes with a number: 1 slot is free, 2 slots are."""
    return one if number == 1 else many


def escape(text: str) -> str:
    """Text that may stand in HTML and SVG, within attributes too."""
    return _escape(NO_XML.sub("\ufffd", text), quote=True)


def _piece(text: str) -> str:
    return f"‘{text.replace(chr(10), '↵')}’"
