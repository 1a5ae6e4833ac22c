"""Pages for students and teachers: feedback, answers in words beside the rubric, class statistics.

Each page is one file without a script that loads nothing. Whatever a student wrote is text on it,
never HTML; of hidden cases it says how many failed, and how, but never with what input.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from radixlab.classroom import outcome
from radixlab.classroom.checkresult import differences, style
from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.imports import what_is_there
from radixlab.classroom.picture import TreeDiff, is_tree, tree_diff
from radixlab.classroom.results import ExerciseResult, GroupResult, Shown
from radixlab.classroom.sheet import Exercise, Sheet
from radixlab.classroom.spreadsheet import write_text
from radixlab.classroom.summary import SHARES, Summary, plot_failures, plot_points

LONGEST = 2000
"""A value on a page is cut after so many characters."""

WAYS = outcome.WAYS | {
    "wrong value": "gave another value than the right one",
    "missing": "there is no function {exercise}: was it renamed or deleted?",
    "NotImplementedError": "not written yet: NotImplementedError is still raised there",
    "AttributeError": "asked an object for something that it does not have (AttributeError)",
    "IndexError": "asked a list for a place that it does not have (IndexError)",
    "KeyError": "asked a dictionary for a key that it does not have (KeyError)",
    "ModuleNotFoundError": "ModuleNotFoundError: graded code may import {imports}",
    "NameError": "used a name that is not defined (NameError)",
    "RecursionError": "called itself without an end (RecursionError)",
    "TypeError": "used a value of the wrong kind, or too many or few arguments (TypeError)",
}
"""How a case failed, as a sentence; the keys are those of `GroupResult.how`."""


def write_reports(book: Gradebook, out: Path) -> None:
    """Write `grades.csv`, `feedback/STUDENT.html`, `statistics.html` and `written.html`."""
    book.write_grades(out / "grades.csv")
    for student in book.results:
        write_text(out / "feedback" / f"{student}.html", feedback_page(book, student))
    write_text(out / "statistics.html", statistics_page(book))
    if book.sheet.written:
        write_text(out / "written.html", written_page(book))


def feedback_page(book: Gradebook, student: str) -> str:
    """What one student is told, as HTML."""
    return render("feedback.html", book=book, sheet=book.sheet, student=student)


def written_page(book: Gradebook) -> str:
    """All answers in words, question by question, beside the rubric: for the teacher."""
    return render("written.html", book=book, sheet=book.sheet)


def statistics_page(book: Gradebook) -> str:
    """How the class did: for the teacher."""
    summary = Summary.of(book)
    read = summary.submissions - len(summary.problems)
    return render(
        "statistics.html",
        sheet=book.sheet,
        summary=summary,
        shares=SHARES,
        points_chart=Markup(plot_points(summary.tasks)) if read else "",
        failures_chart=Markup(plot_failures(summary.failures, read)) if summary.failures else "",
    )


def verdict(group: GroupResult) -> str:
    """How many cases of a group were right, and what that means."""
    right = group.cases - len(group.failed)
    if right == group.cases:
        return f"all {group.cases} right" if group.cases > 1 else "right"
    nothing = "no points, since a group counts as a whole"
    return f"{right} of {group.cases} right: {nothing}"


def ways(group: GroupResult, exercise: str, sheet: Sheet) -> Iterator[str]:
    """How its cases failed, in sentences, the most frequent way first."""
    for way, count in sorted(group.how.items(), key=lambda item: (-item[1], item[0])):
        yield f"{count} {'case' if count == 1 else 'cases'}: {tell(way, exercise, sheet)}"


def tell(way: str, exercise: str, sheet: Sheet) -> str:
    """How a case failed, as a sentence."""
    if way not in WAYS:
        return f"stopped with the exception {way}" if way.isidentifier() else way
    imports = what_is_there(sheet.preload)
    limits = {"seconds": sheet.seconds, "memory": sheet.memory}
    return WAYS[way].format(exercise=exercise, imports=imports, **limits)


def came_back(case: Shown) -> bool:
    """Whether a case that failed gave a value at all."""
    return case.got is not None or case.how in ("", "wrong value")


def trees(case: Shown) -> list[TreeDiff]:
    """Pairs of trees in which the value differs from the expected one, if they are small."""
    if len(repr(case.got)) > LONGEST:
        return []
    found = differences(case.got, case.expected)
    return [tree_diff(got, wanted) for _, got, wanted in found if is_tree(got) and is_tree(wanted)]


def advice(exercise: Exercise, result: ExerciseResult | None) -> Iterator[str]:
    """What to do next; nothing if all is right."""
    failed = [group for group in result.groups if group.failed] if result else []
    how = {way for group in failed for way in group.how}
    if result and result.mistake:
        yield "Mend what the box above says, then look at the rest."
    elif "missing" in how:
        yield f"Write a function of the name {exercise.id}, in a cell of its own."
    elif "NotImplementedError" in how:
        yield "Begin with the first hint in your notebook, then write the function."
    elif any(group.visible for group in failed):
        yield f'Run check("{exercise.id}") in your notebook: it calls the same visible cases.'
    elif failed:
        names = " and ".join(group.name for group in failed)
        yield (
            f"The visible cases are right, so think of inputs that they don't have ({names}): "
            "the smallest, the largest, equal ones, in another order."
        )
    if failed and exercise.hints:
        yield "Read the hints again, one at a time."


def show(value: Any, indent: int = 0) -> str:
    """A value as Python writes it: on one line, or with a line for each part."""
    try:
        line = repr(value)
        if len(line) > LONGEST:
            return line[:LONGEST] + " …"
        return line if len(line) + indent <= 72 else _broken(value, line, indent)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _broken(value: Any, line: str, indent: int) -> str:
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, dict) and value:
        parts = [f"{key!r}: {show(part, indent + 1)}" for key, part in value.items()]
        return "{" + inner + f",{inner}".join(parts) + "}"
    if isinstance(value, list) and any(isinstance(part, list | dict) for part in value):
        return "[" + inner + f",{inner}".join(show(part, indent + 1) for part in value) + "]"
    return line


@cache
def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("radixlab.classroom"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = MarkdownIt("commonmark", {"html": False}).enable("table")
    pages.filters |= {
        "points": lambda number: f"{number:g}",
        "inline": lambda source: Markup(text.renderInline(source)),
        "markdown": lambda source: Markup(text.render(source)),
        "show": show,
        "verdict": verdict,
    }
    pages.globals |= {"ways": ways, "tell": tell, "came_back": came_back, "trees": trees}
    pages.globals |= {"what_is_there": what_is_there}
    pages.globals |= {"advice": advice, "picture_style": Markup(style())}
    return pages


def render(template: str, **names: Any) -> str:
    """A page from one of our templates; whatever is put into it is text, never HTML."""
    return _environment().get_template(template).render(**names)
