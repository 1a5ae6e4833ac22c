"""Steps as frames for the player: pictures, numbers, words and source lines, as plain data.

Equal pictures, equal pieces of pictures and equal listings are kept once and pointed to by number:
a step that moves no slot costs a few hundred bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from radixlab.lifecycle import Step
from radixlab.request import RequestState
from radixlab.snapshot import Snapshot
from radixlab.viz.fold import fold
from radixlab.viz.marks import main_event, mark_nodes, with_removed
from radixlab.viz.poolsvg import draw_strips, pool_text, pool_title
from radixlab.viz.source import Listing, executed
from radixlab.viz.svg import Canvas
from radixlab.viz.treesvg import draw_branches
from radixlab.viz.treetext import tree_title
from radixlab.viz.words import Decode, count, show_slots, show_tokens

QUESTIONS = {
    "match": "How many of its tokens are cached, and at which slots?",
    "schedule": "Which request goes first?",
    "lock": "Which nodes are held now, and what is their ref_count?",
    "allocate": "How many slots does it need, and which ones does it get?",
    "prefill": "How many tokens must be computed?",
    "insert": "What joins the tree, and is anything copied?",
    "decode": "Where is the next token's KV written?",
    "unlock": "Which slots become free?",
    "evict": "Which leaf goes, and why not another?",
    "free": "Which slots return to the free list?",
}
"""What the player asks before it shows a step of this name."""

Predict = bool | Mapping[int | str, str]
"""Questions before steps: True for the house's own, or by step (1 is the first) or by step name."""

MAX_TOLD, MAX_NAMES = 6, 6
MAX_NODES = 9
"""A tree of more nodes is folded, so that a frame fits a page and stays legible."""


def make_frames(
    steps: Sequence[Step],
    *,
    start: Snapshot | None = None,
    predict: Predict = False,
    decode: Decode | None = None,
    max_nodes: int = MAX_NODES,
) -> dict[str, Any]:
    """What the player's JavaScript is given: `frames`, and what they share.

    `pictures` are lists of numbers of `parts`, to be joined by `picture`; `sources` are listings.
    `start` is the state before the first step: what it evicts can then be drawn, and a question
    before it has a picture.
    """
    trees = _draw_trees(steps, start, decode, max_nodes)
    strips = [draw_strips(step.snapshot, step.changes.slots) for step in steps]
    if start is not None:
        trees.append(draw_branches(fold(start.nodes, {}, max_nodes), {}, decode))
        strips.append(draw_strips(start))
    tree_size = _common_size(trees)
    pool_sizes = [_common_size(canvases) for canvases in zip(*strips, strict=True)]
    shared = _Shared()
    sources: dict[Listing, int] = {}
    frames: list[dict[str, Any]] = []
    before = start

    def pictures_of(state: Snapshot, tree: Canvas, strips: list[Canvas]) -> dict[str, Any]:
        title = tree_title(state.nodes)
        return _books(state) | {
            "tree": shared.add(tree.elements(title, size=(tree.width, tree_size[1]))),
            "pools": [
                shared.add(strip.elements(pool_title(state), size=size))
                for strip, size in zip(strips, pool_sizes, strict=True)
            ],
        }

    for step, tree, both in zip(steps, trees, strips, strict=False):
        frame = _words(step, before) | pictures_of(step.snapshot, tree, both)
        frame["question"] = _question(step, len(frames) + 1, predict)
        frame["code"] = _code(step, sources)
        frames.append(frame)
        before = step.snapshot
    first = None if start is None else pictures_of(start, trees[-1], strips[-1])
    listings = [
        {"name": s.name, "file": s.file, "lines": [list(line) for line in s.lines]} for s in sources
    ]
    pictures = [list(picture) for picture in shared.pictures]
    parts = list(shared.parts)
    widths = {"treeWidth": tree_size[0], "poolWidth": pool_sizes[0][0]}
    return widths | {
        "start": first,
        "frames": frames,
        "pictures": pictures,
        "parts": parts,
        "sources": listings,
    }


def picture(story: dict[str, Any], number: int) -> str:
    """One picture of a story, as SVG."""
    return "".join(story["parts"][part] for part in story["pictures"][number])


class _Shared:
    """Pictures and their pieces, each kept once, in the order in which they came."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}
        self.pictures: dict[tuple[int, ...], int] = {}

    def add(self, elements: Sequence[str]) -> int:
        numbers = tuple(self.parts.setdefault(each, len(self.parts)) for each in elements)
        return self.pictures.setdefault(numbers, len(self.pictures))


def _draw_trees(
    steps: Sequence[Step], start: Snapshot | None, decode: Decode | None, max_nodes: int
) -> list[Canvas]:
    canvases, before = [], start
    for step in steps:
        marks = mark_nodes(step, before)
        root = fold(with_removed(step, before), marks, max_nodes)
        canvases.append(draw_branches(root, marks, decode))
        before = step.snapshot
    return canvases


def _common_size(canvases: Sequence[Canvas]) -> tuple[float, float]:
    """One size for all frames, so that nothing jumps between two steps."""
    return max(c.width for c in canvases), max(c.height for c in canvases)


def _words(step: Step, before: Snapshot | None) -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "caption": step.caption,
        "event": main_event(step),
        "told": _told(step, before),
    }


def _books(state: Snapshot) -> dict[str, Any]:
    """The counters and the queues."""
    sizes = [state.free_size, state.evictable_size, state.protected_size, state.private_size]
    running = [r.request_id for r in state.requests if r.state == RequestState.RUNNING]
    return {"sizes": sizes, "waiting": _names(state.waiting), "running": _names(running)}


def _names(request_ids: Sequence[str]) -> str:
    """The first few of a queue, and how many more there are."""
    names = ", ".join(request_ids[:MAX_NAMES]) or "nobody"
    more = len(request_ids) - MAX_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _told(step: Step, before: Snapshot | None) -> str:
    """What the pictures mark, in words, for the transcript and for screen readers."""
    marks, parts = mark_nodes(step, before), []
    for node in with_removed(step, before):
        if (mark := marks.get(node.uuid)) is not None:
            parts.append(f"{show_tokens(node.key)} -> {show_slots(node.value)}: {mark.words}")
    shown, more = parts[:MAX_TOLD], len(parts) - MAX_TOLD
    shown += [f"{count(more, 'node')} more"] * (more > 0)
    tree = f"Tree: {'; '.join(shown)}. " if shown else ""
    table = pool_text(step.snapshot, step.changes.slots)
    return f"{tree}{table}. " if table else tree


def _question(step: Step, place: int, predict: Predict) -> str:
    if not predict:
        return ""
    if isinstance(predict, Mapping):
        return predict.get(place) or predict.get(step.name, "")
    question = QUESTIONS.get(step.name, "")
    return f"{step.request_id}: {question}" if question and step.request_id else question


def _code(step: Step, sources: dict[Listing, int]) -> list[tuple[int, int | None, str]]:
    """(number of the listing, marked line, event) of each function that is shown."""
    return [
        (sources.setdefault(marked.listing, len(sources)), marked.line, marked.event)
        for marked in executed(step)
    ]
