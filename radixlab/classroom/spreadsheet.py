"""CSV files that spreadsheets read and write, with cells that none of them takes for a formula.

And how any file is written: at once or not at all.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from radixlab.errors import RadixLabError

Cell = str | int | float | None
FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r")
"""What a spreadsheet may take for the beginning of a formula."""


class BadTable(RadixLabError, ValueError):
    """A CSV file that can't be used; says which file and what to mend."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


def harmless(cell: Cell) -> Cell:
    """The cell with an apostrophe before it, if a spreadsheet might run it."""
    return f"'{cell}" if isinstance(cell, str) and _is_risky(cell) else cell


def plain(cell: str) -> str:
    """What `harmless` was given."""
    return cell[1:] if cell.startswith("'") and _is_risky(cell[1:]) else cell


def _is_risky(cell: str) -> bool:
    return cell.lstrip("'").startswith(FORMULAS)


def spelled(text: str) -> str:
    """The text as a file can hold it: half a character, which no encoding has, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file at once or not at all, and its folders."""
    write_bytes(path, spelled(text).encode(encoding))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file at once or not at all, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(".part")  # the name may be as long as a name can be
    part.write_bytes(content)
    part.replace(path)


def write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip of these files at once or not at all. The same files give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(spelled(name), (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    write_bytes(path, content.getvalue())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a table; each row has a cell for each name of the header."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow(map(harmless, header))
    for row in rows:
        table.writerow([harmless(_short(cell)) for cell in row])
    content = text.getvalue()
    # Excel takes a file for UTF-8 only if it begins with a mark; nobody else needs one.
    write_text(path, content, "utf-8" if content.isascii() else "utf-8-sig")


def _short(cell: Cell) -> Cell:
    """A whole number without its point."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def read_csv(path: Path, needed: Iterable[str] = ()) -> list[dict[str, str]]:
    """The rows of a table by the names of its header, which must have all that are needed.

    Commas, semicolons and tabs are all understood, and the mark and the line `sep=;` with which
    spreadsheets begin. Raises `BadTable`, or OSError.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        text = re.sub(r"^sep=.\r?\n", "", text)
        first, *rest = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    except UnicodeDecodeError:
        raise BadTable(path, 'is not in UTF-8: save it as "CSV UTF-8"') from None
    except (ValueError, csv.Error) as error:
        problem = "is empty" if isinstance(error, ValueError) else str(error)
        raise BadTable(path, problem) from None
    header = [name.strip() for name in first]
    if missing := [name for name in needed if name not in header]:
        raise BadTable(path, f"has no column {', '.join(missing)}; it has {', '.join(header)}")
    return [
        dict(zip(header, map(plain, row + [""] * len(header)), strict=False))
        for row in rest
        if any(row)
    ]


def _delimiter(text: str) -> str:
    line = re.sub('"[^"]*"', "", text.partition("\n")[0])  # of a name what is in quotes
    return max(",;\t", key=line.count)
