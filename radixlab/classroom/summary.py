"""A class in numbers: what was hard, which cases fail, which mistakes are made.

Charts are SVG for use within a page: no font, no colour of text and no date of their own.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

from radixlab.classroom.gradebook import Gradebook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = ("none", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< all", "all")
"""Parts of the points that can be had: nothing, up to a quarter, ..., less than all, all."""
SHOWN = 15
"""So many cases and mistakes are shown: the most frequent ones."""


class Task(NamedTuple):
    """How a class did in an exercise, a question or the whole; `shares` counts by `SHARES`."""

    name: str
    most: float
    graded: int
    mean: float
    median: float
    shares: tuple[int, ...]


class Failure(NamedTuple):
    """A case, by its number in its group, and how many submissions failed in it."""

    exercise: str
    group: str
    number: int
    visible: bool
    times: int


class Mistake(NamedTuple):
    """A known mistake, and how many submissions make it."""

    exercise: str
    sentence: str
    times: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A class in numbers. Submissions that could not be read count as such and nowhere else."""

    submissions: int
    problems: dict[str, str]
    tasks: list[Task]
    failures: list[Failure]
    mistakes: list[Mistake]

    @staticmethod
    def of(book: Gradebook) -> Summary:
        """Count."""
        problems = {s: r.problem for s, r in book.results.items() if r.problem}
        read = [student for student in book.results if student not in problems]
        return Summary(
            submissions=len(book.results),
            problems=problems,
            tasks=list(_tasks(book, read)),
            failures=_failures(book, read),
            mistakes=_mistakes(book, read),
        )


def _tasks(book: Gradebook, students: list[str]) -> Iterator[Task]:
    for name, most in book.tasks().items():
        given = [book.points(student, name) for student in students]
        yield _task(name, most, [points for points in given if points is not None])
    complete = [s for s in students if not book.ungraded(s)]
    yield _task("total", book.sheet.total, [book.total(student) for student in complete])


def _task(name: str, most: float, points: list[float]) -> Task:
    counts = Counter(_share(p, most) for p in points)
    shares = tuple(counts[i] for i in range(len(SHARES)))
    average, middle = (mean(points), median(points)) if points else (0.0, 0.0)
    return Task(name, most, len(points), average, middle, shares)


def _share(points: float, most: float) -> int:
    """Which of `SHARES` the points are."""
    if points >= most:
        return len(SHARES) - 1
    return 0 if points <= 0 else 1 + sum(points > most * part for part in (0.25, 0.5, 0.75))


def _failures(book: Gradebook, students: list[str]) -> list[Failure]:
    counts = Counter(
        (exercise.exercise, group.name, number, group.visible)
        for student in students
        for exercise in book.results[student].exercises
        for group in exercise.groups
        for number in group.failed
    )
    failures = [Failure(*case, count) for case, count in counts.items()]
    return sorted(failures, key=lambda f: (-f.times, *f[:3]))[:SHOWN]


def _mistakes(book: Gradebook, students: list[str]) -> list[Mistake]:
    counts = Counter(
        (exercise.exercise, exercise.mistake)
        for student in students
        for exercise in book.results[student].exercises
        if exercise.mistake
    )
    mistakes = [Mistake(*mistake, count) for mistake, count in counts.items()]
    return sorted(mistakes, key=lambda m: (-m.times, *m[:2]))[:SHOWN]


def plot_points(tasks: Sequence[Task]) -> str:
    """How many submissions got which part of the points: a panel for each task."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from radixlab.viz.palette import BLUE, ORANGE
    from radixlab.viz.style import style

    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    with style():
        figure = Figure(figsize=(2.9 * columns, 1.9 * rows))
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for axes, task in zip(panels, tasks, strict=False):
            bars = axes.bar(SHARES, task.shares, color=ORANGE if task.name == "total" else BLUE)
            axes.bar_label(bars, [str(n) if n else "" for n in task.shares], fontsize=8)
            axes.set_title(task.name, fontsize=10)
            axes.tick_params(axis="x", rotation=40, labelsize=8)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            axes.margins(y=0.15)
            axes.grid(axis="x", visible=False)
        for axes in panels[len(tasks) :]:
            axes.set_visible(False)
        return svg(figure, "points")


def plot_failures(failures: Sequence[Failure], submissions: int) -> str:
    """Which cases fail most: a bar for each."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from radixlab.viz.palette import BLUE, VERMILION
    from radixlab.viz.style import style

    with style():
        figure = Figure(figsize=(8.4, 0.8 + 0.27 * len(failures)))
        axes = figure.subplots()
        names = [f"{f.exercise}: {f.group} {f.number}{', visible' * f.visible}" for f in failures]
        colours = [BLUE if f.visible else VERMILION for f in failures]
        bars = axes.barh(names, [f.times for f in failures], color=colours)
        axes.bar_label(bars, padding=3)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, submissions)
        axes.set_xlabel(f"submissions that fail, of {submissions}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return svg(figure, "failures")


def svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element that takes the page's colours; equal figures, equal text."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"radixlab {name}"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    for unwanted in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"font-family: [^;\"]*; "):
        drawn = re.sub(unwanted, "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*">', "<g>", drawn)  # two charts on one page would share them
    drawn = re.sub("#1f2328|#57606a", "currentColor", drawn)
    return drawn.replace("#e3e6ea", "var(--line)").replace("<svg ", '<svg aria-hidden="true" ', 1)
