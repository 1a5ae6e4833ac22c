"""Feedback on its way back: a zip that Moodle, or Canvas, sorts to its students by file names.

Moodle reads `Jane Doe_678_assignsubmission_file_NAME` and keeps NAME. Canvas needs the very name
that it gave to what was handed in, and shows the file under the name that the student gave it: so a
notebook is answered by a notebook, and a script by a script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat

from radixlab.classroom.build import notebook_text
from radixlab.classroom.checkresult import case_text
from radixlab.classroom.collect import CANVAS, MOODLE
from radixlab.classroom.gradebook import Gradebook
from radixlab.classroom.report import advice, failed_cases, feedback_page, notes, verdict, ways
from radixlab.classroom.results import ExerciseResult
from radixlab.classroom.sheet import Exercise
from radixlab.classroom.spreadsheet import spelled, write_zip
from radixlab.errors import InvalidArgument

_v4: Any = nbformat.v4  # its functions have no types


def write_zips(book: Gradebook, out: Path, students: Iterable[str]) -> tuple[list[Path], list[str]]:
    """Write OUT/feedback-moodle.zip and OUT/feedback-canvas.zip for these students.

    Returns the zips, and who came from neither. Raises `InvalidArgument` if nobody came from one.
    """
    zips: dict[str, dict[str, bytes]] = {}
    others = []
    for student in students:
        came_as = book.results[student].came_as
        path = Path(came_as)
        if moodle := MOODLE.fullmatch(came_as):
            prefix = f"{moodle['name']}_{moodle['number']}_assignsubmission_file"
            page = feedback_page(book, student)
            zips.setdefault("moodle", {})[f"{prefix}_{book.sheet.name}.html"] = _bytes(page)
        elif path.suffix and CANVAS.fullmatch(path.stem):
            text = feedback_text(book, student)
            zips.setdefault("canvas", {})[came_as] = _bytes(_in_the_form_of(path.suffix, text))
        else:
            others.append(student)
    if not zips:
        allowed = (
            "results of a download from Moodle or Canvas with its names as they were (such as "
            "'Jane Doe_678_assignsubmission_file', 'doejane_678_9001_02-split.ipynb'); these came "
            f"from neither, so hand out the pages in {out / 'feedback'}"
        )
        raise InvalidArgument("OUT", str(out), allowed)
    paths = {out / f"feedback-{system}.zip": files for system, files in sorted(zips.items())}
    for archive, files in paths.items():
        write_zip(archive, files)
    return list(paths), others


def _bytes(text: str) -> bytes:
    return spelled(text).encode()


def _in_the_form_of(suffix: str, text: str) -> str:
    """The text as a script of comments, or as a notebook of one cell."""
    if suffix == ".py":
        return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
    cell = _v4.new_markdown_cell(spelled(text), id="feedback")
    return notebook_text(_v4.new_notebook(cells=[cell]))


def feedback_text(book: Gradebook, student: str) -> str:
    """What one student is told, as Markdown; `report.feedback_page` has the same with pictures."""
    return "\n\n".join(_paragraphs(book, student)) + "\n"


def _paragraphs(book: Gradebook, student: str) -> Iterator[str]:
    sheet, so_far = book.sheet, " so far" if book.ungraded(student) else ""
    yield f"# Feedback: {sheet.title}"
    yield f"**{book.total(student):g} of {sheet.total:g} points{so_far}**"
    yield from notes(sheet, book.results[student])
    for exercise in sheet.exercises.values():
        given = f"{book.points(student, exercise.id):g} of {exercise.total:g} points"
        yield f"## {exercise.id}: {given}"
        if graded := book.result(student, exercise.id):
            yield from _exercise(book, exercise, graded)
        else:
            yield "Not run."
    for question in sheet.written.values():
        mark = book.mark(student, question.id)
        given = "not graded yet" if mark.points is None else f"{mark.points:g}"
        yield f"## {question.id}: {given} of {question.points:g} points"
        if mark.comment:
            yield _fenced(mark.comment)


def _exercise(book: Gradebook, exercise: Exercise, graded: ExerciseResult) -> Iterator[str]:
    if graded.mistake:
        yield f"**What seems to be wrong:** {graded.mistake}"
    for group in graded.groups:
        kind = "visible" if group.visible else "hidden"
        told = [f"* {group.name} ({kind}): {verdict(group)}"]
        told += [f"  * {way}" for way in ways(group, exercise.id, book.sheet)]
        yield "\n".join(told)
    for group in graded.groups:
        for case in failed_cases(group, exercise, book.sheet):
            yield _fenced(case_text(case))
    if steps := list(advice(exercise, graded)):
        yield "What to do next:\n\n" + "\n".join(f"* {step}" for step in steps)


def _fenced(text: str) -> str:
    """The text as it is, whatever signs of Markdown are in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
