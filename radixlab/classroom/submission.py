"""Submissions as they come: files that anybody may have written, read without trusting them.

A folder of submissions has STUDENT.ipynb, STUDENT.py, or a folder STUDENT with one such file (of
several the one named like the sheet counts). The downloads of Canvas
(`doejane_LATE_12345_67890_02-split.ipynb`) and of Moodle (`Jane Doe_12345_assignsubmission_file/`)
are such folders; the student is called as they do, so that an export finds the person again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from radixlab.classroom.build import PLACEHOLDER

MOST_BYTES = 2_000_000
"""Bytes that a submission may have; a notebook without pictures has a hundredth of it."""
MOST_CELLS = 500
MOST_WORDS = 20_000
"""Characters kept of an answer in words."""

SUFFIXES = (".ipynb", ".py")
CANVAS = re.compile(r"([^_]+)_(?:LATE_)?(\d+)_(\d+)_.+")
MOODLE = re.compile(r"(.+_\d+_assignsubmission_file)_?.*")


@dataclass(frozen=True, slots=True)
class Submission:
    """What a student handed in: the code cells that count, and the answers in words by question.

    `numbers` says which of the notebook's code cells each cell is, from 1. `sheet` is what the
    notebook says it belongs to, `digest` the SHA-256 of the file. `problem` is a sentence for the
    student if the file could not be read, else "".
    """

    cells: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    written: dict[str, str] = field(default_factory=dict)
    sheet: str = ""
    digest: str = ""
    problem: str = ""


class _Unreadable(Exception):
    """Says to the student why a file can't be graded."""


# --- finding them --------------------------------------------------------------------------------


def find_submissions(folder: Path, sheet: str) -> list[tuple[str, Path]]:
    """The students and their files, by name; a student's folder, if it's not clear which file.

    Hidden files and files of other kinds are left out. If Canvas has several of one student, the
    latest counts; of a notebook and a script of the same name, the notebook.
    """
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.iterdir(), key=_order):
        if path.suffix in SUFFIXES or path.is_dir():
            canvas, moodle = CANVAS.fullmatch(path.stem), MOODLE.fullmatch(path.name)
            name = moodle[1] if moodle else path.name.removesuffix(".py").removesuffix(".ipynb")
            skipped = path.name.startswith((".", "__")) or "_assignsubmission_onlinetext" in name
            if not skipped:
                who = f"{canvas[1]}_{canvas[2]}" if canvas else name
                found[who] = (safe_name(name), _choose(path, sheet))
    return sorted(found.values())


def _order(path: Path) -> tuple[int, bool, str]:
    """Later ones take the place of earlier ones."""
    canvas = CANVAS.fullmatch(path.stem)
    return int(canvas[3]) if canvas else 0, path.suffix == ".ipynb", path.name


def _choose(path: Path, sheet: str) -> Path:
    if path.is_symlink() or not path.is_dir():
        return path
    try:
        files = [file for file in path.iterdir() if file.suffix in SUFFIXES]
    except OSError:
        return path
    files = [file for file in files if not file.name.startswith(".")]
    named = [file for file in files if file.name == f"{sheet}.ipynb"]
    return next((some[0] for some in (files, named) if len(some) == 1), path)


def safe_name(name: str) -> str:
    """A student's name as a file may be called; whatever is odd becomes `_`, and a digest follows.

    So two students never get the same file, and no name leaves its folder.
    """
    odd = re.compile(r'[/\\:*?"<>|]|^[\s.~-]|[\s.]$')
    if name.isprintable() and not odd.search(name) and 0 < len(name.encode()) <= 150:
        return name
    plain = re.sub(r"[^\w@]", "_", name.encode("utf-8", "replace").decode())[:30]
    return f"{plain}_{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


# --- reading one ---------------------------------------------------------------------------------


def read_submission(path: Path) -> Submission:
    """Read a notebook, or a script with cells after `# %%`; nothing in it raises anything."""
    digest = ""
    try:
        data = _read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        text = data.decode("utf-8-sig")
        return _script(text, digest) if path.suffix == ".py" else _notebook(text, digest)
    except UnicodeDecodeError:
        return Submission(digest=digest, problem="The file is not text (UTF-8).")
    except _Unreadable as problem:
        return Submission(digest=digest, problem=str(problem))


def _read_bytes(path: Path) -> bytes:
    """A plain file's bytes; no link is followed, no pipe waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise _Unreadable("The file is a link to another one: hand in the file itself.")
    if path.is_dir():
        raise _Unreadable("There is no notebook in the folder, or there are several.")
    try:
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _Unreadable("It is not a plain file.")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"The file can't be read: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise _Unreadable(f"The file has more than {MOST_BYTES} bytes: clear all outputs.")
    return data


def _script(text: str, digest: str) -> Submission:
    head, *rest = re.split(r"^# ?%%(.*)$", text, flags=re.MULTILINE)
    marked = zip(rest[::2], rest[1::2], strict=True)
    cells = [head, *(code for mark, code in marked if "[markdown]" not in mark)]
    cells = [cell for cell in cells if cell.strip()]
    _refuse_many(cells)
    return Submission(tuple(cells), tuple(range(1, len(cells) + 1)), digest=digest)


def _notebook(text: str, digest: str) -> Submission:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise _Unreadable("The file is not a notebook: it is not JSON.") from None
    if type(data) is not dict or type(data.get("cells")) is not list or data.get("nbformat") != 4:
        raise _Unreadable("The file is not a notebook of format 4: save it with JupyterLab.")
    _refuse_many(data["cells"])
    code: dict[int, str] = {}
    written: dict[str, str] = {}
    number = 0
    for kind, source, about in map(_cell, data["cells"]):
        role, exercise = about.get("role"), about.get("exercise")
        number += kind == "code"
        if kind == "code" and (not about or role == "answer"):
            code[number] = source
        if role == "written-answer" and type(exercise) is str:
            written[exercise] = f"{written.get(exercise, '')}\n\n{_words(source)}".strip()
    sheet = _about(data).get("sheet")
    return Submission(
        cells=tuple(code.values()),
        numbers=tuple(code),
        written={exercise: words[:MOST_WORDS] for exercise, words in written.items()},
        sheet=sheet if type(sheet) is str else "",
        digest=digest,
    )


def _cell(cell: Any) -> tuple[str, str, dict[str, Any]]:
    """Its kind, its text and what our metadata says of it."""
    if type(cell) is not dict:
        raise _Unreadable("The file is not a notebook: a cell of it is none.")
    source = cell.get("source")
    lines = [source] if type(source) is str else source
    if type(lines) is not list or any(type(line) is not str for line in lines):
        raise _Unreadable("The file is not a notebook: a cell of it has no text.")
    return str(cell.get("cell_type")), "".join(lines), _about(cell)


def _about(part: dict[str, Any]) -> dict[str, Any]:
    metadata = part.get("metadata")
    about = metadata.get("radixlab") if type(metadata) is dict else None
    return about if type(about) is dict else {}


def _words(text: str) -> str:
    """An answer as it can be written into any file."""
    whole = text.encode("utf-8", "replace").decode().replace("\0", "")
    return "" if whole.strip() == PLACEHOLDER else whole.strip()


def _refuse_many(cells: list[Any]) -> None:
    if len(cells) > MOST_CELLS:
        raise _Unreadable(f"The file has more than {MOST_CELLS} cells.")
