"""`radixlab classroom`: from the sheet to the grade.

Imported with the command line, so it imports nothing that a classroom needs until a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from radixlab.classroom import SEED
from radixlab.classroom.console import (
    ROSTER,
    new_table,
    print_ignored,
    print_paths,
    refusals,
    report,
    say,
    show_matching,
)
from radixlab.errors import InvalidArgument, RadixLabError

if TYPE_CHECKING:
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
Roster = Annotated[
    Path | None,
    typer.Option(help="The people: Canvas's gradebook, Moodle's participants, a table of yours."),
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Leave out whose answers wait for points.")
]


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
    with refusals() as console:
        table = new_table(["sheet", "title"], ["exercises", "in words", "points"])
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
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Name only what was left as it is.")
    ] = False,
) -> None:
    """Make notebooks to work in, with their visible checks beside them."""
    with refusals() as console:
        from radixlab.classroom.build import written_in
        from radixlab.classroom.release import write_student_files

        read = _load(sheets)
        _refuse_file("--out", out)
        for sheet in read:
            notebook = out / f"{sheet.name}.ipynb"
            if written_in(notebook) and force:
                notebook.replace(notebook.with_name(f"{notebook.name}.bak"))
            paths = write_student_files(sheet, out, with_solutions)
            print_paths(console, [] if quiet else paths)
            if notebook not in paths:
                say(console, f"{notebook} was left as it is: somebody works in it (see --force)")
        if not quiet:
            say(console, f"\nOpen with: jupyter lab {out / read[0].name}.ipynb")


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
    with refusals() as console:
        from radixlab.classroom.release import write_release, zip_release

        _refuse_file("--out", out)
        paths = write_release(_load(sheets), out, install)
        if as_zip:
            paths.append(zip_release(out, paths, out.with_name(f"{out.name}.zip")))
        print_paths(console, paths)


@app.command()
def grade(
    sheet: Name,
    submissions: Annotated[
        Path,
        typer.Argument(
            help="A folder of STUDENT.ipynb, STUDENT.py or STUDENT/..., or an unpacked download "
            "of Canvas or Moodle."
        ),
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
    roster: Roster = None,
) -> None:
    """Grade all submissions of a sheet. Stopped halfway, it goes on where it was."""
    with refusals() as console:
        from radixlab.classroom.gradebook import Gradebook, read_marks
        from radixlab.classroom.results import refuse_other_sheets

        read, seed = _load_one(sheet), _seed(seed_file)
        _refuse_file("submissions", submissions)
        _refuse_file("OUT", out)
        _refuse_mixture(submissions, out)
        refuse_other_sheets(read.name, out)
        read_marks(out / "written.csv", read)  # better to complain now than in ten minutes
        _keep_roster(roster, out)
        if len(seed) < SHORT_SEED:
            say(console, f"the seed has {len(seed)} characters: easy to guess", "yellow")
        if unsafe:
            say(console, "--unsafe: whatever students wrote runs with your rights", "yellow")
        graded = _grade(read, submissions, out, seed, workers=workers, unsafe=unsafe, again=again)
        report(console, Gradebook.read(read, out), out, graded)
        print_ignored(console, submissions, read)


@app.command()
def feedback(sheet: Name, out: Out, roster: Roster = None) -> None:
    """Write tables and pages anew, with the points and comments of `written.csv`."""
    with refusals() as console:
        from radixlab.classroom.gradebook import Gradebook

        book = Gradebook.read(_load_one(sheet), out)
        _keep_roster(roster, out)
        report(console, book, out)


@app.command()
def give_back(sheet: Name, out: Out, partial: Partial = False) -> None:
    """Write the feedback as a zip that Moodle, or Canvas, takes back, under its own names."""
    with refusals() as console:
        from radixlab.classroom.give_back import write_zips
        from radixlab.classroom.gradebook import Gradebook

        book = Gradebook.read(_load_one(sheet), out)
        waiting = _waiting(console, book, book.results, "given back", partial)
        paths, others = write_zips(book, out, [s for s in book.results if s not in waiting])
        for student in others:
            said = f"came neither from Moodle nor from Canvas; see {out / 'feedback'}"
            say(console, f"not given back: {student}: {said}", "yellow")
        print_paths(console, paths)


@app.command()
def export(
    sheet: Name,
    out: Out,
    roster: Roster = None,
    system: Annotated[
        System | None, typer.Option("--for", help="One form alone, not both.")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(help="Canvas's column, if not as in the roster."),
    ] = None,
    partial: Partial = False,
) -> None:
    """Write grades in the forms that Canvas and Moodle import."""
    with refusals() as console:
        from radixlab.classroom import exports
        from radixlab.classroom.gradebook import Gradebook
        from radixlab.classroom.roster import match, read_roster
        from radixlab.classroom.spreadsheet import BadTable

        book = Gradebook.read(_load_one(sheet), out)
        if roster is None and not (out / ROSTER).exists():
            raise InvalidArgument("--roster", "nothing", f"the people: {out} has none from before")
        roster = roster or out / ROSTER
        matching = match(book.results, read_roster(roster))
        if not matching.people:
            raise BadTable(roster, f"nobody in it fits any of {len(book.results)} submissions")
        waiting = _waiting(console, book, matching.people.values(), "exported", partial)
        ready = {who: their for who, their in matching.people.items() if their not in waiting}
        matching = replace(matching, people=ready)
        if system != System.MOODLE:
            name = assignment or exports.assignment_name(book, roster)
            exports.write_canvas(book, matching, out / "canvas.csv", name)
            print_paths(console, [out / "canvas.csv"])
        if system != System.CANVAS:
            exports.write_moodle(book, matching, out / "moodle.csv")
            print_paths(console, [out / "moodle.csv"])
        show_matching(console, matching, "exported")


@app.command()
def audit(
    sheets: Names = None,
) -> None:
    """Check sheets: solutions pass, constants earn nothing, hints don't tell, nothing leaks."""
    with refusals() as console:
        from radixlab.classroom.audit import audit as find_problems

        found = {sheet.name: find_problems(sheet) for sheet in _load(sheets)}
        for name, problems in found.items():
            for problem in problems:
                say(console, f"{name}: {problem}")
            if not problems:
                say(console, f"{name}: keeps every rule")
        if any(found.values()):
            raise typer.Exit(1)


@app.command()
def nbgrader(
    course: Annotated[Path, typer.Argument(help="The course's folder, new or nbgrader's.")],
    sheets: Names = None,
) -> None:
    """Make a course of nbgrader that grades in our sandbox."""
    with refusals() as console:
        from radixlab.classroom.nbgrader import write_course

        _refuse_file("COURSE", course)
        write_course(course, _load(sheets))
        say(console, f"Wrote {course}")


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


def _keep_roster(roster: Path | None, out: Path) -> None:
    """Keep the people of the course in OUT, for the tables; refuse what can't be used."""
    from radixlab.classroom.roster import read_roster
    from radixlab.classroom.spreadsheet import write_bytes

    kept = out / ROSTER
    if roster or kept.exists():
        read_roster(roster or kept)
    if roster:
        write_bytes(kept, roster.read_bytes())


def _waiting(
    console: Console, book: Gradebook, students: Iterable[str], done: str, partial: bool
) -> set[str]:
    """Whose answers wait for points. Raises `Unfinished` if they may not be left out."""
    waiting = {student: len(book.ungraded(student)) for student in students}
    waiting = {student: number for student, number in waiting.items() if number}
    if waiting and not partial:
        raise Unfinished(sum(waiting.values()))
    for student in waiting:
        say(console, f"not {done}: {student}: has answers without points", "yellow")
    return set(waiting)


def _grade(sheet: Sheet, submissions: Path, out: Path, seed: str, **options: Any) -> set[str]:
    """Grade with a progress bar; returns whose submissions there are."""
    from radixlab.classroom.grade import grade_all

    with Progress(*BAR, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"preparing {sheet.name}", total=None)

        def advance(done: int, total: int, result: SubmissionResult) -> None:
            progress.update(task, description=sheet.name, completed=done, total=total)

        results = grade_all(sheet, submissions, out, seed, on_progress=advance, **options)
    if not results:
        print_ignored(Console(stderr=True), submissions, sheet)
        raise InvalidArgument("submissions", str(submissions), "a folder with STUDENT.ipynb, ...")
    return {result.student for result in results}


def _refuse_file(name: str, folder: Path) -> None:
    """Raise `InvalidArgument` if a file is where a folder is, or will be."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise InvalidArgument(name, str(folder), f"a folder ({there} is a file)")


def _refuse_mixture(submissions: Path, out: Path) -> None:
    """Raise `InvalidArgument` unless there are submissions, and results will lie elsewhere."""
    if not submissions.is_dir():
        raise InvalidArgument("submissions", str(submissions), "a folder that is there")
    written = [(out / name).resolve() for name in ("results", "feedback")]
    if any(path.is_relative_to(submissions.resolve()) for path in written):
        allowed = "outside of the folder of submissions, or results would be taken for submissions"
        raise InvalidArgument("OUT", str(out), allowed)
