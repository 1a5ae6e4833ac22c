"""`radixlab classroom`: from the sheet to the grade.

Imported with the command line, so it imports nothing that a classroom needs until a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from radixlab.classroom import SEED
from radixlab.errors import InvalidArgument, RadixLabError

if TYPE_CHECKING:
    from radixlab.classroom.exports import Matching
    from radixlab.classroom.gradebook import Gradebook
    from radixlab.classroom.results import SubmissionResult
    from radixlab.classroom.sheet import Sheet

app = typer.Typer(
    no_args_is_help=True, help="Exercise sheets: build, hand out, grade in a sandbox, feed back."
)

SHORT_SEED = 8
"""A seed with fewer characters can be guessed."""

BAR = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())

Name = Annotated[str, typer.Argument(help="A sheet: 02-split, 02, or the path of its source.")]
Names = Annotated[list[str] | None, typer.Argument(help="Sheets; all if none is named.")]
Out = Annotated[Path, typer.Argument(help="The folder that `grade` wrote.")]


class NoSeed(RadixLabError):
    """Without a seed of the teacher's own every student could know the hidden cases."""

    def __init__(self, where: str) -> None:
        make = 'python -c "import secrets; print(secrets.token_hex(16))"'
        super().__init__(f"there is no secret seed {where}; this makes one: {make}")


class Unfinished(RadixLabError):
    """Grades would leave the house before they are complete."""

    def __init__(self, answers: int) -> None:
        waiting = "1 answer waits" if answers == 1 else f"{answers} answers wait"
        super().__init__(
            f"{waiting} for points: fill in written.csv, or leave these people out (--partial)"
        )


class System(StrEnum):
    """Whose import form."""

    CANVAS = "canvas"
    MOODLE = "moodle"


@app.command("list")
def show_list() -> None:
    """Show which sheets there are, and what they are worth."""
    with _refusals() as console:
        table = _table(["sheet", "title"], ["exercises", "in words", "points"])
        for sheet in _load([]):
            counts = (len(sheet.exercises), len(sheet.written), f"{sheet.total:g}")
            table.add_row(sheet.name, sheet.title, *map(str, counts))
        console.print(table)


@app.command()
def build(
    sheets: Names = None,
    out: Annotated[Path, typer.Option(help="Where to.")] = Path("build/exercises"),
    with_solutions: Annotated[
        bool, typer.Option("--with-solutions", help="The teacher's notebooks too.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Begin anew; what was written is kept as .bak."),
    ] = False,
) -> None:
    """Make notebooks to work in, with their visible checks beside them."""
    with _refusals() as console:
        from radixlab.classroom.build import written_in
        from radixlab.classroom.release import write_student_files

        for sheet in _load(sheets):
            notebook = out / f"{sheet.name}.ipynb"
            if written_in(notebook) and force:
                notebook.replace(notebook.with_name(f"{notebook.name}.bak"))
            paths = write_student_files(sheet, out, with_solutions)
            _print_paths(console, paths)
            if notebook not in paths:
                _say(console, f"{notebook} was left as it is: somebody works in it (see --force)")
        _say(console, f"\nOpen with: jupyter lab {notebook}")


@app.command()
def release(
    sheets: Annotated[list[str], typer.Argument(help="The sheets to hand out.")],
    out: Annotated[Path, typer.Option(help="Where to: a folder without these sheets.")],
    as_zip: Annotated[bool, typer.Option("--zip", help="OUT.zip too, to upload.")] = False,
    install: Annotated[
        str | None, typer.Option(help="What README.txt tells students to type, to install.")
    ] = None,
) -> None:
    """Make what students get; refuse if anything of a solution would leave the house."""
    with _refusals() as console:
        from radixlab.classroom.release import write_release, zip_release

        paths = write_release(_load(sheets), out, install)
        if as_zip:
            paths.append(zip_release(paths, out.with_name(f"{out.name}.zip")))
        _print_paths(console, paths)


@app.command()
def grade(
    sheet: Name,
    submissions: Annotated[
        Path, typer.Argument(help="A folder of STUDENT.ipynb, STUDENT.py or STUDENT/...")
    ],
    out: Annotated[Path, typer.Argument(help="Where results, tables and pages go.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Submissions at a time; one for each core.")
    ] = None,
    seed_file: Annotated[
        Path | None, typer.Option(help=f"The secret seed, if not in ${SEED}.")
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Without a sandbox: only code that you trust.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was graded already and has not changed.")
    ] = False,
) -> None:
    """Grade all submissions of a sheet. Stopped halfway, it goes on where it was."""
    with _refusals() as console:
        from radixlab.classroom.gradebook import Gradebook, read_marks
        from radixlab.classroom.results import refuse_other_sheets

        read, seed = _load_one(sheet), _seed(seed_file)
        _refuse_no_folder("submissions", submissions)
        refuse_other_sheets(read.name, out)
        read_marks(out / "written.csv", read)  # better to complain now than in ten minutes
        if again:
            for result in (out / "results").glob("*.json"):
                result.unlink()
        if len(seed) < SHORT_SEED:
            _say(console, f"the seed has {len(seed)} characters: easy to guess", "yellow")
        if unsafe:
            _say(console, "--unsafe: whatever students wrote runs with your rights", "yellow")
        graded = _grade(read, submissions, out, seed, workers=workers, unsafe=unsafe)
        _report(console, Gradebook.read(read, out), out, graded)
        _print_ignored(console, submissions, read)


@app.command()
def feedback(sheet: Name, out: Out) -> None:
    """Write tables and pages anew, with the points and comments of `written.csv`."""
    with _refusals() as console:
        from radixlab.classroom.gradebook import Gradebook

        _report(console, Gradebook.read(_load_one(sheet), out), out)


@app.command()
def export(
    sheet: Name,
    out: Out,
    roster: Annotated[
        Path, typer.Option(help="The people: a gradebook of Canvas, participants of Moodle, ...")
    ],
    system: Annotated[
        System | None, typer.Option("--for", help="One form alone, not both.")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(help="Canvas's column, if not as in the roster."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out whose answers wait for points.")
    ] = False,
) -> None:
    """Write grades in the forms that Canvas and Moodle import."""
    with _refusals() as console:
        from radixlab.classroom import exports
        from radixlab.classroom.gradebook import Gradebook
        from radixlab.classroom.spreadsheet import BadTable

        book = Gradebook.read(_load_one(sheet), out)
        matching = exports.match(book.results, exports.read_roster(roster))
        if not matching.people:
            raise BadTable(roster, f"nobody in it fits any of {len(book.results)} submissions")
        waiting = exports.hold_back(book, matching)
        if waiting and not partial:
            raise Unfinished(sum(len(book.ungraded(who)) for who in waiting.values()))
        if system != System.MOODLE:
            name = assignment or exports.assignment_name(book, roster)
            exports.write_canvas(book, matching, out / "canvas.csv", name)
            _print_paths(console, [out / "canvas.csv"])
        if system != System.CANVAS:
            exports.write_moodle(book, matching, out / "moodle.csv")
            _print_paths(console, [out / "moodle.csv"])
        for student in waiting.values():
            _say(console, f"not exported: {student}: has answers without points", "yellow")
        _show_matching(console, matching)


@app.command()
def audit(
    sheets: Names = None,
) -> None:
    """Check sheets: solutions pass, constants earn nothing, hints don't tell, nothing leaks."""
    with _refusals() as console:
        from radixlab.classroom.audit import audit as find_problems

        found = {sheet.name: find_problems(sheet) for sheet in _load(sheets)}
        for name, problems in found.items():
            for problem in problems:
                _say(console, f"{name}: {problem}")
            if not problems:
                _say(console, f"{name}: keeps every rule")
        if any(found.values()):
            raise typer.Exit(1)


@app.command()
def nbgrader(
    course: Annotated[Path, typer.Argument(help="The course's folder, new or nbgrader's.")],
    sheets: Names = None,
) -> None:
    """Make a course of nbgrader that grades in our sandbox."""
    with _refusals() as console:
        from radixlab.classroom.nbgrader import write_course

        write_course(course, _load(sheets))
        _say(console, f"Wrote {course}")


# --- what commands share -------------------------------------------------------------------------


def _load(names: list[str] | None) -> list[Sheet]:
    from radixlab.classroom.sheet import find_sheets, load_sheet

    return [load_sheet(name) for name in names or find_sheets()]


def _load_one(name: str) -> Sheet:
    return _load([name])[0]


def _seed(file: Path | None) -> str:
    """The teacher's secret, from which hidden cases are drawn."""
    if file is not None and not file.is_file():
        raise NoSeed(f"in {file}: there is no such file")
    seed = os.environ.get(SEED, "") if file is None else file.read_text(encoding="utf-8")
    if not seed.strip():
        raise NoSeed(f"in ${SEED} or in a --seed-file" if file is None else f"in {file}")
    return seed.strip()


@contextmanager
def _refusals() -> Iterator[Console]:
    """A console; whatever is refused is one sentence and exit status 1, not a traceback."""
    errors = Console(stderr=True)
    try:
        yield Console(highlight=False)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("radixlab"):
            raise
        extra = "pip install 'radixlab[classroom]'"
        _say(errors, f"radixlab classroom needs {error.name}: {extra}", "red")
        raise typer.Exit(1) from None
    except FileNotFoundError as error:
        _say(errors, f"FileNotFoundError: there is no {error.filename}", "red")
        raise typer.Exit(1) from None
    except (RadixLabError, OSError, UnicodeDecodeError) as error:
        _say(errors, f"{type(error).__name__}: {error}", "red")
        raise typer.Exit(1) from None


def _say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup, no codes for the terminal, no line that is broken."""
    console.print(Text(_printable(text), style), soft_wrap=True)


def _printable(text: str) -> str:
    """Names are students' texts: what could steer a terminal is shown as a sign."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def _print_paths(console: Console, paths: Iterable[Path]) -> None:
    for path in paths:
        _say(console, str(path))


def _table(texts: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _grade(sheet: Sheet, submissions: Path, out: Path, seed: str, **options: Any) -> set[str]:
    """Grade with a progress bar; returns whose submissions there are."""
    from radixlab.classroom.grade import grade_all

    with Progress(*BAR, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"preparing {sheet.name}", total=None)

        def advance(done: int, total: int, result: SubmissionResult) -> None:
            progress.update(task, description=sheet.name, completed=done, total=total)

        results = grade_all(sheet, submissions, out, seed, on_progress=advance, **options)
    if not results:
        _print_ignored(Console(stderr=True), submissions, sheet)
        raise InvalidArgument("submissions", str(submissions), "a folder with STUDENT.ipynb, ...")
    return {result.student for result in results}


def _refuse_no_folder(name: str, folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidArgument(name, str(folder), "a folder that is there")


def _print_ignored(console: Console, submissions: Path, sheet: Sheet) -> None:
    """Name what was not graded because it is no notebook."""
    from radixlab.classroom.collect import ignored_files

    for name in ignored_files(submissions):
        _say(console, f"not graded: {name} (hand in {sheet.name}.ipynb)", "yellow")


def _report(console: Console, book: Gradebook, out: Path, graded: set[str] | None = None) -> None:
    """Write tables and pages, show the grades, and say what waits for the teacher."""
    from radixlab.classroom.report import write_reports

    write_reports(book, out)
    tasks = book.tasks()
    table = _table(["student"], [*tasks, f"total of {book.sheet.total:g}"])
    for student in book.results:
        given = [book.points(student, task) for task in tasks]
        cells = ["open" if points is None else f"{points:g}" for points in given]
        table.add_row(Text(_printable(student)), *cells, f"{book.total(student):g}")
    console.print(table)
    for student, result in book.results.items():
        for remark in filter(None, (result.problem, result.note)):
            _say(console, f"{student}: {remark}", "yellow")
    for line in _remarks(book, out, graded):
        _say(console, line)
    _print_paths(console, [out / "grades.csv", out / "statistics.html", out / "feedback"])


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


def _show_matching(console: Console, matching: Matching) -> None:
    for student, reason in matching.unmatched.items():
        _say(console, f"not exported: {student}: {reason}", "yellow")
    _say(console, f"{len(matching.people)} exported; {len(matching.missing)} handed in nothing:")
    _say(console, "; ".join(person.label for person in matching.missing) or "none")
