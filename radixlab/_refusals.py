"""What the command line refuses: in one line, with status 2, and before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os.path import realpath
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from radixlab.errors import InvalidArgument, RadixLabError

CHARTS = (".svg", ".png", ".pdf")


@contextmanager
def refusals(extra: str = "model") -> Iterator[Console]:
    """A console on stderr; whatever is refused in the block is one line there, no traceback.

    `extra` is what pip has to install if a library is missing. A pipe whose reader has gone is
    left to typer, which says nothing.
    """
    errors = Console(stderr=True)
    try:
        yield errors
    except BrokenPipeError:
        raise
    except (RadixLabError, OSError, UnicodeError, ModuleNotFoundError) as error:
        said = str(error)
        if isinstance(error, FileNotFoundError) and error.filename:
            said = f"there is no {error.filename}"
        elif isinstance(error, ModuleNotFoundError) and "pip install" not in said:
            if (error.name or "").startswith("radixlab"):
                raise
            said += f": pip install 'radixlab[{extra}]'"
        elif isinstance(error, UnicodeError):  # rich adds a line of advice
            said = said.replace("\n", " ")
        line = Text.assemble((type(error).__name__, "red"), f": {printable(said)}")
        errors.print(line, soft_wrap=True)
        raise typer.Exit(2) from None


def printable(text: str) -> str:
    """A name may be anybody's text: what could steer a terminal is shown as a sign."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def check_file(option: str, path: Path | None) -> None:
    """Raise `InvalidArgument` unless the file that was asked for can be there, or its target."""
    if path is not None and (path.is_dir() or not Path(realpath(path)).parent.is_dir()):
        got = f"{path} -> {realpath(path)}" if path.is_symlink() else str(path)
        raise InvalidArgument(option, got, "a file in a folder that exists")


def check_chart(path: Path | None) -> None:
    """The same for a chart; and raise `ModuleNotFoundError` if nothing can draw it."""
    check_file("chart", path)
    if path is None:
        return
    if path.suffix.lower() not in CHARTS:
        raise InvalidArgument("chart", str(path), f"a file that ends in {', '.join(CHARTS)}")
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("a chart needs matplotlib: pip install 'radixlab[sweep]'")
