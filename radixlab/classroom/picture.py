"""Pictures of students' trees: as they are, and beside what was expected, differences marked.

A difference is told by colour, by border and in words; the words alone are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from radixlab.errors import InvalidArgument
from radixlab.viz import palette
from radixlab.viz.picture import Picture
from radixlab.viz.treesvg import MOST, Card, draw_cards
from radixlab.viz.words import escape, shorten

MAX_NODES = 40
"""A tree of more nodes is drawn up to here."""

FIELDS = ("key", "value", "ref_count", "timestamp")
DIFFERS, EXTRA, MISSING, BROKEN = "differs", "extra", "missing", "broken"
LOOKS = {
    "": "",
    DIFFERS: palette.SPLIT,  # a dashed border
    EXTRA: palette.CREATED,  # a thick one
    MISSING: palette.EVICTED,  # a dotted one
    BROKEN: palette.SPLIT,
}


@dataclass(slots=True)
class Twig:
    """A node as it will be drawn. `fields` holds what it has of `FIELDS`; notes are in words."""

    fields: dict[str, Any]
    children: list[Twig] = field(default_factory=list)
    look: str = ""
    notes: list[str] = field(default_factory=list)
    differing: set[str] = field(default_factory=set)

    @property
    def key(self) -> Any:
        """The token ids of its edge."""
        return self.fields.get("key", [])

    @property
    def name(self) -> str:
        """How sentences call it."""
        return "the root" if self.key == [] else f"node {_brief(self.key, 8)}"

    def note(self, look: str, words: str) -> None:
        """Mark it, in words too."""
        self.look = self.look or look
        self.notes.append(words)

    def walk(self) -> Iterator[Twig]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


# --- a student's tree ----------------------------------------------------------------------------


def show(root: Any) -> Picture:
    """Draw a tree: any object with `key`, `value` and `children` (a dictionary or a list).

    `ref_count` and `timestamp` are shown if they are there. What hangs together wrongly is marked:
    a child whose `parent` is another node, a child under the wrong token id, a loop. A tree in the
    JSON form of the checks, or an object with a `root`, is drawn as well.
    """
    if is_tree(root):
        return draw(read_json(root), "A tree")
    root = getattr(root, "root", root)
    if not hasattr(root, "key") or not hasattr(root, "children"):
        allowed = "an object with key, value and children"
        raise InvalidArgument("root", type(root).__name__, allowed)
    return draw(read_object(root), "Your tree")


def read_object(root: Any) -> Twig:
    """A student's nodes as twigs; safe against loops and against trees without an end."""
    twig, seen = _twig(root), {id(root): root}  # kept alive, or another might get its id
    todo = [(root, twig)]
    while todo:
        node, parent = todo.pop()
        for index, child in _children(node):
            below = _twig(child)
            parent.children.append(below)
            _mark_links(below, child, node, index)
            if id(child) in seen:
                below.note(BROKEN, "drawn elsewhere: it hangs in two places, or in a loop")
            elif len(seen) >= MAX_NODES:
                below.notes.append("its children are not drawn")
            else:
                seen[id(child)] = child
                todo.append((child, below))
    return twig


def _children(node: Any) -> list[tuple[Any, Any]]:
    """(index, child) of each; the index is None where they hang in a list."""
    children = getattr(node, "children", None) or {}
    if isinstance(children, dict):
        return list(children.items())
    return [(None, child) for child in children]


def _twig(node: Any) -> Twig:
    return Twig({f: _plain(getattr(node, f)) for f in FIELDS if hasattr(node, f)})


def _plain(value: Any) -> Any:
    """Sequences of any kind as lists."""
    try:
        return list(value)
    except TypeError:
        return value


def _mark_links(twig: Twig, child: Any, parent: Any, index: Any) -> None:
    if getattr(child, "parent", parent) is not parent:
        twig.note(BROKEN, "its parent link leads elsewhere")
    index = [index] if isinstance(index, int) else _plain(index)
    if isinstance(index, list) and twig.key[: len(index)] != index:
        twig.note(BROKEN, f"hangs under {_brief(index, 4)}")


# --- trees in JSON -------------------------------------------------------------------------------


def is_tree(value: Any) -> bool:
    """Whether a JSON value is a tree as drivers return it."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("key"), list)
        and bool({"value", "children"} & set(value))
        and set(value) <= {*FIELDS, "children"}
    )


def read_json(tree: dict[str, Any], depth: int = 0) -> Twig:
    """A tree's JSON as twigs."""
    twig = Twig({name: tree[name] for name in FIELDS if name in tree})
    children = tree.get("children")
    for child in children if isinstance(children, list) else []:
        if not is_tree(child):
            twig.children.append(Twig({"key": [child]}, notes=["not a node"]))
        elif depth == MAX_NODES:
            twig.children.append(Twig({"key": child["key"]}, notes=["and so on"]))
        else:
            twig.children.append(read_json(child, depth + 1))
    return twig


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """Two trees with their differences marked, and the same in sentences."""

    got: Twig
    expected: Twig
    sentences: tuple[str, ...]

    @property
    def html(self) -> str:
        """Both pictures side by side; on a narrow page one above the other."""
        told = " ".join(self.sentences)
        pictures = (("yours", self.got), ("expected", self.expected))
        figures = "".join(
            f'<figure class="rl-figure"><figcaption>{words}</figcaption>'
            f"{drawn(twig, f'Tree, {words}', told)}</figure>"
            for words, twig in pictures
        )
        return f'<div class="rl-pair">{figures}</div>'

    @property
    def text(self) -> str:
        """Both trees as lines of text."""
        return f"yours:\n{write(self.got)}\nexpected:\n{write(self.expected)}"


def tree_diff(got: dict[str, Any], expected: dict[str, Any]) -> TreeDiff:
    """Compare two trees in JSON, node by node; children are paired by their first token id."""
    yours, theirs = read_json(got), read_json(expected)
    found = _Found()
    found.compare(yours, theirs)
    return TreeDiff(yours, theirs, tuple(found.sentences()))


@dataclass(slots=True)
class _Found:
    """What a comparison of two trees finds: sentences, and (node, parent) without a partner."""

    told: list[str] = field(default_factory=list)
    extra: list[tuple[Twig, Twig]] = field(default_factory=list)
    missing: list[tuple[Twig, Twig]] = field(default_factory=list)

    def compare(self, got: Twig, expected: Twig) -> None:
        """Compare two nodes that are partners, and all below them."""
        for name in FIELDS:
            mine, other = got.fields.get(name), expected.fields.get(name)
            if mine == other and type(mine) is type(other):
                continue
            got.differing.add(name)
            expected.differing.add(name)
            if name == "key":
                self.told.append(f"Where {expected.name} is expected, yours has {got.name}.")
            else:
                self.told.append(f"{_capital(got.name)}: {name} is {_unlike(mine, other)}.")
        if got.differing:
            words = ", ".join(sorted(got.differing, key=FIELDS.index))
            got.note(DIFFERS, f"≠ {words}")
            expected.note(DIFFERS, f"≠ {words}")
        self.pair(got, expected)

    def pair(self, got: Twig, expected: Twig) -> None:
        """Pair the children; a second one of the same first token id has no partner."""
        left = list(expected.children)
        for child in got.children:
            partner = next((c for c in left if c.key[:1] == child.key[:1]), None)
            if partner is None:
                self.extra.append((child, got))
            else:
                left.remove(partner)
                self.compare(child, partner)
        self.missing += [(child, expected) for child in left]

    def sentences(self) -> Iterator[str]:
        """All of it in sentences; a node that hangs elsewhere is told of once, as moved."""
        yield from self.told
        left = list(self.missing)
        for twig, parent in self.extra:
            partner = next((pair for pair in left if pair[0].fields == twig.fields), None)
            if partner is None:
                _mark_all(twig, EXTRA)
                yield f"{_capital(twig.name)} below {parent.name} should not be there."
            else:
                left.remove(partner)
                for each in (twig, partner[0]):
                    each.note(DIFFERS, "hangs elsewhere")
                where = f"below {parent.name}, expected below {partner[1].name}"
                yield f"{_capital(twig.name)} hangs {where}."
        for twig, parent in left:
            _mark_all(twig, MISSING)
            yield f"{_capital(twig.name)} is missing below {parent.name}."


def _mark_all(twig: Twig, look: str) -> None:
    for below in twig.walk():
        below.note(look, look)


def _unlike(mine: Any, other: Any) -> str:
    if isinstance(mine, list) and isinstance(other, list) and max(len(mine), len(other)) > 8:
        where = next(
            (i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
            min(len(mine), len(other)),
        )
        ends = [repr(x[where]) if where < len(x) else "nothing" for x in (mine, other)]
        return f"{ends[0]} at place {where}, expected {ends[1]}"
    return f"{_said(mine)}, expected {_said(other)}"


def _said(value: Any) -> str:
    return "not there" if value is None else _brief(value, 8)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


# --- drawing -------------------------------------------------------------------------------------


def draw(root: Twig, title: str, told: str = "") -> Picture:
    """The twigs as a picture; `told` is what it says besides the nodes."""
    text, nodes = write(root), sum(1 for _ in root.walk()) - 1
    if nodes > 2 * MAX_NODES:
        return Picture("", text, f"A tree of {nodes} nodes is not drawn")
    canvas = draw_cards(_card(root, _shown(root)))
    named = f"{title}: {nodes} node{'s' * (nodes != 1)} below the root"
    return Picture(canvas.svg(named, f"{told}\n{text}".strip()), text)


def drawn(root: Twig, title: str, told: str = "") -> str:
    """A picture for within a page; where it is too large, the text."""
    picture = draw(root, title, told)
    return picture.svg or f"<pre>{escape(str(picture))}</pre>"


def _shown(root: Twig) -> list[str]:
    """The fields to show: counts only if somewhere they are not 0, or differ."""
    twigs = list(root.walk())
    return [
        name
        for name in FIELDS
        if name in ("key", "value")
        or any(twig.fields.get(name) or name in twig.differing for twig in twigs)
    ]


def _card(twig: Twig, shown: list[str]) -> Card:
    event, is_root = LOOKS[twig.look], twig.key == []
    css = ["box", *["root"] * is_root, event or _state(twig)]
    lines = [("root", "muted")] if is_root else []
    lines += [(text, _css(name, twig)) for name, text in _lines(twig, shown, MOST)]
    lines += [(words, "bold") for note in twig.notes for words in _wrapped(note)]
    children = [_card(child, shown) for child in twig.children]
    return Card(lines, " ".join(css).strip(), event, children)


def _state(twig: Twig) -> str:
    return palette.PROTECTED if twig.fields.get("ref_count") else ""


def _css(name: str, twig: Twig) -> str:
    bold = ["bold"] * (name == "key" or name in twig.differing)
    face = "mono" if name in ("key", "value") else "" if bold else "muted"
    return " ".join([face, *bold]).strip()


def _lines(twig: Twig, shown: list[str], most: int) -> Iterator[tuple[str, str]]:
    """What stands on a node: (field, text). The root shows what is not 0 or empty."""
    for name in shown:
        value = twig.fields.get(name)
        if name not in twig.fields or (twig.key == [] and not value):
            continue
        if name == "value":
            yield name, _slots(value, most)
        elif name == "key":
            yield name, _brief(value, most)
        else:
            words = "used at" if name == "timestamp" else name
            yield name, f"{words} {_brief(value, most)}"


def _wrapped(words: str) -> list[str]:
    """A long note in lines that fit a card."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) > 24:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _slots(value: Any, most: int) -> str:
    if not isinstance(value, list):
        return repr(value)
    return shorten([f"p{s}" if isinstance(s, int) else repr(s) for s in value], most)


def _brief(value: Any, most: int) -> str:
    """A value in few characters."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return shorten([repr(item) for item in value], most)
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def write(root: Twig) -> str:
    """The twigs as lines of text, notes included."""
    lines: list[str] = []
    shown, stack = _shown(root), [(root, "", "")]
    while stack:
        twig, first, rest = stack.pop()
        words = ["root"] * (twig.key == []) + [text for _, text in _lines(twig, shown, 8)]
        told = "  ".join(words)
        marked = f"  <- {', '.join(twig.notes)}" if twig.notes else ""
        lines.append(f"{first}{told}{marked}")
        for i, child in enumerate(reversed(twig.children)):
            stem, more = ("└── ", "    ") if i == 0 else ("├── ", "│   ")
            stack.append((child, rest + stem, rest + more))
    return "\n".join(lines)
