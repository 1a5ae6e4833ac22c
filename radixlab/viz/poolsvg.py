"""The pool as a strip of slots, and below it the page tables that point into it.

Every slot is a cell: empty when free, with a dot when cached and evictable, hatched when cached
and protected, with a bar when it is private to a running request. A thick line is a page border.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from radixlab.lifecycle import Step
from radixlab.manager import CacheManager
from radixlab.snapshot import RequestSnapshot, SlotMove, Snapshot, take_snapshot
from radixlab.viz import palette
from radixlab.viz.marks import slot_states
from radixlab.viz.picture import Picture
from radixlab.viz.svg import CHAR, Canvas, number
from radixlab.viz.words import count, show_slots

NUMBERED = 128
"""Up to this many slots each cell carries its number; a larger pool has smaller cells."""
TOP, ROW = 20.0, 24.0
SLIM = 8
"""Numbered cells to a row on a phone."""
SINGLE = 2048
"""A pool of more slots has one cell for each page, whose slots always have one owner."""


class Grid(NamedTuple):
    """How the strip is broken into rows: `unit` slots to a cell, `size` pixels wide."""

    total: int
    unit: int
    columns: int
    size: float
    height: float

    @classmethod
    def of(cls, snapshot: Snapshot, slim: bool = False) -> Grid:
        """Rows of whole pages wherever a page fits into one; `slim` ones for a phone."""
        page, total = snapshot.page_size, snapshot.total_size
        unit = page if total > SINGLE else 1
        page_cells, cells = page // unit, -(-total // unit)
        numbered = total <= NUMBERED
        most = (SLIM if slim else 12 if cells <= 12 else 16) if numbered else 32 if slim else 64
        columns = max(1, most // page_cells) * page_cells if page_cells <= most else most
        size, height = (30.0 if total <= 100 else 34.0, 28.0) if numbered else (10.0, 12.0)
        return cls(cells, unit, min(columns, cells), size, height)

    @property
    def numbered(self) -> bool:
        """Whether a cell has room for its slot's number."""
        return self.size > 20

    def at(self, cell: int) -> tuple[float, float]:
        """The upper left corner of a cell."""
        row, column = divmod(cell, self.columns)
        return 1 + column * self.size, TOP + row * (self.height + 4)

    @property
    def wired(self) -> bool:
        """Whether lines lead from the page tables to the slots: not across other rows."""
        return self.numbered and self.total <= self.columns


def pool_title(snapshot: Snapshot) -> str:
    """The four sizes, which always add up to the pool's."""
    return (
        f"Pool of {count(snapshot.total_size, 'slot')}: {snapshot.free_size} free, "
        f"{snapshot.evictable_size} cached and evictable, {snapshot.protected_size} cached and "
        f"protected, {snapshot.private_size} private"
    )


def pool_text(snapshot: Snapshot, moves: Sequence[SlotMove] = ()) -> str:
    """All page tables, and what changed its owner, in words."""
    lines = [f"Page table of {r.request_id}: {show_slots(r.page_table)}" for r in _tables(snapshot)]
    lines += [f"{show_slots(m.slots)}: {m.before} → {m.after}" for m in moves]
    return "; ".join(lines)


def draw_strips(snapshot: Snapshot, moves: Sequence[SlotMove] = ()) -> list[Canvas]:
    """The strip, and where it is too wide for a phone a slim one, which is shown there instead."""
    strip = draw_strip(snapshot, moves)
    if Grid.of(snapshot).columns <= SLIM:
        return [strip]
    strip.css += " rl-wide"
    return [strip, draw_strip(snapshot, moves, slim=True)]


def draw_strip(snapshot: Snapshot, moves: Sequence[SlotMove] = (), *, slim: bool = False) -> Canvas:
    """The strip, and below it the page tables of running requests; moved slots are framed."""
    grid, states = Grid.of(snapshot, slim), slot_states(snapshot)
    canvas = Canvas(css="rl-svg rl-slim" if slim else "rl-svg")
    canvas.text(
        2, 13, f"pool, {snapshot.page_size} to a page" if snapshot.page_size > 1 else "pool"
    )
    _draw_pool(canvas, grid, snapshot, states, moves)
    low = canvas.height
    places, y = [], low + (30 if grid.wired else 14)
    for request in _tables(snapshot):
        places.append((request, y))
        y += _table_height(request, grid)
    if grid.wired:
        for request, y in places:
            canvas.path(_wires(grid, request, y), "wire")
    for request, y in places:
        _draw_table(canvas, grid, request, states, y)
    return canvas


def draw_pool(drawn: CacheManager | Snapshot | Step) -> Picture:
    """The pool strip and the page tables of a manager, a snapshot, or the state after a step."""
    moves: Sequence[SlotMove] = ()
    if isinstance(drawn, Step):
        moves, drawn = drawn.changes.slots, drawn.snapshot
    snapshot = take_snapshot(drawn) if isinstance(drawn, CacheManager) else drawn
    title, text = pool_title(snapshot), pool_text(snapshot, moves)
    svg, *slim = (strip.svg(title, text) for strip in draw_strips(snapshot, moves))
    words = f"{title}\n{text}" if text else title
    return Picture(svg, words, legend=legend(snapshot), slim="".join(slim))


def legend(snapshot: Snapshot) -> str:
    """HTML: each state's mark, name and number of slots."""
    sizes = (
        (palette.FREE, snapshot.free_size),
        (palette.EVICTABLE, snapshot.evictable_size),
        (palette.PROTECTED, snapshot.protected_size),
        (palette.PRIVATE, snapshot.private_size),
    )
    counts = (f'<span class="rl-count {s}"><i></i>{s} <b>{size}</b></span>' for s, size in sizes)
    return f'<div class="rl-books">{"".join(counts)}</div>'


def _tables(snapshot: Snapshot) -> list[RequestSnapshot]:
    return [r for r in snapshot.requests if r.page_table]


def _label_width(request: RequestSnapshot) -> float:
    return len(f"{request.request_id} ") * CHAR + 4


def _per_row(request: RequestSnapshot, grid: Grid) -> int:
    fits = int((grid.columns * grid.size - _label_width(request)) // grid.size)
    return max(fits, min(grid.columns, 10))


def _table_height(request: RequestSnapshot, grid: Grid) -> float:
    rows = -(-len(request.page_table) // _per_row(request, grid)) if grid.numbered else 1
    return rows * ROW + 12


def _draw_table(
    canvas: Canvas, grid: Grid, request: RequestSnapshot, states: dict[int, str], y: float
) -> None:
    """A row of positions 0, 1, ..., each with the slot that it points to."""
    canvas.text(2, y + 16, request.request_id, "bold")
    left = _label_width(request)
    if not grid.numbered:
        private = len(request.page_table) - request.cached_len
        words = f"{count(request.cached_len, 'slot')} in the cache, {private} private"
        canvas.text(left + 6, y + 16, words, "muted")
        canvas.reach(left + len(words) * CHAR, y + ROW)
        return
    names: list[tuple[float, float, str]] = []
    per_row, size = _per_row(request, grid), grid.size
    for position, slot in enumerate(request.page_table):
        row, column = divmod(position, per_row)
        x, cell_y = left + column * size, y + row * ROW
        canvas.rect(x, cell_y, size, ROW - 2, f"box {states[slot]}")
        names.append((x + size / 2, cell_y + 13, f"p{slot}"))
        bars = f"M{number(x + 6)} {number(cell_y + 18)}h{number(size - 12)}"
        css = "tick" if states[slot] == palette.PRIVATE else "tick ticks"
        canvas.path(bars, f"{css} {states[slot]}")
    canvas.texts(names, "mono mid")


def _wires(grid: Grid, request: RequestSnapshot, y: float) -> str:
    """A line from the middle of each run of neighbours up to the middle of where it lies."""
    table, left, size = request.page_table, _label_width(request), grid.size
    if len(table) > _per_row(request, grid):
        return ""
    lines = []
    for _, group in groupby(enumerate(table), lambda item: item[1] - item[0]):
        run = list(group)
        (first, slot), (last, end) = run[0], run[-1]
        start = left + (first + last + 1) * size / 2
        target, low = (grid.at(slot)[0] + grid.at(end)[0] + size) / 2, TOP + grid.height
        width = len(run) * size
        edge = f"M{number(target - width / 2 + 4)} {number(low + 5)}h{number(width - 8)}"
        middle = number((y + low + 5) / 2) if y < low + 40 else number(low + 20)
        curve = f"M{number(start)} {number(y)}C{number(start)} {middle} {number(target)} {middle}"
        lines.append(f"{edge}{curve} {number(target)} {number(low + 5)}")
    return "".join(lines)


def _draw_pool(
    canvas: Canvas,
    grid: Grid,
    snapshot: Snapshot,
    states: dict[int, str],
    moves: Sequence[SlotMove],
) -> None:
    cells = [states[cell * grid.unit] for cell in range(grid.total)]
    runs = groupby(range(grid.total), lambda cell: (cells[cell], cell // grid.columns))
    for (state, _), group in runs:
        run = list(group)
        x, y = grid.at(run[0])
        canvas.rect(x, y, len(run) * grid.size, grid.height, f"cell {state}")
    for state in palette.STATES:
        marked = [cell for cell in range(grid.total) if cells[cell] == state]
        css = "dot" if state == palette.EVICTABLE else "tick"
        canvas.path("".join(_mark(grid, cell, state) for cell in marked), f"{css} {state}")
    _draw_borders(canvas, grid, snapshot)
    moved = {slot // grid.unit for move in moves for slot in move.slots}
    canvas.path("".join(_frame(grid, cell) for cell in sorted(moved)), "moved")
    if grid.numbered:
        corners = map(grid.at, range(grid.total))
        names = ((x + grid.size / 2, y + 12, f"{cell}") for cell, (x, y) in enumerate(corners))
        canvas.texts(names, "mono mid")
    canvas.reach(grid.columns * grid.size + 3, canvas.height + 2)


def _mark(grid: Grid, cell: int, state: str) -> str:
    """The mark of a state, drawn into the lower part of a cell."""
    x, y = grid.at(cell)
    middle, low = x + grid.size / 2, y + (grid.height - 7 if grid.numbered else 6)
    reach = 9.0 if grid.numbered else 3.0
    if state == palette.EVICTABLE:
        return f"M{number(middle)} {number(low)}h.01"
    if state == palette.PROTECTED:
        starts = (-reach, -reach / 3, reach / 3) if grid.numbered else (-2.0,)
        return "".join(f"M{number(middle + dx)} {number(low + 3)}l6 -6" for dx in starts)
    if state == palette.PRIVATE:
        return f"M{number(middle - reach)} {number(low)}h{number(2 * reach)}"
    return ""


def _draw_borders(canvas: Canvas, grid: Grid, snapshot: Snapshot) -> None:
    """Thin lines around the cells of a row, thick ones around its pages."""
    page = max(1, snapshot.page_size // grid.unit)
    thin: list[str] = []
    thick: list[str] = []
    for first in range(0, grid.total, grid.columns):
        x, y = grid.at(first)
        width = min(grid.columns, grid.total - first) * grid.size
        thick.append(
            f"M{number(x)} {number(y)}h{number(width)}v{number(grid.height)}h-{number(width)}z"
        )
        for cell in range(first + 1, min(first + grid.columns, grid.total)):
            line = f"M{number(grid.at(cell)[0])} {number(y)}v{number(grid.height)}"
            (thin if cell % page or page == 1 else thick).append(line)
    canvas.path("".join(thin), "grid")
    canvas.path("".join(thick), "page")


def _frame(grid: Grid, cell: int) -> str:
    x, y = grid.at(cell)
    w, h = number(grid.size - 2), number(grid.height - 2)
    return f"M{number(x + 1)} {number(y + 1)}h{w}v{h}h-{w}z"
