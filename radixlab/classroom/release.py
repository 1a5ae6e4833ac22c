"""What a teacher hands out: notebooks, their visible checks, and a page on how to begin.

Nothing of it may say what is the teacher's; whatever would is refused.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from radixlab.classroom.build import PACK, write_student_files
from radixlab.classroom.sheet import BadSheet, Role, Sheet
from radixlab.classroom.spreadsheet import write_text

SHORTEST = 20
"""A line of fewer characters may stand in any code."""
SECRET = (Role.CASES, Role.WRONG, Role.RUBRIC)
OPEN = (Role.PAGE, Role.GIVEN, Role.DRIVER, Role.HINT, Role.WRITTEN)

README = """\
Exercise sheets

{sheets}

To begin, with Python 3.11, 3.12 or 3.13:

    python -m pip install "radixlab[lab]"
    jupyter lab {first}.ipynb

Put your code where a cell raises NotImplementedError, run the cell, then run the
check below it. Checks show a few visible cases. When you hand in, hidden ones are
run as well, so passing the checks is necessary and not yet enough. Code that is
graded may import Python's standard library only{extra}.

Each notebook has a file NAME{pack} beside it: keep them together, the checks need it.

Before you hand in: Restart Kernel and Run All Cells, look at the checks, save.
Hand in: {names}, and nothing else. Don't rename a file, and don't
delete cells: they say which task they belong to.
"""


def write_release(sheets: Sequence[Sheet], folder: Path) -> list[Path]:
    """Write the notebook and the checks of each sheet, and README.txt; returns the paths.

    Raises `BadSheet` if a sheet breaks a rule of `radixlab classroom audit`, or if anything of a
    solution, a hidden case, a mistake or a rubric would leave the house.
    """
    from radixlab.classroom.audit import audit

    for sheet in sheets:
        if problems := audit(sheet):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise BadSheet(sheet.name, f"{problems[0]}{more}")
    if used := [path.name for sheet in sheets for path in folder.glob(f"{sheet.name}.*")]:
        raise FileExistsError(f"{folder} has {', '.join(sorted(used))} already: release elsewhere")
    with tempfile.TemporaryDirectory() as draft:
        for sheet in sheets:
            write_student_files(sheet, draft)
            refuse_leaks(sheet, json.loads(Path(draft, sheet.name + PACK).read_bytes()))
        write_text(Path(draft, "README.txt"), _readme(sheets))
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(path, folder)) for path in sorted(Path(draft).iterdir())]


def refuse_leaks(sheet: Sheet, pack: Any) -> None:
    """Raise `BadSheet` if a line of a pack of visible checks is the teacher's alone.

    `build` looks at the notebook in the same way when it makes one.
    """
    secret = set(_lines(c.source for c in sheet.cells if c.role in SECRET))
    secret |= set(_lines(exercise.solution for exercise in sheet.exercises.values()))
    told = set(_lines(cell.source for cell in sheet.cells if cell.role in OPEN))
    told |= set(_lines(exercise.stub for exercise in sheet.exercises.values()))
    if leaks := (secret - told) & set(_lines(_texts(pack))):
        raise BadSheet(sheet.name, f"students would see a teacher's line: {min(leaks)!r}")


def _lines(texts: Iterator[str]) -> Iterator[str]:
    lines = (line.strip() for text in texts for line in text.splitlines())
    return (line for line in lines if len(line) >= SHORTEST)


def _texts(value: Any) -> Iterator[str]:
    """All texts within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _readme(sheets: Sequence[Sheet]) -> str:
    preloaded = sorted({module for sheet in sheets for module in sheet.preload})
    return README.format(
        sheets="\n".join(f"    {s.name}.ipynb   {s.title} ({s.total:g} points)" for s in sheets),
        first=sheets[0].name,
        names=", ".join(f"{sheet.name}.ipynb" for sheet in sheets),
        extra=f", and {', '.join(preloaded)}" if preloaded else "",
        pack=PACK,
    )


def zip_release(paths: Sequence[Path], archive: Path) -> Path:
    """Put the files into a zip, below a folder of its name. The same files, the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(paths):
            entry = zipfile.ZipInfo(f"{archive.stem}/{path.name}", (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive
