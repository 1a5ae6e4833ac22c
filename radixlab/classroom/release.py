"""What students get: notebooks, their visible checks, and a page on how to begin."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from radixlab.classroom.audit import audit
from radixlab.classroom.build import (
    language_info,
    notebook_text,
    student_notebook,
    teacher_notebook,
    written_in,
)
from radixlab.classroom.checks import FOLDER, PACK
from radixlab.classroom.imports import packages_of, what_is_there
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.sheet import BadSheet, Sheet
from radixlab.classroom.spreadsheet import write_text, write_zip

README = """\
Exercise sheets

{sheets}

To begin, with Python 3.11, 3.12 or 3.13:

    {install}
    jupyter lab {first}.ipynb
{clone}
Put your code where a cell raises NotImplementedError, run the cell, then run the
check below it. Checks show a few visible cases. When you hand in, hidden ones are
run as well, so passing the checks is necessary and not yet enough. Code that is
graded may import {imports}.

The folder {folder}, which your system may hide, belongs to the notebooks: keep them together,
the checks need it.

Before you hand in: Restart Kernel and Run All Cells, look at the checks, save.
Hand in: {names}, and nothing else. Don't rename a file, and don't
delete cells: they say which task they belong to.
"""


INSTALL = 'python -m pip install "radixlab[lab]"{more}'
CLONE = """
Without a release of radixlab: clone its repository and type, in its folder,

    python -m pip install -e ".[lab]"{more}
"""


def write_student_files(
    sheet: Sheet, folder: str | Path, with_solutions: bool = False
) -> list[Path]:
    """Write NAME.ipynb and .checks/NAME.check.json, and return the paths of what was written.

    A notebook in which somebody has written is never overwritten. `with_solutions` adds
    NAME.solutions.ipynb, the teacher's.
    """
    folder = Path(folder)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    pack = f"{sheet.name}{PACK}"
    texts = {f"{FOLDER}/{pack}": json.dumps(visible_pack(sheet)) + "\n"}
    (folder / pack).unlink(missing_ok=True)  # where it was before radixlab had that folder
    notebook = folder / f"{sheet.name}.ipynb"
    if not written_in(notebook):
        made = student_notebook(sheet)
        made.metadata["language_info"] = language_info()
        texts[notebook.name] = notebook_text(made)
    if with_solutions:
        texts[f"{sheet.name}.solutions.ipynb"] = notebook_text(teacher_notebook(sheet))
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(folder / name for name in texts)


def write_release(sheets: Sequence[Sheet], folder: Path, install: str | None = None) -> list[Path]:
    """Write the notebook and the checks of each sheet, and README.txt; returns the paths.

    `install` is what README.txt says to type, if not `INSTALL` with what the sheets preload.

    Raises `BadSheet` if a sheet breaks a rule of `radixlab classroom audit`, or if anything of a
    solution, a hidden case, a mistake or a rubric would leave the house.
    """
    for sheet in sheets:
        if problems := audit(sheet):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise BadSheet(sheet.name, f"{problems[0]}{more}")
    if used := [path.name for sheet in sheets for path in folder.glob(f"{sheet.name}.*")]:
        raise FileExistsError(f"{folder} has {', '.join(sorted(used))} already: release elsewhere")
    with tempfile.TemporaryDirectory() as draft:
        for sheet in sheets:
            write_student_files(sheet, draft)
        write_text(Path(draft, "README.txt"), _readme(sheets, install))
        names = sorted(p.relative_to(draft) for p in Path(draft).rglob("*") if p.is_file())
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(Path(draft, name), folder / name)) for name in names]


def _readme(sheets: Sequence[Sheet], install: str | None) -> str:
    preloaded = {module for sheet in sheets for module in sheet.preload}
    more = "".join(f" {package}" for package in packages_of(preloaded))
    return README.format(
        sheets="\n".join(f"    {s.name}.ipynb   {s.title} ({s.total:g} points)" for s in sheets),
        first=sheets[0].name,
        names=", ".join(f"{sheet.name}.ipynb" for sheet in sheets),
        install=install or INSTALL.format(more=more),
        clone="" if install else CLONE.format(more=more),
        imports=what_is_there(preloaded),
        folder=FOLDER,
    )


def zip_release(folder: Path, paths: Sequence[Path], archive: Path) -> Path:
    """Put files of a folder into a zip, below one of its name. The same files, the same bytes."""
    names = [path.relative_to(folder).as_posix() for path in paths]
    files = {f"{archive.stem}/{name}": (folder / name).read_bytes() for name in names}
    write_zip(archive, files)
    return archive
