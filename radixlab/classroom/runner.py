"""Runs code that nobody trusts: each call in a child of its own, with little time and memory.

Nothing here knows of sheets: `lesson.py`, the program in the sandbox, takes its children from here,
and so do checks in a notebook's kernel. What a child says is read by `outcome.understand` alone.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import json
import math
import mmap
import os
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

try:
    import resource
except ImportError:  # Windows knows no limits
    resource = None  # type: ignore[assignment]  # asked for before each use

MIB = 1 << 20
MOST_ANSWER = MIB
"""Bytes of JSON that a call may give back."""
MOST_PRINTED = 2000
"""Characters kept of what it prints."""
LEAST_PATIENCE = 10
"""Seconds of wall time that a call has at least, else five times its CPU time."""
SPARE_MEMORY = 64
"""MiB that a call gets to say in that it had not enough memory."""

Work = Callable[[], bytes]
_exit = os._exit


class Missing(Exception):
    """A name that the student had to define is not there."""


# --- a call, and what is said of it --------------------------------------------------------------


def report(function: Callable[[], object], cells: list[Any]) -> bytes:
    """Call it and put what came of it into JSON; of an exception only a builtin's name."""
    said: dict[str, Any] = {"cells": cells}
    try:
        value = function()
    except BaseException as error:
        _use_spare_memory()
        said |= _failure(error)
    else:
        said |= {"status": "ok", "value": value}
    kind, status = "", "too big"
    try:
        if kind := odd(said):
            raise ValueError
        answer = json.dumps(said, allow_nan=False).encode()
        if len(answer) <= MOST_ANSWER:
            return answer
    except RecursionError:
        pass
    except (MemoryError, ValueError) as error:  # or an integer of thousands of digits
        status = "memory" if isinstance(error, MemoryError) else "not json"
    return json.dumps({"status": status, "cells": cells, "kind": kind}).encode()


def odd(value: object) -> str:
    """The type of the first part that JSON itself does not have, "" if there is none.

    "key" is a key that is no text, "nan" a float that is no number.
    """
    if type(value) is dict:
        is_plain = all(type(key) is str for key in value)
        return next(filter(None, map(odd, value.values())), "") if is_plain else "key"
    if type(value) is list:
        return next(filter(None, map(odd, value)), "")
    if type(value) is float and not math.isfinite(value):
        return "nan"
    return "" if value is None or type(value) in (bool, int, float, str) else type(value).__name__


def _failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Missing):
        return {"status": "missing", "error": str(error)}
    status = "memory" if isinstance(error, MemoryError) else "error"
    return {"status": status, "error": builtin_name(error)}


def builtin_name(error: BaseException) -> str:
    """All that is told of an exception: the builtin that it is, or its nearest base."""
    names, kinds = vars(builtins), type(error).__mro__
    return next((k.__name__ for k in kinds if names.get(k.__name__) is k), "Exception")


# --- the child -----------------------------------------------------------------------------------


def fork(
    work: Work, seconds: float, memory_mib: int | None, locked_up: bool
) -> tuple[str, bytes, str]:
    """Let a child work; returns how that went, its answer and what it printed."""
    if not hasattr(os, "fork"):
        return "ok", work(), ""
    answer, answer_end = os.pipe()
    printed, printed_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks beside threads
        pid = os.fork()
    if pid == 0:
        _be_child(work, (answer_end, printed_end), seconds, memory_mib, locked_up)
    os.close(answer_end)
    os.close(printed_end)
    out_of_time, text = False, ""
    try:
        status, raw = _read(answer, time.monotonic() + max(LEAST_PATIENCE, 5 * seconds))
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            _, how, used = os.wait4(pid, 0)
            # The kernel's own clock for limits is coarse: on a busy machine it runs ahead.
            out_of_time = how == signal.SIGKILL and used.ru_utime + used.ru_stime >= seconds / 2
        os.set_blocking(printed, False)
        with contextlib.suppress(BlockingIOError):  # somebody still holds the other end
            text = os.read(printed, 4 * MOST_PRINTED).decode("utf-8", "replace")
        os.close(answer)
        os.close(printed)
    return "timeout" if status == "ended" and out_of_time else status, raw, text


def _read(pipe: int, deadline: float) -> tuple[str, bytes]:
    """All that comes out of a pipe until it is closed, with an end to patience."""
    data, news = bytearray(), select.poll()
    news.register(pipe, select.POLLIN)
    while len(data) <= MOST_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0 or not news.poll(1000 * left):
            return "timeout", b""
        if not (part := os.read(pipe, MIB)):
            return ("ok" if data else "ended"), bytes(data)
        data += part
    return "too big", b""


def _be_child(
    work: Work, ends: tuple[int, int], seconds: float, memory_mib: int | None, locked_up: bool
) -> NoReturn:
    try:
        sys.stdin, sys.stdout = io.StringIO(), _Printed(ends[1])
        sys.stderr = sys.stdout
        builtins.input = _no_input
        if "torch" in sys.modules:  # its threads do not survive a fork
            sys.modules["torch"].set_num_threads(1)
        if locked_up:
            _close_all_but(ends)
        if resource is not None:
            _limit(seconds, memory_mib, locked_up)
        if locked_up:
            _forbid_system_calls()
        answer = memoryview(work())
        while answer:
            answer = answer[os.write(ends[0], answer) :]
    finally:
        _exit(0)


class _Printed(io.TextIOBase):
    """Passes on the first `MOST_PRINTED` characters, which a pipe always has room for."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._left = pipe, MOST_PRINTED

    def write(self, text: str) -> int:
        kept = text[: self._left]
        self._left -= len(kept)
        os.write(self._pipe, kept.encode("utf-8", "replace"))
        return len(text)


def _no_input(prompt: object = "") -> str:
    raise EOFError("nobody answers an input() here")


def _close_all_but(kept: tuple[int, int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    last = 2
    for fd in (*sorted(kept), MIB):
        os.closerange(last + 1, fd)
        last = fd


def _limit(seconds: float, memory_mib: int | None, locked_up: bool) -> None:
    limits = {"CPU": math.ceil(seconds), "CORE": 0}
    if locked_up:
        limits |= {"FSIZE": MIB, "NOFILE": 64, "NPROC": 64}
    for name, most in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    if memory_mib is not None:
        with contextlib.suppress(OSError, ValueError):
            _limit_memory(memory_mib)


def _limit_memory(mib: int) -> None:
    """Allow so much more address space than is in use, which is found by trying what still fits."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    top = 1 << 46 if hard == resource.RLIM_INFINITY else min(hard, 1 << 46)
    fits, fails = 0, top
    resource.setrlimit(resource.RLIMIT_AS, (top, hard))
    while fails - fits > MIB:
        middle = (fits + fails) // 2
        try:
            mmap.mmap(-1, middle, flags=mmap.MAP_PRIVATE, prot=0).close()
            fits = middle
        except OSError:
            fails = middle
    most = min(top - fits + mib * MIB, top)
    resource.setrlimit(resource.RLIMIT_AS, (most, min(most + SPARE_MEMORY * MIB, top)))


def _use_spare_memory() -> None:
    if resource is not None:
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


# --- system calls --------------------------------------------------------------------------------

# fmt: off
_MACHINES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    # The machine's number; clone, clone3, kill, tgkill, prlimit; and what no exercise needs: fork,
    # vfork, exec, ptrace, others' signals and memory, namespaces, mounts, sockets, keys, bpf,
    # io_uring; System V's memory, semaphores and queues, and POSIX's queues, which outlive a call.
    "x86_64": (0xC000003E, (56, 435, 62, 234, 302), (
        57, 58, 59, 322, 101, 200, 129, 297, 310, 311, 424, 434, 438,
        272, 308, 165, 41, 248, 249, 250, 321, 298, 323, 425, 29, 64, 68, 240)),
    "aarch64": (0xC00000B7, (220, 435, 129, 131, 261), (
        221, 281, 117, 130, 138, 240, 270, 271, 424, 434, 438,
        97, 268, 40, 198, 217, 218, 219, 280, 241, 282, 425, 194, 190, 186, 180)),
}
# fmt: on
_LOAD, _EQUAL, _ABOVE, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x50026
_CLONE_THREAD = 0x10000


def _filter(machine: str, pid: int) -> bytes:
    """A program for the kernel (classic BPF): no processes, signals and limits for oneself only.

    An instruction has a code, how far to jump if it holds and if not, and a number.
    """
    number, (clone, clone3, kill, tgkill, prlimit), refused = _MACHINES[machine]
    program = [
        *((_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, number), (_RETURN, 0, 0, _KILL)),
        *((_LOAD, 0, 0, _NUMBER), (_ABOVE, 0, 1, 1 << 30), (_RETURN, 0, 0, _ENOSYS)),
        *((_EQUAL, 0, 1, clone3), (_RETURN, 0, 0, _ENOSYS)),
    ]
    for call in refused:
        program += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _EPERM)]
    allowed_if = {clone: (_HAS, _CLONE_THREAD), kill: (_EQUAL, pid), tgkill: (_EQUAL, pid)}
    allowed_if[prlimit] = (_EQUAL, 0)  # that is oneself
    for call, (test, wanted) in allowed_if.items():
        program += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, _FIRST_ARGUMENT), (test, 0, 1, wanted)]
        program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _forbid_system_calls() -> None:
    """Install the filter for this process; other systems than Linux have only the limits."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _MACHINES:
        return
    program = _filter(machine, os.getpid())
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
    prctl = ctypes.CDLL(None).prctl
    prctl(38, 1, 0, 0, 0)  # no new privileges
    prctl(22, 2, header)  # seccomp, by filter
