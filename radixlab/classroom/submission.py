"""Submissions as they come: files that anybody may have written, read without trusting them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radixlab.classroom.build import PLACEHOLDER, digest_of
from radixlab.classroom.sheet import Role

MOST_BYTES = 20_000_000
"""Bytes that a submission may have, with the pictures in a notebook's outputs."""
MOST_CODE = 2_000_000
"""Characters of all its code cells; an honest one has a hundredth of it."""
ONE_AT_A_TIME = threading.Lock()
"""JSON made for it takes thirty times the memory of its file: one of it may be there, not many."""
MOST_CELLS = 500
MOST_WORDS = 20_000
"""Characters kept of an answer in words."""


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A code cell that counts: which of the notebook's it is, from 1, and what it answers.

    `exercise` is what an answer cell says of itself, else "". `is_sheets` says that the cell was
    handed out for something else than an answer; students type there, too.
    """

    number: int
    source: str
    exercise: str = ""
    is_sheets: bool = False


@dataclass(frozen=True, slots=True)
class TextCell:
    """Any cell, for whoever looks for words; role and exercise are "" if it says nothing."""

    source: str
    is_code: bool
    role: str = ""
    exercise: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a student handed in: all code cells, and as `texts` all cells and comments of a script.

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
        with ONE_AT_A_TIME:
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


CELL = re.compile(r"^# ?(?:%%|In\[[ \d]*\]:)(.*)$", re.MULTILINE)
"""What a cell of a script begins with, as Jupytext and as nbconvert write it."""
COMMENT = re.compile(r"^#.*(?:\n#.*)*$", re.MULTILINE)
HEADER = re.compile(r"\A(?:#!.*|#.*coding[:=].*|\s)*(?:# ---\n(?:#.*\n)*?# ---\n)?")
"""What a script begins with that nobody has written: how to run it, and what Jupytext notes."""


def _script(text: str, digest: str) -> Submission:
    _refuse_long([text])
    head, *rest = CELL.split(HEADER.sub("", text.replace("\r\n", "\n")))
    marked = [("", head), *zip(rest[::2], rest[1::2], strict=True)]
    cells = [(mark, cell) for mark, cell in marked if cell.strip()]
    _refuse_many(cells)
    code = [cell for mark, cell in cells if "[markdown]" not in mark]
    texts = [text for cell in cells for text in _texts_of(*cell)]
    if all(text.is_code for text in texts):  # then the code itself may say something
        texts += [TextCell(cell, is_code=False) for cell in code]
    return Submission(
        cells=tuple(CodeCell(*cell) for cell in enumerate(code, 1)),
        texts=tuple(texts[:MOST_CELLS]),
        digest=digest,
    )


def _texts_of(mark: str, cell: str) -> Iterator[TextCell]:
    """A script's cell: a text; or code, and comments, which nbconvert makes of the texts below."""
    if "[markdown]" in mark:
        yield TextCell(_uncommented(cell).strip("\n\"'"), is_code=False)
        return
    comments = COMMENT.findall(cell)
    if comments != [cell.strip()]:
        yield TextCell(cell, is_code=True)
    yield from (TextCell(_uncommented(comment), is_code=False) for comment in comments)


def _uncommented(comment: str) -> str:
    return re.sub("^# ?", "", comment, flags=re.MULTILINE)


def glance(path: Path) -> tuple[str, bool]:
    """Which sheet a notebook says it is of, and whether it is as it was handed out."""
    try:
        with ONE_AT_A_TIME:
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
        is_comment = kind == "code" and not about and COMMENT.fullmatch(source.strip())
        text = _uncommented(source.strip()) if is_comment else source
        texts.append(TextCell(text, kind == "code" and not is_comment, str(role or ""), exercise))
        if kind == "code":
            is_answer = role == Role.ANSWER
            answers = exercise if is_answer else ""
            code.append(CodeCell(number, source, answers, bool(role) and not is_answer))
    _refuse_long([cell.source for cell in code])
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


def _refuse_long(code: list[str]) -> None:
    if sum(map(len, code)) > MOST_CODE:
        raise _Unreadable(f"The file has more than {MOST_CODE} characters of code.")


def _refuse_many(cells: list[Any]) -> None:
    if len(cells) > MOST_CELLS:
        raise _Unreadable(f"The file has more than {MOST_CELLS} cells.")
