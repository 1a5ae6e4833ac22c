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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from glob import escape
from pathlib import Path

from radixlab.classroom.submission import glance, read_submission

SUFFIX = re.compile(r"(?i:\.ipynb)|\.py")
"""How a notebook ends, which may be in capitals, and a script."""
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_(?P<upload>\d+)_.+", re.DOTALL)
MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_file_?.*", re.DOTALL)
"""How Canvas and Moodle name what is downloaded: whose it is stands in it."""
MOST_NAMED = 5
"""Files that are named in a sentence."""


class State(IntEnum):
    """What is in a file, the best first: of several the best is graded."""

    WRITTEN = 0
    UNREADABLE = 1  # it may hold somebody's work, so it goes before a file that holds none
    BLANK = 2  # empty, or as it was handed out


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

    Of several files of one student those of this sheet count, of these the ones in which somebody
    has written (and that can be read), of these the one named like the sheet, or the latest.
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
    stem = re.sub(r"(?i:\.ipynb)\Z", "", name.removesuffix(".py"))
    if moodle := MOODLE.fullmatch(name):
        return f"{moodle['name']}_{moodle['number']}"
    canvas = CANVAS.fullmatch(stem)
    return f"{canvas['name']}_{canvas['id']}" if canvas else stem


def _is_submission(path: Path) -> bool:
    odd = path.name.startswith((".", "__")) or "_assignsubmission_onlinetext" in path.name
    return not odd and (_has_suffix(path) or path.is_dir())


def _has_suffix(path: Path) -> bool:
    return bool(SUFFIX.fullmatch(path.suffix))


def _order(path: Path) -> tuple[int, bool, Path]:
    """The latest is the last; a notebook comes after a script."""
    return _upload(path), path.suffix != ".py", path


def _upload(path: Path) -> int:
    """Canvas's number, which grows from upload to upload; 0 if it is not Canvas's name."""
    canvas = CANVAS.fullmatch(path.stem)
    return int(canvas["upload"]) if canvas else 0


def _take(who: str, tops: Sequence[Path], sheet: str) -> Found:
    """A student's file, of all that is in the folder of submissions, the latest last."""
    found = Found(safe_name(who), tops[-1], came_as=tops[-1].name)
    try:
        lies_in = {file: top for top in tops for file in _files(top, sheet)}
    except OSError as error:
        return replace(found, problem=f"The folder can't be read: {error.strerror}.")
    loose = [file for file, top in lies_in.items() if file == top]
    fitting = [file for file in lies_in if _fits(file, sheet, who if file in loose else "")]
    if not fitting:
        notebooks = [file for file in lies_in if file.suffix != ".py"]
        fitting = loose or notebooks or list(lies_in)
        if not loose and len(fitting) != 1:
            return replace(found, problem=_none(tops[-1], sheet))
    taken, note = _choose(fitting, sheet)
    return replace(found, path=taken, note=note, came_as=lies_in[max(fitting, key=_order)].name)


def _files(top: Path, sheet: str) -> list[Path]:
    """The file itself, or a folder's files, and those of the sheet's name one folder deeper."""
    if not top.is_dir() or top.is_symlink():
        return [top]
    below = (path for path in top.glob(f"*/{escape(sheet)}.*") if _is_below(path))
    there = [*top.iterdir(), *below]
    return [path for path in there if _has_suffix(path) and not path.name.startswith(".")]


def _is_below(path: Path) -> bool:
    """Whether it is a notebook in a folder of the folder, not behind a link."""
    folder = path.parent
    odd = folder.is_symlink() or folder.name.startswith((".", "__"))
    return not odd and path.suffix != ".py"


def _fits(path: Path, sheet: str, who: str) -> bool:
    """Whether it is of the sheet: a notebook says so itself, else its name, or STUDENT alone."""
    said = glance(path)[0]
    return said == sheet if said else sheet in path.name or path.stem == who


def _choose(files: Sequence[Path], sheet: str) -> tuple[Path, str]:
    """The file that is graded, and a sentence if that is not plain.

    It is plain that a later upload to Canvas takes the place of an earlier one.
    """
    if len(files) == 1:
        return files[0], ""
    states = {file: _state(file) for file in files}
    best = [file for file in files if states[file] == min(states.values())]
    taken = max(best, key=lambda file: (file.stem == sheet, -len(file.parts), _order(file)))
    others = [file for file in files if file != taken and not 0 < _upload(file) < _upload(taken)]
    return taken, _why(taken, others, states) if others else ""


def _why(taken: Path, others: Sequence[Path], states: Mapping[Path, State]) -> str:
    base = Path(os.path.commonpath([file.parent for file in (taken, *others)]))
    told = {
        state: _names(file.relative_to(base) for file in others if states[file] is state)
        for state in State
    }
    why = f"{_names([taken.relative_to(base)])} was graded"
    if rivals := told.pop(states[taken]):
        why = f"There are several files of this sheet: {why}, not {rivals}"
    if blank := told.get(State.BLANK):
        why += f"; nobody has written in {blank}"
    if unreadable := told.get(State.UNREADABLE):
        why += f"; {unreadable} can't be read"
    return f"{why}."


def _state(path: Path) -> State:
    submission = read_submission(path)
    if submission.problem:
        return State.UNREADABLE
    is_empty = not submission.cells and not submission.texts
    return State.BLANK if is_empty or glance(path)[1] else State.WRITTEN


def _none(folder: Path, sheet: str) -> str:
    """Why none of a folder's files counts."""
    there = (path.relative_to(folder) for path in folder.iterdir())
    names = sorted(path for path in there if not path.name.startswith("."))
    if files := list(filter(_has_suffix, names)):
        return f"Which file counts? None of {_names(files)} is called {sheet}.ipynb."
    if names:
        return f"There is no notebook in the folder, only {_names(names)}: hand in {sheet}.ipynb."
    return f"There is nothing in the folder: hand in {sheet}.ipynb."


def _names(paths: Iterable[Path]) -> str:
    """Some names, as text that any file can hold."""
    names = [os.fsencode(path).decode("utf-8", "replace")[:80] for path in paths]
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
