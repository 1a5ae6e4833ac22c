"""Submissions as they come: files that anybody may have written, read without trusting them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radixlab.classroom.build import PLACEHOLDER, digest_of
from radixlab.classroom.sheet import Role

MOST_BYTES = 2_000_000
"""Bytes that a submission may have; a notebook without pictures has a hundredth of it."""
MOST_CELLS = 500
MOST_WORDS = 20_000
"""Characters kept of an answer in words."""


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A code cell that counts: which of the notebook's it is, from 1, and what it answers.

    `exercise` is what the cell says of itself, "" if nothing.
    """

    number: int
    source: str
    exercise: str = ""


@dataclass(frozen=True, slots=True)
class TextCell:
    """Any cell, for whoever looks for words; role and exercise are "" if it says nothing."""

    source: str
    is_code: bool
    role: str = ""
    exercise: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a student handed in: the code cells that count, and all cells of a notebook as `texts`.

    `words.find_answers` finds the answers in these. `sheet` is what the notebook says it belongs
    to, `digest` the SHA-256 of the file. `problem` is a sentence for the student if the file could
    not be read, else "".
    """

    cells: tuple[CodeCell, ...] = ()
    texts: tuple[TextCell, ...] = ()
    sheet: str = ""
    digest: str = ""
    problem: str = ""


class _Unreadable(Exception):
    """Says to the student why a file can't be graded."""


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
    return Submission(tuple(CodeCell(*cell) for cell in enumerate(cells, 1)), digest=digest)


def glance(path: Path) -> tuple[str, bool]:
    """Which sheet a notebook says it is of, and whether it is as it was handed out."""
    try:
        data = _notebook_data(_read_bytes(path).decode("utf-8-sig"))
        cells = [_cell(cell)[:2] for cell in data["cells"]]
    except (UnicodeDecodeError, _Unreadable):
        return "", False
    about = about_of(data)
    sheet, digest = about.get("sheet"), about.get("digest")
    return sheet if type(sheet) is str else "", digest == digest_of(cells)


def _notebook_data(text: str) -> dict[str, Any]:
    if not text.strip():
        raise _Unreadable("The file is empty: hand in the notebook itself.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise _Unreadable("The file is not a notebook: it is not JSON.") from None
    if type(data) is not dict or type(data.get("cells")) is not list or data.get("nbformat") != 4:
        raise _Unreadable("The file is not a notebook of format 4: save it with JupyterLab.")
    _refuse_many(data["cells"])
    return data


def _notebook(text: str, digest: str) -> Submission:
    data = _notebook_data(text)
    code: list[CodeCell] = []
    texts: list[TextCell] = []
    number = 0
    for kind, source, about in map(_cell, data["cells"]):
        role, exercise = about.get("role"), about.get("exercise")
        exercise = exercise if type(exercise) is str else ""
        number += kind == "code"
        texts.append(TextCell(source, kind == "code", str(role or ""), exercise))
        if kind == "code" and (not about or role == Role.ANSWER):
            code.append(CodeCell(number, source, exercise))
    sheet = about_of(data).get("sheet")
    return Submission(
        cells=tuple(code),
        texts=tuple(texts),
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
    return str(cell.get("cell_type")), "".join(lines), about_of(cell)


def about_of(part: dict[str, Any]) -> dict[str, Any]:
    """What our metadata say of a notebook or a cell."""
    metadata = part.get("metadata")
    about = metadata.get("radixlab") if isinstance(metadata, dict) else None
    return about if isinstance(about, dict) else {}


def own_words(text: str) -> str:
    """An answer as it can be written into any file, without the placeholder."""
    whole = text.encode("utf-8", "replace").decode().replace("\0", "")
    return whole.replace(PLACEHOLDER, "").strip()


def _refuse_many(cells: list[Any]) -> None:
    if len(cells) > MOST_CELLS:
        raise _Unreadable(f"The file has more than {MOST_CELLS} cells.")
