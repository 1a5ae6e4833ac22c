"""`python tests/architecture.py`: draw the house from its imports, and write them into the text.

Floors are those of pyproject.toml (tool.importlinter), arrows are what the source imports; what
other arrows say already is left out. Written are book/images/architecture.svg and the table between
the marks in ARCHITECTURE.md, whose numbered walk is shown in the picture.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "radixlab"
PICTURE = ROOT / "book/images/architecture.svg"
TEXT = ROOT / "ARCHITECTURE.md"
MARKS = ("<!-- rooms -->\n\n", "\n<!-- end of rooms -->")
CORE = 4
"""The highest floor that needs the standard library alone."""

Imports = dict[str, set[str]]
Row = tuple[int, list[str]]
"""A floor, and rooms on it of which none imports another."""


# --- what there is -------------------------------------------------------------------------------


def read_rows() -> list[Row]:
    """The rows of the house, from the roof down."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = text.split("\nlayers = [\n")[1].split("\n]")[0]
    found = re.findall(r'^ +"([\w |]+)", +# (\d)$', layers, re.MULTILINE)
    return [(int(floor), rooms.split(" | ")) for rooms, floor in found]


def read_imports(rooms: Sequence[str]) -> Imports:
    """For each room those that it imports, at the top of a file or within a function."""
    imports: Imports = {room: set() for room in rooms}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in imports:
            imports[room] |= set(_imported(path)) & set(rooms) - {room}
    return imports


def _imported(path: Path) -> Iterator[str]:
    """Of each import from radixlab, the name that follows."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for alias in node.names:
                package, *rest = ".".join([*module, alias.name]).split(".")
                if package == "radixlab" and rest:
                    yield rest[0]


def reduced(imports: Imports) -> Imports:
    """Only those imports that no chain of others says already."""

    def reach(room: str) -> set[str]:
        return imports[room].union(*map(reach, imports[room]))

    return {room: direct.difference(*map(reach, direct)) for room, direct in imports.items()}


def read_walk() -> dict[str, str]:
    """For each room its numbers in the walk of a token id, as the text has them."""
    walk: dict[str, list[str]] = {}
    for number, room in re.findall(
        r"^(\d+)\. \*\*(\w+)\*\*", TEXT.read_text("utf-8"), re.MULTILINE
    ):
        walk.setdefault(room, []).append(number)
    return {room: " ".join(numbers) for room, numbers in walk.items()}


def write_table(rows: Sequence[Row], imports: Imports) -> str:
    """The picture in words: a line for each floor."""
    lines = ["| floor | its rooms, and what each imports |", "|---|---|"]
    for floor in sorted({floor for floor, _ in rows}, reverse=True):
        rooms = [room for at, row in rows for room in row if at == floor]
        told = [f"**{room}**: {', '.join(sorted(imports[room])) or 'nothing'}" for room in rooms]
        lines.append(f"| {floor} | {'; '.join(told)} |")
    return "\n".join(lines) + "\n"


# --- where everything goes (after Sugiyama) ------------------------------------------------------


class Spot(NamedTuple):
    """A place in a row: a room, or a lane through which the arrows to that room pass."""

    room: str
    row: int


Link = tuple[Spot, Spot]
"""A piece of an arrow, from one row to the next."""
Order = list[list[Spot]]
"""The spots of each row, from left to right."""


def make_links(rows: Sequence[Row], imports: Imports) -> list[Link]:
    """The pieces of all arrows; arrows to the same room share their lanes."""
    at = {room: i for i, (_, rooms) in enumerate(rows) for room in rooms}
    links: dict[Link, None] = {}
    for room, row in at.items():
        for target in sorted(imports[room]):
            lanes = [Spot(target, below) for below in range(row + 1, at[target] + 1)]
            links |= dict.fromkeys(zip([Spot(room, row), *lanes], lanes, strict=False))
    return list(links)


def neighbours(links: Sequence[Link]) -> dict[Spot, list[Spot]]:
    """Of each spot; those in its own lane count many times, so that the lane is straight."""
    found: dict[Spot, list[Spot]] = {}
    for a, b in links:
        times = STRAIGHT if a.room == b.room else 1
        found.setdefault(a, []).extend([b] * times)
        found.setdefault(b, []).extend([a] * times)
    return found


def arrange(rows: Sequence[Row], links: Sequence[Link], sweeps: int = 40) -> Order:
    """An order with few crossings: down and up again, each spot goes where its neighbours are."""
    order = [[Spot(room, i) for room in rooms] for i, (_, rooms) in enumerate(rows)]
    for lane in sorted({below for _, below in links} - {spot for row in order for spot in row}):
        order[lane.row].append(lane)
    best, near = order, neighbours(links)
    for sweep in range(sweeps):
        order, down = order[:], sweep % 2 == 1
        for i in range(1, len(order)) if down else range(len(order) - 2, -1, -1):
            order[i] = _by_neighbours(order[i], order[i - 1 if down else i + 1], near)
        best = min(best, order, key=lambda each: crossings(each, links))
    return best


def _by_neighbours(row: list[Spot], fixed: list[Spot], near: dict[Spot, list[Spot]]) -> list[Spot]:
    place = {spot: float(i) for i, spot in enumerate(fixed)}
    scale = (len(fixed) - 1) / max(1, len(row) - 1)
    means = {
        spot: fmean([place[other] for other in near[spot] if other in place] or [i * scale])
        for i, spot in enumerate(row)
    }
    return sorted(row, key=lambda spot: means[spot])


def crossings(order: Order, links: Sequence[Link]) -> int:
    """How many pairs of links cross."""
    place = {spot: i for row in order for i, spot in enumerate(row)}
    count = 0
    for row in range(len(order)):
        ends = sorted((place[a], place[b]) for a, b in links if a.row == row)
        count += sum(b > d for i, (a, b) in enumerate(ends) for c, d in ends[i + 1 :] if a < c)
    return count


BOX, PITCH, GAP, LANE, LABEL, STRAIGHT = 24, 48, 10, 8, 66, 12
"""Heights of a box and a row, the room between two spots, the widths of a lane and the labels."""


def measure(order: Order, rows: Sequence[Row], walk: dict[str, str]) -> dict[Spot, float]:
    """How wide each spot is: a box as wide as its words."""
    return {
        spot: 16 + 7.4 * len(f"{walk.get(spot.room, '')} {spot.room}".strip())
        if spot.room in rows[spot.row][1]
        else LANE
        for row in order
        for spot in row
    }


def place(
    order: Order, near: dict[Spot, list[Spot]], widths: dict[Spot, float]
) -> dict[Spot, float]:
    """The middle of each spot: near its neighbours, and never over another."""
    x = {spot: 100.0 * i for row in order for i, spot in enumerate(row)}
    for _ in range(200):
        for row in [*order, *order[::-1]]:
            wanted = [fmean(x[other] for other in near[spot]) for spot in row]
            x |= dict(zip(row, _apart(wanted, [widths[spot] for spot in row]), strict=True))
    left = min(x[spot] - widths[spot] / 2 for spot in x)
    return {spot: round(at - left + LABEL) for spot, at in x.items()}


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones (least squares) that keep the order and the gaps."""
    shift, shifts = 0.0, []
    for i, wide in enumerate(widths):
        shift += (widths[i - 1] + wide) / 2 + GAP if i else 0
        shifts.append(shift)
    groups: list[list[float]] = []
    for at, shift in zip(wanted, shifts, strict=True):
        groups.append([at - shift])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    means = [fmean(group) for group in groups for _ in group]
    return [mean + shift for mean, shift in zip(means, shifts, strict=True)]


# --- drawing -------------------------------------------------------------------------------------

STYLE = (
    "text{font:13px system-ui,Helvetica,Arial,sans-serif;fill:#1f2328}.l{fill:#57606a}"
    ".r{fill:#fff;stroke:#767676}.w{fill:#fff;stroke:#0072b2;stroke-width:2}"
    ".n{font-weight:700;fill:#0072b2}.a{fill:none;stroke:#57606a}.c{fill:#e2eff8}"
    ".f{fill:#f3f4f6}"
)
ARROW = '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
ARROW += 'orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker>'
TITLE = "The rooms of radixlab on their floors; an arrow leads from a room to one that it imports"


def draw(rows: Sequence[Row], imports: Imports, walk: dict[str, str]) -> str:
    """The picture, as SVG: the same bytes for the same house."""
    links = make_links(rows, imports)
    order = arrange(rows, links)
    widths = measure(order, rows, walk)
    x = place(order, neighbours(links), widths)
    right = max(x[spot] + widths[spot] / 2 for spot in x) + 8
    parts = ['<rect fill="#fff" width="100%" height="100%"/>', *_floors(rows, right)]
    parts += _lines(links, rows, x)
    for spot in sorted(x):
        if spot.room in rows[spot.row][1]:
            parts += _box(spot, x[spot], widths[spot], walk.get(spot.room, ""))
    size = f'viewBox="0 0 {right:.0f} {PITCH * len(rows)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TITLE}">'
    return "\n".join(
        [head, f"<title>{TITLE}</title>", f"<style>{STYLE}</style>", ARROW, *parts]
    ) + ("\n</svg>\n")


def _top(row: int) -> int:
    return PITCH * row + (PITCH - BOX) // 2


def _floors(rows: Sequence[Row], right: float) -> Iterator[str]:
    for floor in sorted({floor for floor, _ in rows}):
        on_it = [i for i, (at, _) in enumerate(rows) if at == floor]
        y, high = PITCH * on_it[0], PITCH * len(on_it) - 2
        look = "c" if floor <= CORE else "f"
        yield f'<rect class="{look}" y="{y}" width="{right:.0f}" height="{high}"/>'
        yield f'<text class="l" x="8" y="{y + PITCH // 2 + 4}">floor {floor}</text>'


def _lines(links: Sequence[Link], rows: Sequence[Row], x: dict[Spot, float]) -> Iterator[str]:
    """Each link as a curve: upright at a room, and in a lane on its way to the next row."""
    slope = {spot: 0.0 for spot in x}
    for a, b in links:
        if a.room == b.room:
            slope[a] = max(-0.5, min(0.5, (x[b] - x[a]) / PITCH))
    for a, b in links:
        arrives = b.room in rows[b.row][1]
        start = _top(a.row) + (BOX // 2 if a.room == b.room else BOX)
        end = _top(b.row) + (0 if arrives else BOX // 2)
        third = (end - start) / 3
        out, into = x[a] + slope[a] * third, x[b] - slope[b] * third
        path = f"M{x[a]} {start}C{out:.0f} {start + third:.0f} {into:.0f} {end - third:.0f} "
        tail = ' marker-end="url(#a)"' if arrives else ""
        yield f'<path class="a" d="{path}{x[b]} {end}"{tail}/>'


def _box(spot: Spot, x: float, wide: float, numbers: str) -> Iterator[str]:
    y, look = _top(spot.row), "w" if numbers else "r"
    left = f"{x - wide / 2:.0f}"
    yield f'<rect class="{look}" x="{left}" y="{y}" width="{wide:.0f}" height="{BOX}" rx="4"/>'
    number = f'<tspan class="n">{numbers}</tspan> ' if numbers else ""
    yield f'<text x="{x}" y="{y + 17}" text-anchor="middle">{number}{spot.room}</text>'


def make() -> tuple[str, str]:
    """The picture and the table of the house as it is."""
    rows = read_rows()
    imports = reduced(read_imports([room for _, rooms in rows for room in rooms]))
    return draw(rows, imports, read_walk()), write_table(rows, imports)


if __name__ == "__main__":
    picture, table = make()
    PICTURE.write_text(picture, encoding="utf-8")
    before, rest = TEXT.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    TEXT.write_text(before + MARKS[0] + table + MARKS[1] + after, encoding="utf-8")
