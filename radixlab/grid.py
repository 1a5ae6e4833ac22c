"""Many runs through joblib, their results kept in a CSV file as soon as they are there.

What a run is, `radixlab.simulate` and `radixlab.virtual` say; here is how a sweep of them goes on
where it was interrupted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from radixlab.errors import InvalidArgument

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")


class Grid(Generic[Row]):
    """Runs that each make one `Row`, a flat dataclass of str, int, float and None.

    `key` tells a row's run from every other.
    """

    def __init__(self, row: type[Row], key: Callable[[Row], Hashable]) -> None:
        self.row, self.key = row, key
        hints = get_type_hints(row)
        self.columns = {column.name: hints[column.name] for column in fields(row)}

    def run(
        self,
        calls: Mapping[Hashable, tuple[Callable[..., Row], tuple[Any, ...]]],
        *,
        csv_path: str | Path | None = None,
        n_jobs: int | None = None,
        on_result: Callable[[Row], object] = lambda row: None,
    ) -> list[Row]:
        """Call each function with its arguments, and return the rows in the order of `calls`.

        Each row is appended to `csv_path` as soon as it is there, and what that file has already is
        not run again. `on_result` is told of each, in order of completion, those from the file
        first. `n_jobs` processes, or what `joblib.parallel_config` has set up, such as a Dask or
        Ray cluster. Raises `InvalidArgument`, before anything runs, for a file that is no such CSV;
        `ModuleNotFoundError` without joblib.
        """
        done = {key: row for row in self.load(csv_path) if (key := self.key(row)) in calls}
        for row in done.values():
            on_result(row)
        left = [call for key, call in calls.items() if key not in done]
        for row in _parallel(left, n_jobs):
            done[self.key(row)] = row
            self._append(csv_path, row)
            on_result(row)
        return [done[key] for key in calls]

    def load(self, path: str | Path | None) -> list[Row]:
        """The rows of a file, which is made if need be; a row that was cut short is cut off."""
        if path is None:
            return []
        path, header = Path(path), ",".join(self.columns)
        data = path.read_bytes() if path.exists() else b""
        first, ended, _ = data.decode(errors="replace").partition("\n")
        first = first.removesuffix("\r")
        if not (first == header if ended else header.startswith(first)):
            raise InvalidArgument("csv_path", str(path), f"a new file, or one with {header}")
        whole = data[: data.rfind(b"\n") + 1] or f"{header}\r\n".encode()
        rows = self._parse(whole.decode(errors="replace"), path)
        if whole != data:
            path.write_bytes(whole)
        return rows

    def _parse(self, text: str, path: Path) -> list[Row]:
        """All rows below the header; a name in quotes may have several lines."""
        lines = io.StringIO(text, newline="").readlines()
        reader, rows, read = csv.reader(lines[1:], strict=True), list[Row](), 1
        try:
            for row in reader:
                if row:
                    cells = zip(self.columns.items(), row, strict=True)
                    values = {name: _value(cell, kind) for (name, kind), cell in cells}
                    rows.append(self.row(**values))
                read = 1 + reader.line_num
        except (csv.Error, ValueError) as error:
            place, allowed = f"{path}, line {read + 1}", f"a row of {','.join(self.columns)}"
            raise InvalidArgument(place, lines[read].rstrip(), allowed) from error
        return rows

    def _append(self, path: str | Path | None, row: Row) -> None:
        if path is not None:
            with Path(path).open("a", encoding="utf-8", newline="") as file:
                csv.writer(file).writerow([getattr(row, column) for column in self.columns])


def _value(text: str, kind: Any) -> str | int | float | None:
    if kind == int | None:
        return int(text) if text else None
    made: str | int | float = kind(text)
    return made


def _parallel(
    calls: list[tuple[Callable[..., Row], tuple[Any, ...]]], n_jobs: int | None
) -> Iterator[Row]:
    try:
        from joblib import Parallel, delayed
    except ModuleNotFoundError as error:
        hint = f"a sweep needs {error.name}: pip install 'radixlab[sweep]'"
        raise ModuleNotFoundError(hint, name=error.name) from error
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    yield from parallel(delayed(function)(*arguments) for function, arguments in calls)
