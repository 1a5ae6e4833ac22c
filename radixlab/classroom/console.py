"""What `radixlab classroom` prints: grades, what the teacher should know, and why it refuses.

Imported with the command line, so it imports nothing that a classroom needs until it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from radixlab import _refusals
from radixlab._refusals import printable

if TYPE_CHECKING:
    from radixlab.classroom.gradebook import Gradebook
    from radixlab.classroom.roster import Matching
    from radixlab.classroom.sheet import Sheet

ROSTER = "roster.csv"
"""The people of the course, as they are kept in OUT."""


@contextmanager
def refusals() -> Iterator[Console]:
    """A console; whatever is refused is one line on stderr and exit status 2, no traceback."""
    with _refusals.refusals("classroom"):
        yield Console(highlight=False)


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup, no codes for the terminal, no line that is broken."""
    console.print(Text(printable(text), style), soft_wrap=True)


def print_paths(console: Console, paths: Iterable[Path]) -> None:
    """A line for each file that was written."""
    for path in paths:
        say(console, str(path))


def new_table(texts: Iterable[str], numbers: Iterable[str]) -> Table:
    """An empty table with these columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def print_ignored(console: Console, submissions: Path, sheet: Sheet) -> None:
    """Name what was not graded because it is no notebook."""
    from radixlab.classroom.collect import ignored_files

    for name in ignored_files(submissions):
        say(console, f"not graded: {name} (hand in {sheet.name}.ipynb)", "yellow")


def report(console: Console, book: Gradebook, out: Path, graded: set[str] | None = None) -> None:
    """Write tables and pages, show the grades, and say what waits for the teacher."""
    from radixlab.classroom.report import write_reports
    from radixlab.classroom.roster import match, read_roster

    kept = out / ROSTER
    matching = match(book.results, read_roster(kept)) if kept.exists() else None
    write_reports(book, out, matching)
    tasks = book.tasks()
    table = new_table(["student"], [*tasks, f"total of {book.sheet.total:g}"])
    for student in book.results:
        given = [book.points(student, task) for task in tasks]
        cells = ["open" if points is None else f"{points:g}" for points in given]
        table.add_row(Text(printable(student)), *cells, f"{book.total(student):g}")
    console.print(table)
    for student, result in book.results.items():
        for remark in filter(None, (result.problem, result.note)):
            say(console, f"{student}: {remark}", "yellow")
    if matching:
        show_matching(console, matching, "named")
    for line in _remarks(book, out, graded):
        say(console, line)
    print_paths(console, [out / "grades.csv", out / "statistics.html", out / "feedback"])


def _remarks(book: Gradebook, out: Path, graded: set[str] | None) -> Iterator[str]:
    """What the teacher should know."""
    if stale := sorted(set(book.results) - (graded or set(book.results))):
        yield f"In {out}, but not handed in (any more): {', '.join(stale)}"
    if waiting := sum(len(book.ungraded(student)) for student in book.results):
        answers = "1 answer in words waits" if waiting == 1 else f"{waiting} answers in words wait"
        yield f"{answers} for points: read {out / 'written.html'}, fill in"
        yield f"{out / 'written.csv'}, then: radixlab classroom feedback {book.sheet.name} {out}"
    for student, question in book.changed():
        yield f"{student} has changed the answer to {question} since it was graded: look again"


def show_matching(console: Console, matching: Matching, done: str) -> None:
    """Who of the roster is done, who handed in nothing, and whose submission is not clear."""
    for student, reason in matching.unmatched.items():
        say(console, f"not {done}: {student}: {reason}", "yellow")
    say(console, f"{len(matching.people)} {done}; {len(matching.missing)} handed in nothing:")
    say(console, "; ".join(person.label for person in matching.missing) or "none")
