"""From a sheet: the student's, the teacher's and nbgrader's notebook, and the page of the site.

Each is put together from the cells that it may show, so nothing has to be taken out of it again;
`refuse_leaks` then looks at the result once more. The same sheet always gives the same bytes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from radixlab.classroom.imports import what_is_there
from radixlab.classroom.leaks import refuse_leaks
from radixlab.classroom.sheet import BEGIN, END, TEACHERS, BadSheet, Cell, Exercise, Role, Sheet

Notebook = Any
"""An `nbformat` notebook; nbformat's functions have no types."""
_nbformat: Any = nbformat
_v4: Any = nbformat.v4

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
"""As JupyterLab itself writes it."""
PLACEHOLDER = "*Your answer here*"
CHECK, WORDS = "check", "written-answer"
"""Roles of cells that only notebooks have: a check, and the place for an answer in words."""

HOW = """\
*How this sheet works.* Where a cell says `raise NotImplementedError`, put your code, run the cell,
then run the check below it. **A check shows a few visible cases; when you hand in, hidden ones are
run as well**, so passing here is necessary and not yet enough. Hints are folded: try first. Hand in
this file, `{name}.ipynb`, with your answers in it. Code that is graded may import {imports};
nothing else is there. The sheet is worth {points}: {each}."""

MYST = {
    r"^ {0,3}:::": "a colon fence",
    r"^ {0,3}(```+|~~~+) ?\{": "a directive",
    r"\{[a-z][\w:+-]*\}`": "a role",
    r"^\([\w-]+\)=$": "a label",
}
"""What only the site can show; a notebook would show its source."""


def language_info() -> dict[str, Any]:
    """What a kernel of this Python says of its language.

    JupyterLab writes it into a notebook, which then counts as changed, unless it stands there.
    """
    return {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": platform.python_version(),
    }


# --- notebooks -----------------------------------------------------------------------------------


def student_notebook(sheet: Sheet) -> Notebook:
    """What students get: stubs, checks, folded hints and room for answers in words.

    Raises `BadSheet` if a text can't be shown in a notebook or says a line that is the teacher's.
    """
    notebook = _notebook(sheet, _student_cells(sheet))
    notebook.metadata["radixlab"]["digest"] = digest(notebook)
    refuse_leaks(sheet, notebook)
    return notebook


def released_cells(sheet: Sheet) -> Iterator[tuple[str, str, str]]:
    """Role, exercise and text of the cells that students get, but for how the sheet works.

    What a submission has of them is not the student's.
    """
    for cell in _later_cells(sheet, sheet.cells):
        yield *_said(cell), cell.source


def teacher_notebook(sheet: Sheet) -> Notebook:
    """Everything: solutions in place of stubs, drivers, cases, mistakes and rubrics.

    It runs from beginning to end, so what is not the solution's stands in text cells.
    """
    return _notebook(sheet, _teacher_cells(sheet))


def nbgrader_notebook(sheet: Sheet) -> Notebook:
    """The source notebook for nbgrader (metadata of schema 3): the student's one, with solutions.

    Grade ids: `given-1`, ... for given cells (locked); for an exercise `ID` an answer cell `ID`
    (solution, no points, its solution between the marks that ClearSolutions looks for) and a check
    cell `ID-check` (grade, locked, the exercise's points); for a question in words `ID` a locked
    cell `ID-question` and an answer cell `ID` (solution and grade, graded by hand), which holds the
    rubric between the same marks, so that ClearSolutions leaves its own `text_stub` there.
    """
    return _notebook(sheet, _nbgrader_cells(sheet))


def _student_cells(sheet: Sheet) -> Iterator[Notebook]:
    yield from _open(sheet)
    yield from _later_cells(sheet, sheet.cells[1:])


def _later_cells(sheet: Sheet, cells: Iterable[Cell]) -> Iterator[Notebook]:
    """All but the first, which is the title."""
    for cell in cells:
        if cell.role is Role.ANSWER:
            yield _cell(cell, sheet.exercises[cell.exercise].stub)
            yield _check_cell(cell.exercise)
        elif cell.role is Role.WRITTEN:
            yield _cell(cell, _plain(sheet, _question(sheet, cell)))
            yield _markdown(WORDS, cell.exercise, PLACEHOLDER)
        elif cell.role is Role.HINT:
            yield _cell(cell, _folded(sheet, cell))
        elif cell.role not in TEACHERS:
            yield _cell(cell, cell.source if cell.is_code else _plain(sheet, cell.source))


def _teacher_cells(sheet: Sheet) -> Iterator[Notebook]:
    for shown in _student_cells(sheet):
        role, exercise = _said(shown)
        if role == Role.ANSWER:
            shown.source = sheet.exercises[exercise].solution
        if role == WORDS:
            written = sheet.written[exercise]
            shown.source = f"**Rubric** ({_points(written.points)})\n\n{written.rubric}"
        yield shown
        if role == CHECK:
            yield from _background(sheet.exercises[exercise])


def _background(exercise: Exercise) -> Iterator[Notebook]:
    """What grades an exercise, as text."""
    points = ", ".join(
        f"{group} {p:g}{' (visible)' * (group in exercise.visible)}"
        for group, p in exercise.points.items()
    )
    yield _markdown(Role.CASES, exercise.id, f"**Points** {points}\n\n{_fenced(exercise.cases)}")
    yield _markdown(Role.DRIVER, exercise.id, f"**Driver**\n\n{_fenced(exercise.driver)}")
    for wrong in exercise.wrong:
        text = f"**A mistake.** {wrong.message}\n\n{_fenced(wrong.source)}"
        yield _markdown(Role.WRONG, exercise.id, text)


def _nbgrader_cells(sheet: Sheet) -> Iterator[Notebook]:
    given = 0
    for cell in _student_cells(sheet):
        role, exercise = _said(cell)
        if role == Role.GIVEN:
            given += 1
            _mark(cell, f"given-{given}", locked=True)
        elif role == Role.ANSWER:
            cell.source = sheet.exercises[exercise].answer
            _mark(cell, exercise, solution=True)
        elif role == CHECK:
            _mark(cell, f"{exercise}-check", locked=True, points=sheet.exercises[exercise].total)
        elif role == Role.WRITTEN:
            _mark(cell, f"{exercise}-question", locked=True)
        elif role == WORDS:
            cell.source = f"{BEGIN}\n{sheet.written[exercise].rubric}\n{END}"
            _mark(cell, exercise, solution=True, points=sheet.written[exercise].points)
        yield cell


def _mark(
    cell: Notebook,
    grade_id: str,
    *,
    locked: bool = False,
    solution: bool = False,
    points: float | None = None,
) -> None:
    """Tell nbgrader what a cell is for; a cell with points is graded."""
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points is not None,
        "solution": solution,
        "locked": locked,
        "task": False,
    } | ({} if points is None else {"points": points})


# --- cells ---------------------------------------------------------------------------------------


def _open(sheet: Sheet) -> Iterator[Notebook]:
    """The title, and how the sheet works."""
    first = sheet.cells[0]
    title, _, rest = first.source.partition("\n")
    if first.role is not Role.PAGE or not title.startswith("# "):
        raise BadSheet(sheet.name, "it does not begin with a text cell and its title, '# ...'")
    if not any("import check" in cell.source for cell in sheet.cells if cell.role is Role.PAGE):
        raise BadSheet(sheet.name, "no cell of the page imports check from radixlab.classroom")
    each = [f"{e.total:g} for `{e.id}`" for e in sheet.exercises.values()]
    each += [f"{w.points:g} for an answer in words" for w in sheet.written.values()]
    points, imports = _points(sheet.total), what_is_there(sheet.preload)
    how = HOW.format(name=sheet.name, points=points, each=", ".join(each), imports=imports)
    yield _markdown(Role.PAGE, "", f"{title}\n\n{how}")
    if rest.strip():
        yield _markdown(Role.PAGE, "", _plain(sheet, rest.strip("\n")))


def _cell(cell: Cell, source: str) -> Notebook:
    make = _v4.new_code_cell if cell.is_code else _v4.new_markdown_cell
    return make(source, metadata=_tags(cell) | _says(cell.role, cell.exercise))


def _tags(cell: Cell) -> dict[str, Any]:
    return {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}


def _markdown(role: str, exercise: str, source: str) -> Notebook:
    return _v4.new_markdown_cell(source, metadata=_says(role, exercise))


def _check_cell(exercise: str) -> Notebook:
    return _v4.new_code_cell(f'check("{exercise}")', metadata=_says(CHECK, exercise))


def _says(role: str, exercise: str) -> dict[str, Any]:
    return {"radixlab": {"role": str(role), "exercise": exercise}}


def _said(cell: Notebook) -> tuple[str, str]:
    """The role and the exercise of a cell that we made."""
    return cell.metadata["radixlab"]["role"], cell.metadata["radixlab"]["exercise"]


def _question(sheet: Sheet, cell: Cell) -> str:
    points = _points(sheet.written[cell.exercise].points)
    return f"{cell.source}\n\n({points}, graded by a person)"


def _hint_name(sheet: Sheet, hint: Cell) -> str:
    """Which hint of how many: each is one cell."""
    hints = [c for c in sheet.cells if c.role is Role.HINT and c.exercise == hint.exercise]
    place = next(i for i, each in enumerate(hints, 1) if each is hint)
    return f"Hint {place} of {len(hints)}"


def _folded(sheet: Sheet, hint: Cell) -> str:
    summary = f"<summary>{_hint_name(sheet, hint)} for {hint.exercise}</summary>"
    return f"<details>\n{summary}\n\n{_plain(sheet, hint.source)}\n\n</details>"


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def _plain(sheet: Sheet, text: str) -> str:
    """Text as a notebook can show it: links to pages of the book become their words."""
    outside = re.sub(r"^(```+|~~~+)(?! ?\{).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    for pattern, name in MYST.items():
        if found := re.search(pattern, outside, re.MULTILINE):
            problem = f"{name} ({found.group().strip()}...) can't be shown in a notebook"
            raise BadSheet(sheet.name, f"{problem}: write plain Markdown")
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)[^)\s]+\.md(?:#[^)]*)?\)", r"*\1*", text)


def _points(points: float) -> str:
    return f"{points:g} point{'s' * (points != 1)}"


def _notebook(sheet: Sheet, cells: Iterable[Notebook]) -> Notebook:
    """The cells with ids that stay the same from build to build."""
    seen: dict[str, int] = {}
    made = list(cells)
    for cell in made:
        says = cell.metadata["radixlab"]
        says["sheet"] = sheet.name
        stem = re.sub(r"[^\w-]", "-", f"{sheet.name}-{says['exercise'] or 'page'}-{says['role']}")
        stem = stem if len(stem) <= 56 else hashlib.sha256(stem.encode()).hexdigest()[:16]
        seen[stem] = seen.get(stem, 0) + 1
        cell.id = f"{stem}-{seen[stem]}"
    metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
        "radixlab": {"sheet": sheet.name, "title": sheet.title},
        "jupytext": {"formats": "ipynb"},  # never paired with the sheet that it comes from
    }
    return _v4.new_notebook(cells=made, metadata=metadata)


# --- files ---------------------------------------------------------------------------------------


def notebook_text(notebook: Notebook) -> str:
    """A notebook as the text of its file."""
    return str(_nbformat.writes(notebook, version=4)) + "\n"


def digest(notebook: Notebook) -> str:
    """What tells whether anybody has written in a notebook: of its cells, outputs left out."""
    return digest_of((cell.cell_type, cell.source) for cell in notebook.cells)


def digest_of(cells: Iterable[tuple[str, str]]) -> str:
    """The digest of cells, each its type and its text."""
    return hashlib.sha256(json.dumps(list(cells)).encode()).hexdigest()[:16]


def written_in(path: Path) -> bool:
    """Whether the file is there and is not a student's notebook as it was built."""
    if not path.exists():
        return False
    try:
        notebook = _nbformat.read(path, as_version=4)
        return bool(notebook.metadata["radixlab"]["digest"] != digest(notebook))
    except Exception:
        return True  # somebody's file, whatever it is


# --- the page ------------------------------------------------------------------------------------

NOT_RUN = ["skip-execution"]
PRIVATE = (
    ":::{warning}\nThis private build shows the solutions. It is for teachers and must not be "
    "published.\n:::"
)


def book_page(sheet: Sheet, with_solutions: bool = False) -> str:
    """The sheet as MyST for the site: stubs, checks that are not run, hints as dropdowns.

    With solutions, which is for a teacher's own build, they and the rubrics are dropdowns too.
    """
    cells = list(_page_cells(sheet, with_solutions))
    if with_solutions:
        title, _, rest = cells[0].source.partition("\n")
        cells[0].source = f"{title}\n\n{PRIVATE}\n{rest}"
    notebook = _v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    page = str(jupytext.writes(notebook, fmt="md:myst"))
    if not with_solutions:
        refuse_leaks(sheet, page)
    return page


def _page_cells(sheet: Sheet, with_solutions: bool) -> Iterator[Notebook]:
    code, text = _v4.new_code_cell, _v4.new_markdown_cell
    for cell in sheet.cells:
        if cell.role is Role.ANSWER:
            exercise = sheet.exercises[cell.exercise]
            fails = any(isinstance(node, ast.Raise) for node in ast.parse(exercise.stub).body)
            yield code(exercise.stub, metadata={"tags": NOT_RUN} if fails else {})
            if with_solutions:
                yield text(_dropdown(f"Solution of {exercise.id}", _fenced(exercise.solution)))
            yield code(f'check("{exercise.id}")', metadata={"tags": NOT_RUN})
        elif cell.role is Role.HINT:
            yield text(_dropdown(_hint_name(sheet, cell), cell.source))
        elif cell.role is Role.WRITTEN:
            yield text(_question(sheet, cell))
        elif cell.role is Role.RUBRIC and with_solutions:
            yield text(_dropdown(f"Rubric of {cell.exercise}", cell.source))
        elif cell.role not in TEACHERS:
            yield (code if cell.is_code else text)(cell.source, metadata=_tags(cell))


def _dropdown(summary: str, text: str) -> str:
    return f"::::{{dropdown}} {summary}\n{text}\n::::"
