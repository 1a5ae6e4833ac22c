"""A radix tree as a small SVG, laid out here: for the step player, where no Graphviz can run.

The same marks as in the DOT pictures: colour, border and word.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from radixlab.snapshot import NodeSnapshot
from radixlab.viz import palette
from radixlab.viz.fold import Branch, Stub
from radixlab.viz.marks import Mark, node_state
from radixlab.viz.svg import CHAR, Canvas, number
from radixlab.viz.treetext import tree_told
from radixlab.viz.words import Decode, count, show_slots, show_tokens

LINE, GAP_X, GAP_Y, PAD = 16, 14, 26, 10
WORDS = 6.4
"""Width of a character that is not monospace, on average."""
MOST = 5
"""Tokens on a card; a longer edge is shortened."""


@dataclass(slots=True)
class Card:
    """A box with lines of text as (words, class), its children, and the place it gets."""

    lines: list[tuple[str, str]]
    css: str
    event: str = ""
    children: list[Card] = field(default_factory=list)
    width: float = 0
    span: float = 0
    height: float = 0


def draw_branches(root: Branch, marks: dict[int, Mark], decode: Decode | None = None) -> Canvas:
    """The tree below `root`, growing downwards, each parent above the middle of its children."""
    canvas = draw_cards(_card(root, marks, decode))
    canvas.desc = tree_told(root, marks, decode)
    return canvas


def draw_cards(root: Card) -> Canvas:
    """A card and all below it; also for trees that are not the library's own."""
    _measure(root)
    canvas = Canvas(css="rl-svg mid")
    _place(canvas, root, 2, 2)
    canvas.reach(canvas.width + 2, canvas.height + 2)
    return canvas


def _card(branch: Branch, marks: dict[int, Mark], decode: Decode | None) -> Card:
    node = branch.node
    if node.parent is None:
        card = Card([("root", "muted")], "box root")
    else:
        mark = marks.get(node.uuid)
        event = mark.event if mark else ""
        css = f"box {event or node_state(node)}"
        card = Card(_lines(node, mark, decode), css, event)
    card.children = [_card(child, marks, decode) for child in branch.children]
    if branch.stub is not None:
        card.children.append(_stub(branch.stub))
    return card


def _lines(node: NodeSnapshot, mark: Mark | None, decode: Decode | None) -> list[tuple[str, str]]:
    """What stands on a node's card: (text, class) of each line."""
    lines = [
        (show_tokens(node.key, decode, MOST), "mono bold"),
        (show_slots(node.value, MOST), "mono"),
        (f"ref {node.ref_count} · used at {node.timestamp}", "muted"),
    ]
    if node.namespace:
        lines.append((node.namespace, "muted"))
    if mark:
        lines += [(words, "bold") for words in mark.words.split(", ")]
    return lines


def _stub(stub: Stub) -> Card:
    lines = [(f"+ {count(stub.nodes, 'node')}", "muted"), (count(stub.tokens, "token"), "muted")]
    if stub.marked:
        lines.append((f"{stub.marked} marked", "muted"))
    return Card(lines, "box stub")


def _measure(card: Card) -> None:
    card.width = max(map(_width, card.lines)) + 2 * PAD
    card.height = len(card.lines) * LINE + PAD
    for child in card.children:
        _measure(child)
    below = sum(child.span for child in card.children) + GAP_X * (len(card.children) - 1)
    card.span = max(card.width, below)


def _width(line: tuple[str, str]) -> float:
    text, css = line
    return len(text) * (CHAR if "mono" in css else WORDS)


def _place(canvas: Canvas, card: Card, left: float, top: float) -> float:
    """Draw the card in the middle of `left .. left + span` and its children below; its middle."""
    below = sum(child.span for child in card.children) + GAP_X * (len(card.children) - 1)
    x, middles = left + max(0, (card.span - below) / 2), []
    for child in card.children:
        middles.append(_place(canvas, child, x, top + card.height + GAP_Y))
        x += child.span + GAP_X
    middle = (middles[0] + middles[-1]) / 2 if middles else left + card.span / 2
    middle = min(max(middle, left + card.width / 2), left + card.span - card.width / 2)
    start = top + card.height
    links = "".join(_link(middle, m, start) for m in middles)
    canvas.path(links, "link")
    _draw(canvas, card, middle, top)
    return middle


def _link(x: float, below: float, y: float) -> str:
    """From the middle of a card's lower edge to the middle of a child's upper edge."""
    half = number(y + GAP_Y / 2)
    bend = f"C{number(x)} {half} {number(below)} {half} {number(below)} {number(y + GAP_Y)}"
    return f"M{number(x)} {number(y)}{bend}"


def _draw(canvas: Canvas, card: Card, middle: float, top: float) -> None:
    x, w, h = middle - card.width / 2, card.width, card.height
    round_corners = card.event == palette.UNLOCKED or "root" in card.css
    canvas.rect(x, top, w, h, card.css, rx=12 if round_corners else 3)
    if card.event == palette.MATCHED:
        canvas.rect(x + 3.5, top + 3.5, w - 7, h - 7, card.css)
    if card.event == palette.LOCKED:
        canvas.path(_cut_corners(x, top, x + w, top + h), card.css.replace("box", "tick"))
    for i, (text, css) in enumerate(card.lines):
        canvas.text(middle, top + PAD / 2 + LINE * i + 12, text, css)


def _cut_corners(left: float, top: float, right: float, low: float) -> str:
    """A line across each corner of a locked node, as if it were held down there."""
    c = 10.0
    lines = [(left, top + c, c, -c), (right, top + c, -c, -c)]
    lines += [(left, low - c, c, c), (right, low - c, -c, c)]
    return "".join(f"M{number(x)} {number(y)}l{number(dx)} {number(dy)}" for x, y, dx, dy in lines)
