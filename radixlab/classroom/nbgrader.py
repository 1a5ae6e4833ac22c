"""nbgrader's front end: sheets as its assignments, graded in our sandbox instead of in its kernel.

nbgrader keeps what it does well: exchange, gradebook, formgrader. Where it would trust what a
student sent, the course's settings (`SAFETY`) name something of this file. They name it in strings:
if radixlab can't be imported, nbgrader stops, and never goes back to its own executor.
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from nbconvert.exporters import NotebookExporter
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.preprocessors import NbGraderPreprocessor

from radixlab.classroom import SEED
from radixlab.classroom.build import CHECK, WORDS, nbgrader_notebook, notebook_text
from radixlab.classroom.checks import PACK
from radixlab.classroom.grade import AnswerKey, grade_submission, own_cells
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.report import render
from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.sheet import Role, Sheet, parse_sheet
from radixlab.classroom.spreadsheet import spelled
from radixlab.classroom.submission import CodeCell, about_of, read_submission
from radixlab.classroom.words import find_answers
from radixlab.errors import RadixLabError

Notebook = Any
"""An `nbformat` notebook or one of its cells; nbformat's functions have no types."""
_nbformat: Any = nbformat
_v4: Any = nbformat.v4


class BadCourse(RadixLabError):
    """A course's folder can't be used as it is; says which file, and what to do."""


# --- the course ----------------------------------------------------------------------------------

SAFETY = {
    "Autograde": {
        "pre_convert_hook": f"{__name__}.drop_links",
        "exporter_class": f"{__name__}.SubmittedExporter",
        "sanitize_preprocessors": [],  # what SubmittedExporter makes has nothing of a student's
        "autograde_preprocessors": [
            f"{__name__}.SandboxedExecute",  # in place of Execute
            "nbgrader.preprocessors.SaveAutoGrades",
            "nbgrader.preprocessors.AssignLatePenalties",
            "nbgrader.preprocessors.CheckCellMetadata",
        ],
    },
    "ExchangeFactory": {"collect": f"{__name__}.PlainCollect"},
}
"""`nbgrader_config.json`. A file of its own, since nbgrader only logs an error in a settings file
and goes on without it: a slip in the teacher's settings must not switch the sandbox off."""

CONFIG = '''\
"""Your settings of nbgrader for this course; `radixlab classroom nbgrader` wrote them once.

How submissions are read and graded stands in nbgrader_config.json: leave that file to radixlab.
"""

import os
import sys
from pathlib import Path

course = Path(__file__).resolve().parent
c = get_config()  # nbgrader defines it

c.CourseDirectory.course_id = COURSE  # students' settings need the same name
c.CourseDirectory.root = str(course)

# Where notebooks change hands. This one is for trying things out alone. With JupyterHub it is a
# folder that every student's server sees, such as "/srv/nbgrader/exchange".
c.Exchange.root = str(course / "exchange")

# nbgrader copies whatever lies beside a notebook into the release: but none of these.
c.CourseDirectory.ignore = [".*", "__pycache__", "feedback", "results", "*solution*"]
c.CourseDirectory.ignore += ["*.csv", "*.db", "*.html", "*.md", "*.py", "*.pyc"]

c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("write this")'}
c.ClearSolutions.text_stub = "*Your answer here*"

# nbgrader calls `alembic` by its bare name: it is beside the Python that runs nbgrader.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
'''

IGNORED = """\
# What is about people stays out of version control, and so does the release, which is made anew.
.ipynb_checkpoints/
/autograded/
/exchange/
/feedback/
/gradebook.db*
/release/
/submitted/
"""


def write_course(folder: Path, sheets: Sequence[Sheet]) -> None:
    """Make a course of these sheets, or bring their sources in it up to date.

    The teacher's settings, submissions and grades are left alone. Each sheet's text goes to
    `sheets/`, which grading reads: a newer radixlab does not change a course that is under way.
    Raises `BadCourse` if the folder is a course of nbgrader without our sandbox.
    """
    config, safety = folder / "nbgrader_config.py", folder / "nbgrader_config.json"
    if config.exists() and not (safety.exists() and __name__ in safety.read_text(encoding="utf-8")):
        problem = f"{config} is not from radixlab: student code would run without a sandbox"
        raise BadCourse(f"{problem}; choose another folder")
    for name in ("sheets", "source", "exchange"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    safety.write_text(json.dumps(SAFETY, indent=2) + "\n", encoding="utf-8")
    settings = CONFIG.replace("COURSE", json.dumps(folder.resolve().name))
    for path, text in ((config, settings), (folder / ".gitignore", IGNORED)):
        if not path.exists():
            path.write_text(text, encoding="utf-8")
    for sheet in sheets:
        source, pack = folder / "source" / sheet.name, json.dumps(visible_pack(sheet), indent=1)
        texts = {
            source / f"{sheet.name}.ipynb": notebook_text(nbgrader_notebook(sheet)),
            source / f"{sheet.name}{PACK}": pack + "\n",  # released as it is
            folder / "sheets" / f"{sheet.name}.md": sheet.text,
        }
        source.mkdir(exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")


# --- what comes in -------------------------------------------------------------------------------


def odd_files(folder: Path) -> list[Path]:
    """Links, pipes and the like: reading one gives something else than what was handed in."""
    modes = {path: path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
    return [path for path, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


class PlainCollect(ExchangeCollect):  # type: ignore[misc]  # nbgrader publishes no types
    """Collects submissions, but none with a link, which nbgrader follows with the teacher's rights.

    What it points to, the solution for instance, would come back as feedback.
    """

    def do_copy(self, src: str, dest: str, log: object = None) -> None:
        """Copy one submission."""
        if odd := odd_files(Path(src)):
            self.log.error("Not collected, since it is no plain file: %s", odd[0])
            return
        super().do_copy(src, dest, log)


def drop_links(assignment: str, student: str, notebooks: list[str]) -> None:
    """A hook that nbgrader calls before it copies a submission, with the notebooks' paths."""
    for path in {odd for notebook in notebooks for odd in odd_files(Path(notebook).parent)}:
        path.unlink()


class SubmittedExporter(NotebookExporter):
    """Reads a submission as the released notebook with the student's code in it.

    Cells that are given, checks, points, ids, metadata and outputs are the release's, whatever was
    sent; so that no notebook is too broken to be graded.
    """

    def from_filename(
        self, filename: str, resources: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """Read a file; the one that was made of a submission before, as it is."""
        converter: Any = self.parent
        course, names, path = converter.coursedir, (resources or {})["nbgrader"], Path(filename)
        if path == path_of(names, course, course.autograded_directory):
            return super().from_filename(filename, resources, **options)
        if odd := odd_files(path.parent):
            raise BadCourse(f"{odd[0]} is no plain file: delete it, and autograde again")
        released = path_of(names | {"student": "."}, course, course.release_directory)
        release = _nbformat.read(released, as_version=4)
        submission = read_submission(path)
        sheet = sheet_of(Path(course.root), names["notebook"])
        filled = fill(release, own_cells(sheet, submission), find_answers(sheet, submission))
        exported: tuple[str, Any] = self.from_notebook_node(filled, resources)  # type: ignore[no-untyped-call]  # nbconvert's
        return exported


def path_of(names: dict[str, str], course: Any, step: str) -> Path:
    """Where a notebook is after a step; `names` is what nbgrader tells its preprocessors of it."""
    folder = course.format_path(step, names["student"], names["assignment"])
    return Path(folder, f"{names['notebook']}.ipynb")


LONGEST = 20_000
"""Characters of a cell that are kept for reading: colouring millions takes hours."""
CUT = "\n# ... (cut here for reading; all of it was graded)"


def fill(release: Notebook, code_cells: Sequence[CodeCell], answers: dict[str, str]) -> Notebook:
    """The released notebook with a student's code, and answers in words, in it.

    Code that has no place in the release, such as a second answer or what was typed into a cell
    that is not for it, becomes a cell of its own before the answer that follows.
    """
    places = {about_of(cell)["exercise"]: cell for cell in release.cells if _is(cell, Role.ANSWER)}
    before: dict[str, list[Notebook]] = {exercise: [] for exercise in places}
    own: list[Notebook] = []
    for code in code_cells:
        place = places.pop(code.exercise, None)
        if place is None:
            own.append(_v4.new_code_cell(id=f"own-{code.number}", metadata={"radixlab": {}}))
        else:
            before[code.exercise], own = own, []
        cell, cut = place or own[-1], CUT if len(code.source) > LONGEST else ""
        cell.source = spelled(code.source[:LONGEST] + cut)
        about_of(cell)["number"] = code.number
    cells = []
    for cell in release.cells:
        exercise = about_of(cell).get("exercise", "")
        if _is(cell, WORDS) and answers.get(exercise):
            cell.source = shown_safely(spelled(answers[exercise]))
        cells += [*(before[exercise] if _is(cell, Role.ANSWER) else []), cell]
    release.cells = cells + own
    return release


def _is(cell: Notebook, role: str) -> bool:
    return about_of(cell).get("role") == role


def shown_safely(text: str) -> str:
    """A student's Markdown as HTML without any of theirs, and with nothing that is Markdown again.

    nbgrader would show their HTML, scripts too, within the teacher's Jupyter, and it would stop at
    an attachment that is not there.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    page = markdown.disable(["image", "reference"]).render(text)
    return f"<div>{page}</div>".translate({ord(sign): f"&#{ord(sign)};" for sign in "\n[$\\"})


# --- grading -------------------------------------------------------------------------------------


class SandboxedExecute(NbGraderPreprocessor):  # type: ignore[misc]  # nor here
    """Writes points and feedback into the check cells, after grading in the sandbox."""

    def preprocess(self, nb: Notebook, resources: Any) -> tuple[Notebook, Any]:
        """Grade what was submitted by the sheet of the notebook's name in the course."""
        course, names = self.parent.parent.coursedir, resources["nbgrader"]
        key = answer_key(Path(course.root), names["notebook"])
        _refuse_another(nb, key.sheet)
        submitted = path_of(names, course, course.submitted_directory)
        result = grade_submission(key, names["student"], submitted)
        failed = dict(result.cells)
        for cell in nb.cells:
            if _is(cell, CHECK):
                cell.outputs = [check_output(key.sheet, result, about_of(cell)["exercise"])]
            elif (number := about_of(cell).get("number")) in failed:
                told = f"This cell stops with {failed[number]} when the notebook is run.\n"
                cell.outputs = [_v4.new_output("stream", name="stdout", text=told)]
        return nb, resources


def _refuse_another(release: Notebook, sheet: Sheet) -> None:
    """Raise `BadCourse` if the sheet was changed after the release, and points can't fit."""
    checks = [cell for cell in release.cells if _is(cell, CHECK)]
    released = {about_of(c)["exercise"]: c.metadata["nbgrader"]["points"] for c in checks}
    if released != {exercise.id: exercise.total for exercise in sheet.exercises.values()}:
        problem = f"sheets/{sheet.name}.md has other exercises or points than the release"
        raise BadCourse(f"{problem}: run nbgrader generate_assignment again")


def answer_key(course: Path, name: str) -> AnswerKey:
    """What a course's sheet is graded with. Raises `BadCourse` if sheet or seed are not there."""
    seed = os.environ.get(SEED, "").strip()
    if not seed:
        raise BadCourse(f"set {SEED} to your seed: hidden cases are made from it")
    return _make_key(sheet_text(course, name), name, seed)


def sheet_of(course: Path, name: str) -> Sheet:
    """A course's sheet. Raises `BadCourse` if it is not there."""
    return _parse(sheet_text(course, name), name)


def sheet_text(course: Path, name: str) -> str:
    """The source of a course's sheet. Raises `BadCourse` if it is not there."""
    path = course / "sheets" / f"{name}.md"
    if not path.exists():
        raise BadCourse(f"{path} is not there, and only sheets of radixlab can be graded here")
    return path.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=2)
def _make_key(text: str, name: str, seed: str) -> AnswerKey:
    return AnswerKey.make(_parse(text, name), seed)


_parse = functools.lru_cache(maxsize=2)(parse_sheet)


def check_output(sheet: Sheet, result: SubmissionResult, exercise: str) -> Notebook:
    """The output of a check cell: a number, which nbgrader takes for the points, and feedback."""
    graded = result.find(exercise)
    page = render("nbgrader.html", sheet=sheet, result=result, graded=graded)
    points = float(graded.points) if graded else 0.0
    data = {"text/plain": repr(points), "text/html": spelled(page)}
    return _v4.new_output("execute_result", data)
