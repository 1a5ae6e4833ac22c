"""An exercise sheet: one MyST text from which notebooks, page, checks and grades are made.

The cells say by their metadata what they are for (`Role`). Nothing here runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

import jupytext

from radixlab.classroom.ways import Limits
from radixlab.errors import InvalidArgument, RadixLabError

PACKAGE = Path(__file__).resolve().parent
SHEET_FOLDERS = (PACKAGE / "sheets", PACKAGE.parents[1] / "book" / "exercises")
"""Where sheets are looked for: in the installed package, and in the repository."""

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
SOLUTION = re.compile(
    rf"^(?P<indent>[ \t]*){BEGIN}\n(?P<code>.*?)^[ \t]*{END}", re.DOTALL | re.MULTILINE
)
"""A block of an answer cell that is the teacher's alone."""


class BadSheet(RadixLabError, ValueError):
    """A sheet's source breaks a rule; says which sheet, which cell and what is wrong."""

    def __init__(self, sheet: str, problem: str) -> None:
        super().__init__(f"sheet {sheet}: {problem}")
        self.sheet, self.problem = sheet, problem


class Role(StrEnum):
    """What a cell is for."""

    PAGE = "page"  # text, imports, pictures: for readers, never graded
    GIVEN = "given"  # code that the student gets, and that the grader runs first
    ANSWER = "answer"  # a stub to fill in, with the solution between two marks
    DRIVER = "driver"  # takes a case's arguments to the student's code and the result back
    CASES = "cases"  # makes the cases; the teacher's, never run in the sandbox
    WRONG = "wrong"  # one common mistake, and the sentence that names it
    HINT = "hint"  # one of several, from a nudge to nearly there
    WRITTEN = "written"  # a question to be answered in words
    RUBRIC = "rubric"  # how such an answer is graded; the teacher's


TEACHERS = frozenset({Role.DRIVER, Role.CASES, Role.WRONG, Role.RUBRIC})
"""Roles that no student's notebook and no page shows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the source; `exercise` is "" where it belongs to none."""

    role: Role
    exercise: str
    is_code: bool
    source: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A common mistake as code, and what to say to whoever makes it."""

    message: str
    source: str


@dataclass(frozen=True, slots=True)
class Exercise:
    """What is asked for, and all that grades it; `points` by group of cases, in order."""

    id: str
    points: dict[str, float]
    visible: tuple[str, ...]
    entry: str
    answer: str
    driver: str
    cases: str
    wrong: tuple[Wrong, ...]
    hints: tuple[str, ...]

    @property
    def stub(self) -> str:
        """What the student starts from."""
        return strip_solution(self.answer, self.id)

    @property
    def solution(self) -> str:
        """The reference solution."""
        return keep_solution(self.answer)

    @property
    def names(self) -> tuple[str, ...]:
        """The functions and classes that the student has to define."""
        return tuple(re.findall(r"^(?:def|class) (\w+)", self.stub, re.MULTILINE))

    @property
    def total(self) -> float:
        """Points of all groups."""
        return sum(self.points.values())


@dataclass(frozen=True, slots=True)
class Written:
    """A question to be answered in words, graded by hand along the rubric."""

    id: str
    points: float
    question: str
    rubric: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet as read; `seconds` of CPU time and `memory` in MiB are what one call may take."""

    name: str
    title: str
    preload: tuple[str, ...]
    models: tuple[str, ...]
    seconds: float
    memory: int
    given: str
    cells: tuple[Cell, ...]
    exercises: dict[str, Exercise]
    written: dict[str, Written]
    text: str = field(repr=False)
    """The source itself."""

    @property
    def total(self) -> float:
        """Points of the whole sheet, written answers included."""
        return sum(e.total for e in self.exercises.values()) + sum(
            w.points for w in self.written.values()
        )

    @property
    def limits(self) -> Limits:
        """What a call may take and import."""
        return Limits(self.seconds, self.memory, self.preload)

    @staticmethod
    def read(path: Path) -> Sheet:
        """Read and check a source; raises `BadSheet`, or OSError if the file can't be read."""
        return parse_sheet(path.read_text(encoding="utf-8"), path.stem)


def find_sheets() -> list[Path]:
    """The sources of the sheets that come with radixlab, in order."""
    for folder in SHEET_FOLDERS:
        if paths := sorted(folder.glob("[0-9][0-9]-*.md")):
            return paths
    return []


def load_sheet(name: str | Path) -> Sheet:
    """A sheet by its name ("02-split"), its beginning ("02") or the path of its source."""
    path = Path(name)
    if path.suffix == ".md":
        return Sheet.read(path)
    there = {sheet.stem: sheet for sheet in find_sheets()}
    begin = f"0{name}-" if re.fullmatch("[1-9]", str(name)) else str(name)
    found = [sheet for stem, sheet in there.items() if stem.startswith(begin)]
    if str(name) in there:
        found = [there[str(name)]]
    if not name or len(found) != 1:
        allowed = f"one of {', '.join(there)}, or a path to NAME.md"
        raise InvalidArgument("sheet", str(name), allowed)
    return Sheet.read(found[0])


def parse_sheet(text: str, name: str) -> Sheet:
    """A sheet from its MyST text; `name` is the file's stem."""
    notebook = jupytext.reads(text, fmt="md:myst")
    settings = dict(notebook.metadata.get("radixlab", {}))
    cells = tuple(_cells(notebook.cells, name))
    ids = [c.exercise for c in cells if c.role is Role.ANSWER]
    questions = [c for c in cells if c.role is Role.WRITTEN]
    known = {*ids, *(c.exercise for c in questions)}
    if settings.get("sheet") != name:
        problem = f"its header calls it {settings.get('sheet')!r}"
        raise BadSheet(name, f"{problem}: write `sheet: {name}` there, or rename the file")
    if len(known) < len(ids) + len(questions):
        raise BadSheet(name, "an exercise has two answer cells")
    for cell in cells:
        if cell.role not in (Role.PAGE, Role.GIVEN) and cell.exercise not in known:
            raise BadSheet(name, f"a {cell.role} cell belongs to no exercise: {cell.exercise!r}")
    return Sheet(
        name=name,
        title=str(settings.get("title", name)),
        preload=tuple(settings.get("preload", ())),
        models=tuple(settings.get("models", ())),
        seconds=float(settings.get("seconds", 2)),
        memory=int(settings.get("memory", 512)),
        given="\n\n".join(c.source for c in cells if c.role is Role.GIVEN),
        cells=cells,
        exercises={i: _exercise(i, cells, name) for i in ids},
        written={c.exercise: _written(c, cells, name) for c in questions},
        text=text,
    )


def _cells(cells: list[Any], sheet: str) -> Iterator[Cell]:
    for cell in cells:
        metadata = dict(cell.metadata)
        word = metadata.get("role", "page")
        if word not in set(Role):
            raise BadSheet(sheet, f"unknown role {word!r}; there are {', '.join(Role)}")
        exercise = str(metadata.get("exercise", ""))
        yield Cell(Role(word), exercise, cell.cell_type == "code", cell.source, metadata)


def _exercise(exercise: str, cells: tuple[Cell, ...], sheet: str) -> Exercise:
    def sources(role: Role) -> list[str]:
        return [c.source for c in cells if c.exercise == exercise and c.role is role]

    (answer,) = (c for c in cells if c.exercise == exercise and c.role is Role.ANSWER)
    points = {str(group): float(p) for group, p in answer.metadata.get("points", {}).items()}
    visible = tuple(map(str, answer.metadata.get("visible", ())))
    if not points or min(points.values()) < 0:
        raise BadSheet(sheet, f"{exercise} needs points for each group of cases, 0 or more")
    if not visible or not set(visible) < set(points):
        raise BadSheet(sheet, f"{exercise} needs visible groups, and at least one hidden")
    if answer.source.count(BEGIN) < 1 or answer.source.count(BEGIN) != answer.source.count(END):
        raise BadSheet(sheet, f"{exercise} needs its solution between {BEGIN!r} and {END!r}")
    if not sources(Role.CASES):
        raise BadSheet(sheet, f"{exercise} has no cases")
    return Exercise(
        id=exercise,
        points=points,
        visible=visible,
        entry=str(answer.metadata.get("entry", exercise)),
        answer=answer.source,
        driver="\n\n".join(sources(Role.DRIVER)),
        cases="\n\n".join(sources(Role.CASES)),
        wrong=tuple(_wrong(source, exercise, sheet) for source in sources(Role.WRONG)),
        hints=tuple(sources(Role.HINT)),
    )


def _wrong(source: str, exercise: str, sheet: str) -> Wrong:
    """A mistake's sentence stands in the comment that the cell begins with."""
    head = takewhile(lambda line: line.startswith("#"), source.splitlines())
    message = " ".join(line.lstrip("# ").strip() for line in head)
    if not message:
        raise BadSheet(sheet, f"a wrong cell of {exercise} does not begin with a comment")
    return Wrong(message, source)


def _written(question: Cell, cells: tuple[Cell, ...], sheet: str) -> Written:
    same = [c for c in cells if c.exercise == question.exercise and c.role is Role.RUBRIC]
    if not same:
        raise BadSheet(sheet, f"the written question {question.exercise} has no rubric")
    rubric = "\n\n".join(c.source for c in same)
    points = float(question.metadata.get("points", 0))
    return Written(question.exercise, points, question.source, rubric)


def strip_solution(source: str, exercise: str) -> str:
    """Put a loud failure in the place of each solution."""
    return SOLUTION.sub(rf'\g<indent>raise NotImplementedError("write {exercise}")', source)


def keep_solution(source: str) -> str:
    """Take out the marks and keep what stands between them."""
    return re.sub(rf"^[ \t]*({BEGIN}|{END})\n?", "", source, flags=re.MULTILINE).rstrip()
