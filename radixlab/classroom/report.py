"""Pages for students and teachers: feedback, answers in words beside the rubric, class statistics.

Each page is one file without a script that loads nothing. Whatever a student wrote is text on it,
never HTML; of hidden cases it says how many failed, and how, but never with what input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from radixlab.classroom.caseresult import CaseResult, case_result
from radixlab.classroom.checkresult import case_text, cases_html, style
from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.imports import what_is_there
from radixlab.classroom.packs import task_of
from radixlab.classroom.results import ExerciseResult, GroupResult, SubmissionResult
from radixlab.classroom.roster import Matching
from radixlab.classroom.sheet import Exercise, Sheet
from radixlab.classroom.spreadsheet import write_text
from radixlab.classroom.summary import SHARES, Summary, plot_failures, plot_points
from radixlab.classroom.ways import tell


def write_reports(book: Gradebook, out: Path, matching: Matching | None = None) -> None:
    """Write `grades.csv`, `feedback/STUDENT.html`, `statistics.html` and `written.html`."""
    book.write_grades(out / "grades.csv", matching)
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
        yield f"{count} {'case' if count == 1 else 'cases'}: {tell(way, exercise, sheet.limits)}"


def failed_cases(group: GroupResult, exercise: Exercise, sheet: Sheet) -> list[CaseResult]:
    """The visible cases of a group that failed, as `check` has them."""
    task = task_of(exercise)
    return [
        case_result(task, each.number, each.case, each.outcome, sheet.limits)
        for each in group.shown
        if group.visible
    ]


def notes(sheet: Sheet, result: SubmissionResult) -> Iterator[str]:
    """What is to be said of the file as a whole, and of cells that fail."""
    if result.problem:
        yield f"Your file could not be graded: {result.problem}"
    if result.note:
        yield result.note
    for number, name in result.cells:
        stops = f"Code cell {number} of your notebook stops with {name}"
        if name == "ModuleNotFoundError":
            yield (
                f"{stops}, so what that line defines is missing: graded code may import "
                f"{what_is_there(sheet.preload)}. Write it without the other module, or delete the "
                "import."
            )
        else:
            yield (
                f"{stops} when it is run from top to bottom, so what that line defines is missing. "
                "Restart the kernel, run all cells, and mend the first that fails."
            )


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
    filters: dict[str, Callable[..., str]] = {
        "points": lambda number: f"{number:g}",
        "inline": lambda source: Markup(text.renderInline(source)),
        "markdown": lambda source: Markup(text.render(source)),
        "as_html": lambda cases: Markup(cases_html(cases)),
        "as_text": case_text,
        "verdict": verdict,
    }
    pages.filters |= filters
    pages.globals |= {"ways": ways, "failed_cases": failed_cases, "notes": notes, "advice": advice}
    pages.globals |= {"picture_style": Markup(style())}
    return pages


def render(template: str, **names: Any) -> str:
    """A page from one of our templates; whatever is put into it is text, never HTML."""
    return _environment().get_template(template).render(**names)
