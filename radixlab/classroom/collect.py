"""Whose file is it, and which of several? What Canvas, Moodle and students put into a folder.

A folder of submissions has STUDENT.ipynb, STUDENT.py, or a folder STUDENT with such a file. The
downloads of Canvas (`doejane_LATE_12345_67890_02-split.ipynb`) and of Moodle
(`Jane Doe_12345_assignsubmission_file/`) are such folders. The student is then called
`doejane_12345` and `Jane Doe_12345`: a second attempt, or a late one, is the same student's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

from radixlab.classroom.submission import glance

SUFFIXES = (".ipynb", ".py")
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_(?P<upload>\d+)_.+", re.DOTALL)
MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_file_?.*", re.DOTALL)
"""How Canvas and Moodle name what is downloaded: whose it is stands in it."""
MOST_NAMED = 5
"""Files that are named in a sentence."""


@dataclass(frozen=True, slots=True)
class Found:
    """A student's file. `note` says why this one of several; `problem` why there is none.

    `came_as` is the name of what lay in the folder of submissions; of several, the latest.
    """

    student: str
    path: Path
    note: str = ""
    problem: str = ""
    came_as: str = ""


def find_submissions(folder: Path, sheet: str) -> list[Found]:
    """The students and their files, by name; a student's folder if there is no file to take.

    Of several files of one student those of this sheet count, of these the ones that are not as
    they were handed out, and of these the latest.
    """
    of_student: dict[str, list[Path]] = {}
    for path in sorted(filter(_is_submission, folder.iterdir()), key=_order):
        of_student.setdefault(student_key(path.name), []).append(path)
    found = (_take(who, paths, sheet) for who, paths in of_student.items())
    return sorted(found, key=lambda each: (each.student, each.path))


def ignored_files(folder: Path) -> list[str]:
    """The names of files that are nobody's notebook or script; hidden ones are not counted."""
    names = (path.name for path in folder.iterdir() if not _is_submission(path))
    return sorted(name for name in names if not name.startswith((".", "__")))


def student_key(name: str) -> str:
    """Whose a file or folder is, by its name; the name without its ending if it does not say."""
    stem = name.removesuffix(".py").removesuffix(".ipynb")
    if moodle := MOODLE.fullmatch(name):
        return f"{moodle['name']}_{moodle['number']}"
    canvas = CANVAS.fullmatch(stem)
    return f"{canvas['name']}_{canvas['id']}" if canvas else stem


def _is_submission(path: Path) -> bool:
    odd = path.name.startswith((".", "__")) or "_assignsubmission_onlinetext" in path.name
    return not odd and (path.suffix in SUFFIXES or path.is_dir())


def _order(path: Path) -> tuple[int, bool, str]:
    """The latest is the last; a notebook comes after a script."""
    canvas = CANVAS.fullmatch(path.stem)
    return int(canvas["upload"]) if canvas else 0, path.suffix == ".ipynb", path.name


def _take(who: str, paths: Sequence[Path], sheet: str) -> Found:
    fitting = [path for path in paths if _fits(path, sheet)] or list(paths)
    taken, latest = _written_in(fitting)[-1], fitting[-1]
    if taken.is_dir() and not taken.is_symlink():
        return replace(_look_into(safe_name(who), taken, sheet), came_as=latest.name)
    note = _why(taken, fitting) if taken != latest else ""
    return Found(safe_name(who), taken, note, came_as=latest.name)


def _look_into(student: str, folder: Path, sheet: str) -> Found:
    """The file of a student's folder, or of one below it."""
    try:
        names = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        below = sorted(
            path for path in folder.glob(f"*/{escape(sheet)}.ipynb") if _is_below(path, folder)
        )
    except OSError as error:
        return Found(student, folder, problem=f"The folder can't be read: {error.strerror}.")
    files = [path for path in names if path.suffix in SUFFIXES]
    fitting = [path for path in files if _fits(path, sheet)] or below
    fitting = fitting or [path for path in files if path.suffix == ".ipynb"] or files
    if not fitting or (len(fitting) > 1 and not any(_fits(path, sheet) for path in fitting)):
        return Found(student, folder, problem=_none(names, files, sheet))
    solved = _written_in(fitting)
    taken = next((path for path in solved if path.name == f"{sheet}.ipynb"), solved[0])
    if len(fitting) == 1:
        return Found(student, taken)
    return Found(
        student, taken, _why(taken, fitting) if len(solved) == 1 else _which(taken, solved)
    )


def _is_below(path: Path, folder: Path) -> bool:
    """Whether it is in a folder of the folder, not behind a link."""
    return not path.parent.is_symlink() and not path.parent.name.startswith((".", "__"))


def _fits(path: Path, sheet: str) -> bool:
    """Whether it is of the sheet: a notebook says so itself, else its name."""
    said = glance(path)[0]
    return said == sheet if said else sheet in path.name


def _written_in(paths: Sequence[Path]) -> list[Path]:
    """Those in which somebody has written; all if nobody has."""
    if len(paths) == 1:
        return list(paths)
    return [path for path in paths if not glance(path)[1]] or list(paths)


def _why(taken: Path, paths: Iterable[Path]) -> str:
    others = _names(path for path in paths if path != taken)
    return f"{_names([taken])} was graded; nobody has written in {others}."


def _which(taken: Path, paths: Iterable[Path]) -> str:
    others = _names(path for path in paths if path != taken)
    return f"There are several files of this sheet: {_names([taken])} was graded, not {others}."


def _none(names: Sequence[Path], files: Sequence[Path], sheet: str) -> str:
    if files:
        return f"Which file counts? None of {_names(files)} is called {sheet}.ipynb."
    if names:
        return f"There is no notebook in the folder, only {_names(names)}: hand in {sheet}.ipynb."
    return f"There is nothing in the folder: hand in {sheet}.ipynb."


def _names(paths: Iterable[Path]) -> str:
    """Some names, as text that any file can hold."""
    names = [os.fsencode(path.name).decode("utf-8", "replace")[:80] for path in paths]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def safe_name(name: str) -> str:
    """A student's name as a file may be called; whatever is odd becomes `_`, and a digest follows.

    So two students never get the same file, and no name leaves its folder.
    """
    odd = re.compile(r'[/\\:*?"<>|]|^[\s.~-]|[\s.]$')
    if name.isprintable() and not odd.search(name) and 0 < len(name.encode()) <= 150:
        return name
    plain = re.sub(r"[^\w@]", "_", name.encode("utf-8", "replace").decode())[:30]
    return f"{plain}_{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"
