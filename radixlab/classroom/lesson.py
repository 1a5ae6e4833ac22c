"""The program in the sandbox: a sheet's code, a student's cells, and calls of what they define.

It is alone there with the standard library and `runner.py`. It reads JSON lines and answers each
with one: first the sheet, then calls. It never runs a student's code itself and never reads what
that code says: its children do the one, and `outcome.understand`, in the trusted process, does the
other.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import re
import shutil
import sys
import types
from functools import partial
from typing import Any, BinaryIO

try:
    from radixlab.classroom import runner
except ImportError:  # in the sandbox, where it lies beside this file
    sys.path.append(os.path.dirname(__file__))
    runner = importlib.import_module("runner")
    del sys.path[-1], sys.modules["runner"]


ANNOTATIONS = annotations.compiler_flag
"""The only `__future__` that still changes something: in a notebook it holds from there on."""


class Lesson:
    """A sheet's code and a student's cells; each call runs all of the cells, as a notebook does.

    Drivers get a copy of the names in which all that the sheet gives, and Python's own, is as it
    was, whatever a student calls by the same name. What an exercise asks for is his, of course, and
    so is a given class that he has written anew: his functions were made for it.
    """

    def __init__(self, header: dict[str, Any]) -> None:
        sys.path += header["path"]
        for name in header["preload"]:
            importlib.import_module(name)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        self.names = vars(main)
        self.names |= _stand_ins()
        exec(compile(header["given"], "<given>", "exec", dont_inherit=True), self.names)
        self.given = dict(self.names)
        self.cells: list[str] = header["cells"]
        self.flags = 0
        self.shown = {text for page in header["shown"] for text in _texts(page)}
        self.needed: dict[str, list[str]] = header["needed"]
        self.drivers = {
            exercise: compile(source, f"<driver of {exercise}>", "exec", dont_inherit=True)
            for exercise, source in header["drivers"].items()
        }

    def call(self, exercise: str, entry: str, args: list[Any], failed: list[Any]) -> object:
        """Run the cells, adding to `failed` those that fail, then the drivers, then the entry."""
        for number, source in enumerate(self.cells):
            if error := self._run(source, f"<cell {number}>"):
                failed.append([number, error])
        for name in self.needed[exercise]:
            if name not in self.names:
                raise runner.Missing(name)
        names = self._names_for_drivers()
        for of, driver in self.drivers.items():
            exec(driver, names)
            if of == exercise:
                break
        if entry not in names:
            raise runner.Missing(entry)
        return names[entry](*args)

    def _run(self, source: str, name: str) -> str:
        """Run the statements of a cell, each whatever became of those before it, but for an exit.

        Returns the first exception (a builtin's name), "" if there was none. Lines that a page of
        the sheet has may fail: they need radixlab.
        """
        first = ""
        try:
            statements = _parsed(source)
        except BaseException as error:
            return runner.builtin_name(error)
        for statement in statements:
            try:
                cell = ast.Module([statement], [])
                code = compile(cell, name, "exec", self.flags, dont_inherit=True)
                self.flags |= code.co_flags & ANNOTATIONS
                exec(code, self.names)
            except BaseException as error:
                if not first and _text(source, statement) not in self.shown:
                    first = runner.builtin_name(error)
                if isinstance(error, SystemExit):
                    break
        return first

    def _names_for_drivers(self) -> dict[str, Any]:
        asked = {name for names in self.needed.values() for name in names}
        kept = {
            name: each
            for name, each in self.given.items()
            if name not in asked and not (_is_own(each) and _is_own(self.names.get(name)))
        }
        own = {n: each for n, each in self.names.items() if n in asked or not hasattr(builtins, n)}
        return own | kept


def _is_own(value: object) -> bool:
    """Whether it is a class that was written here."""
    return isinstance(value, type) and value.__module__ == "__main__"


# --- a cell --------------------------------------------------------------------------------------

_MAGIC = r"([ \t]*)(?:(?:\w[\w, \t]*=[ \t]*)?[%!].*|\?.*|[\w.]+\?\??\s*)"


def _parsed(source: str) -> list[ast.stmt]:
    """The statements of a cell, without its lines for notebooks alone (%, !, ?)."""
    lines = source.split("\n")
    while True:
        try:
            return ast.parse("\n".join(lines)).body
        except SyntaxError as error:
            place = (error.lineno or 0) - 1
            magic = re.fullmatch(_MAGIC, lines[place]) if 0 <= place < len(lines) else None
            if not magic:
                raise
            lines[place] = f"{magic[1]}pass"


def _texts(page: str) -> list[str]:
    """The statements of a page as text; none if it is no Python, but %%html, say."""
    try:
        return [_text(page, statement) for statement in _parsed(page)]
    except SyntaxError:
        return []


def _text(source: str, statement: ast.stmt) -> str:
    return "\n".join(source.split("\n")[statement.lineno - 1 : statement.end_lineno]).strip()


def _stand_ins() -> dict[str, object]:
    """Let `from radixlab.classroom import check, show` work, and nothing else of it.

    Returns the two, and what else a notebook has from the beginning; here they do nothing.
    """
    package, classroom = types.ModuleType("radixlab"), types.ModuleType("radixlab.classroom")
    names: dict[str, object] = {"check": _nothing, "show": _nothing}
    vars(classroom).update(names)
    vars(package).update(classroom=classroom)
    sys.modules.update({"radixlab": package, "radixlab.classroom": classroom})
    return names | {"display": _nothing}


def _nothing(*_: object, **__: object) -> None:
    pass


# --- the program ---------------------------------------------------------------------------------


def main() -> None:
    """Serve one submission: a line with the sheet, then a line for each call."""
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    header = json.loads(commands.readline())
    try:
        lesson = Lesson(header)
    except BaseException as error:  # the teacher's code fails, or a package is not there
        _say(answers, problem=f"{type(error).__name__}: {error}")
        return
    _say(answers, problem="")
    while line := commands.readline():
        _empty(header["scratch"])
        status, raw = _serve(lesson, json.loads(line), header["seconds"], header["memory"])
        _say(answers, status=status, answer=raw.decode("utf-8", "replace"))


def _empty(folder: str) -> None:
    """Make the folder as it was before the first call; if that fails, no other call is made."""
    os.chmod(folder, 0o700)
    for place, folders, _ in os.walk(folder):
        for path in (os.path.join(place, name) for name in folders):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
    if sys.platform == "linux":
        for attribute in os.listxattr(folder):
            os.removexattr(folder, attribute)
    os.utime(folder, (0, 0))


def _say(answers: BinaryIO, **message: str) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


def _serve(lesson: Lesson, call: dict[str, Any], seconds: float, memory: int) -> tuple[str, bytes]:
    failed: list[Any] = []
    work = partial(runner.report, partial(lesson.call, **call, failed=failed), failed)
    return runner.fork(work, seconds, memory, locked_up=True)[:2]


if __name__ == "__main__":
    main()
