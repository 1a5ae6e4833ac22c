"""From a sheet: the student's, the teacher's and nbgrader's notebook, the page, the visible checks.

Each is put together from the cells that it may show, so nothing has to be taken out of it again;
`refuse_leaks` then looks at the result once more. The same sheet always gives the same bytes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from radixlab.classroom.cases import Case, is_right, make_cases
from radixlab.classroom.runner import call_in_child
from radixlab.classroom.sandbox import Outcome
from radixlab.classroom.sheet import BEGIN, END, TEACHERS, BadSheet, Cell, Exercise, Role, Sheet

Notebook = Any
"""An `nbformat` notebook; nbformat's functions have no types."""
_nbformat: Any = nbformat
_v4: Any = nbformat.v4

PACK = ".check.json"
"""How the file of visible checks is named that lies beside a notebook: NAME.check.json."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PLACEHOLDER = "*Your answer here*"

HOW = """\
*How this sheet works.* Where a cell says `raise NotImplementedError`, put your code, run the cell,
then run the check below it. **A check shows a few visible cases; when you hand in, hidden ones are
run as well**, so passing here is necessary and not yet enough. Hints are folded: try first. Hand in
this file, `{name}.ipynb`, with your answers in it. The sheet is worth {points}: {each}."""

MYST = {
    r"^ {0,3}:::": "a colon fence",
    r"^ {0,3}(```+|~~~+) ?\{": "a directive",
    r"\{[a-z][\w:+-]*\}`": "a role",
    r"^\([\w-]+\)=$": "a label",
}
"""What only the site can show; a notebook would show its source."""


# --- notebooks -----------------------------------------------------------------------------------


def student_notebook(sheet: Sheet) -> Notebook:
    """What students get: stubs, checks, folded hints and room for answers in words.

    Raises `BadSheet` if a text can't be shown in a notebook or says a line that is the teacher's.
    """
    notebook = _notebook(sheet, _student_cells(sheet))
    notebook.metadata["radixlab"]["digest"] = digest(notebook)
    refuse_leaks(sheet, _nbformat.writes(notebook))
    return notebook


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
    for cell in sheet.cells[1:]:
        if cell.role is Role.ANSWER:
            yield _cell(cell, sheet.exercises[cell.exercise].stub)
            yield _check_cell(cell.exercise)
        elif cell.role is Role.WRITTEN:
            yield _cell(cell, _question(sheet, cell.exercise))
            yield _markdown("written-answer", cell.exercise, PLACEHOLDER)
        elif cell.role is Role.HINT:
            yield _cell(cell, _folded(sheet, cell))
        elif cell.role not in TEACHERS:
            yield _cell(cell, cell.source if cell.is_code else _plain(sheet, cell.source))


def _teacher_cells(sheet: Sheet) -> Iterator[Notebook]:
    for shown in _student_cells(sheet):
        role, exercise = shown.metadata["radixlab"]["role"], shown.metadata["radixlab"]["exercise"]
        if role == Role.ANSWER:
            shown.source = sheet.exercises[exercise].solution
        if role == "written-answer":
            written = sheet.written[exercise]
            shown.source = f"**Rubric** ({_points(written.points)})\n\n{written.rubric}"
        yield shown
        if role == "check":
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
        role, exercise = cell.metadata["radixlab"]["role"], cell.metadata["radixlab"]["exercise"]
        if role == Role.GIVEN:
            given += 1
            _mark(cell, f"given-{given}", locked=True)
        elif role == Role.ANSWER:
            cell.source = sheet.exercises[exercise].answer
            _mark(cell, exercise, solution=True)
        elif role == "check":
            _mark(cell, f"{exercise}-check", locked=True, points=sheet.exercises[exercise].total)
        elif role == Role.WRITTEN:
            _mark(cell, f"{exercise}-question", locked=True)
        elif role == "written-answer":
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
    how = HOW.format(name=sheet.name, points=_points(sheet.total), each=", ".join(each))
    yield _markdown(Role.PAGE, "", f"{title}\n\n{how}")
    if rest.strip():
        yield _markdown(Role.PAGE, "", _plain(sheet, rest.strip("\n")))


def _cell(cell: Cell, source: str) -> Notebook:
    tags = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
    make = _v4.new_code_cell if cell.is_code else _v4.new_markdown_cell
    return make(source, metadata=tags | _says(cell.role, cell.exercise))


def _markdown(role: str, exercise: str, source: str) -> Notebook:
    return _v4.new_markdown_cell(source, metadata=_says(role, exercise))


def _check_cell(exercise: str) -> Notebook:
    return _v4.new_code_cell(f'check("{exercise}")', metadata=_says("check", exercise))


def _says(role: str, exercise: str) -> dict[str, Any]:
    return {"radixlab": {"role": str(role), "exercise": exercise}}


def _question(sheet: Sheet, exercise: str) -> str:
    written = sheet.written[exercise]
    return f"{_plain(sheet, written.question)}\n\n({_points(written.points)}, graded by a person)"


def _hint_name(sheet: Sheet, cell: Cell) -> str:
    """Which hint of how many: each is one cell."""
    same_exercise = [c for c in sheet.cells if c.role is Role.HINT and c.exercise == cell.exercise]
    place = next(i for i, c in enumerate(same_exercise, 1) if c is cell)
    return f"Hint {place} of {len(same_exercise)}"


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


# --- what must not get out -----------------------------------------------------------------------


def refuse_leaks(sheet: Sheet, shown: str) -> None:
    """Raise `BadSheet` if a line that is the teacher's alone stands in what students get.

    Looks at whole lines of 20 characters or more, also as JSON writes them.
    """
    open_lines = {line.strip() for cell in _open_cells(sheet) for line in cell.splitlines()}
    for exercise in sheet.exercises.values():
        open_lines |= {line.strip() for line in exercise.stub.splitlines()}
    for line in _secret_lines(sheet) - open_lines:
        if line in shown or json.dumps(line)[1:-1] in shown:
            raise BadSheet(sheet.name, f"students would see a teacher's line: {line!r}")


def _open_cells(sheet: Sheet) -> Iterator[str]:
    yield from (c.source for c in sheet.cells if c.role in (Role.PAGE, Role.GIVEN))


def _secret_lines(sheet: Sheet) -> set[str]:
    """Lines of solutions, drivers, cases, mistakes and rubrics."""
    sources = [cell.source for cell in sheet.cells if cell.role in TEACHERS]
    sources += [exercise.solution for exercise in sheet.exercises.values()]
    lines = {line.strip() for source in sources for line in source.splitlines()}
    return {line for line in lines if len(line) >= 20}


def digest(notebook: Notebook) -> str:
    """What tells whether anybody has written in a notebook: of its cells, outputs left out."""
    cells = [[cell.cell_type, cell.source] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


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
    notebook = _v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    page = str(jupytext.writes(notebook, fmt="md:myst"))
    if not with_solutions:
        refuse_leaks(sheet, page)
    return page


def _page_cells(sheet: Sheet, with_solutions: bool) -> Iterator[Notebook]:
    code, text = _v4.new_code_cell, _v4.new_markdown_cell
    for cell in sheet.cells:
        exercise = sheet.exercises.get(cell.exercise)
        if cell.role is Role.ANSWER and exercise is not None:
            fails = any(isinstance(node, ast.Raise) for node in ast.parse(exercise.stub).body)
            yield code(exercise.stub, metadata={"tags": NOT_RUN} if fails else {})
            if with_solutions:
                yield text(_dropdown(f"Solution of {exercise.id}", _fenced(exercise.solution)))
            yield code(f'check("{exercise.id}")', metadata={"tags": NOT_RUN})
        elif cell.role is Role.HINT:
            yield text(_dropdown(_hint_name(sheet, cell), cell.source))
        elif cell.role is Role.WRITTEN:
            points = _points(sheet.written[cell.exercise].points)
            yield text(f"{cell.source}\n\n({points}, graded by a person)")
        elif cell.role is Role.RUBRIC and with_solutions:
            yield text(_dropdown(f"Rubric of {cell.exercise}", cell.source))
        elif cell.role not in TEACHERS:
            tags = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
            source = cell.source
            if cell is sheet.cells[0] and with_solutions:
                title, _, rest = source.partition("\n")
                source = f"{title}\n\n{PRIVATE}\n{rest}"
            yield (code if cell.is_code else text)(source, metadata=tags)


def _dropdown(summary: str, text: str) -> str:
    return f"::::{{dropdown}} {summary}\n{text}\n::::"


# --- what the checks in a notebook need ----------------------------------------------------------


def visible_pack(sheet: Sheet, only: str | None = None) -> dict[str, Any]:
    """What `check` needs: drivers, visible cases, and what known mistakes give in them, as JSON.

    Holds no solution and no hidden case; with `only` it holds that exercise alone. Raises
    `BadSheet` if the reference solution fails.
    """
    return {
        "sheet": sheet.name,
        "title": sheet.title,
        "seconds": sheet.seconds,
        "memory": sheet.memory,
        "order": list(sheet.exercises),
        "exercises": {
            name: _pack(sheet, each)
            for name, each in sheet.exercises.items()
            if only in (None, name)
        },
    }


def _pack(sheet: Sheet, exercise: Exercise) -> dict[str, Any]:
    cases = make_cases(sheet, exercise)
    return {
        "given": _given_before(sheet, exercise),
        "names": list(exercise.names),
        "entry": exercise.entry,
        "driver": _drivers(sheet, exercise),
        "parameters": _parameters(exercise),
        "cases": [{"group": c.group, "args": c.args, "expected": c.expected} for c in cases],
        "mistakes": list(_mistakes(sheet, exercise, cases)),
    }


def _mistakes(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[dict[str, Any]]:
    """The known mistakes that show in the visible cases."""
    for wrong in exercise.wrong:
        outcomes = [_try(sheet, exercise, wrong.source, case) for case in cases]
        if not all(map(is_right, outcomes, cases)):
            yield {"message": wrong.message, "outcomes": [asdict(outcome) for outcome in outcomes]}


def _try(sheet: Sheet, exercise: Exercise, source: str, case: Case) -> Outcome:
    """One call of the teacher's own code in a child: no new Python has to start for it."""
    given = _given(sheet.given)

    def work() -> Any:
        names = dict(given)
        for part in (source, _drivers(sheet, exercise)):
            exec(compile(part, "<mistake>", "exec", dont_inherit=True), names)
        return names[exercise.entry](*json.loads(json.dumps(case.args)))

    report = call_in_child(work, sheet.seconds, sheet.memory)
    return Outcome(report["status"], report["value"], report["error"])


@cache
def _given(source: str) -> dict[str, Any]:
    """The names that the given code defines."""
    names: dict[str, Any] = {"__name__": "given"}
    exec(compile(source, "<given>", "exec", dont_inherit=True), names)
    return names


def _given_before(sheet: Sheet, exercise: Exercise) -> list[str]:
    """What the given cells above its answer define."""
    names: list[str] = []
    for cell in sheet.cells:
        if cell.role is Role.ANSWER and cell.exercise == exercise.id:
            break
        if cell.role is Role.GIVEN:
            names += top_names(cell.source)
    return names


def _drivers(sheet: Sheet, exercise: Exercise) -> str:
    """Its driver after those of the exercises before it, whose helpers it may use."""
    ids = list(sheet.exercises)
    before = ids[: ids.index(exercise.id) + 1]
    return "\n\n".join(sheet.exercises[name].driver for name in before)


def _parameters(exercise: Exercise) -> list[str]:
    """The names of the entry's parameters; the driver's, or the student's where it is the entry."""
    for node in [*ast.parse(exercise.driver).body, *ast.parse(exercise.stub).body]:
        if isinstance(node, ast.FunctionDef) and node.name == exercise.entry:
            return [argument.arg for argument in node.args.args]
    return []


def top_names(source: str) -> list[str]:
    """The functions, classes and constants that a source defines, in order."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [t.id for t in node.targets if isinstance(t, ast.Name)]
    return names


# --- files ---------------------------------------------------------------------------------------


def write_student_files(
    sheet: Sheet, folder: str | Path, with_solutions: bool = False
) -> list[Path]:
    """Write NAME.ipynb and NAME.check.json, and return the paths of what was written.

    A notebook in which somebody has written is never overwritten. `with_solutions` adds
    NAME.solutions.ipynb, the teacher's.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{sheet.name}{PACK}": json.dumps(visible_pack(sheet)) + "\n"}
    notebook = folder / f"{sheet.name}.ipynb"
    if not written_in(notebook):
        texts[notebook.name] = notebook_text(student_notebook(sheet))
    if with_solutions:
        texts[f"{sheet.name}.solutions.ipynb"] = notebook_text(teacher_notebook(sheet))
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(folder / name for name in texts)


def notebook_text(notebook: Notebook) -> str:
    """A notebook as the text of its file."""
    return str(_nbformat.writes(notebook, version=4)) + "\n"


def written_in(path: Path) -> bool:
    """Whether the file is there and is not a student's notebook as it was built."""
    if not path.exists():
        return False
    try:
        notebook = _nbformat.read(path, as_version=4)
        return bool(notebook.metadata["radixlab"]["digest"] != digest(notebook))
    except Exception:
        return True  # somebody's file, whatever it is
