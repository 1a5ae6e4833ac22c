"""`check("split_at")`: the visible cases of an exercise, at once, in the student's own notebook.

Each case runs in a child of the kernel, with a limit on its time, so that a loop without end is
reported and the kernel lives. Where a process can't fork (Windows) it runs in the kernel itself.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from radixlab.classroom.caseresult import CaseResult, case_result
from radixlab.classroom.checkresult import CheckResult
from radixlab.classroom.imports import missing_imports, own_names, what_is_there
from radixlab.classroom.origin import Origin, origin
from radixlab.classroom.outcome import Outcome, call_in_child, mistakes_made, watch
from radixlab.classroom.runner import odd
from radixlab.classroom.ways import LOOK, Limits, kind_name, wrong_inside, wrong_kind
from radixlab.errors import InvalidArgument, RadixLabError

PACK, FOLDER = ".check.json", ".checks"
"""The visible cases of NAME.ipynb are in .checks/NAME.check.json, or in that file beside it."""

MOST_TIMEOUTS = 2
"""After so many cases without an end the others are not tried."""
MOST_NAMED = 3
"""Functions that are named in the place of a missing one."""

Pack = dict[str, Any]

_passed: dict[str, dict[str, bool | None]] = {}
"""By sheet and exercise: whether the last check passed, as long as this kernel lives."""


def _one_line(error: BaseException) -> list[str]:
    """What a notebook shows in place of a traceback: IPython asks for it."""
    return [f"{type(error).__name__}: {error}"]


class ChecksFailed(RadixLabError):
    """Raised by `check` while nbgrader validates a notebook, so that it sees the failure."""

    _render_traceback_ = _one_line


class NoSuchExercise(InvalidArgument):
    """Raised by `check` for a name that no sheet has; says which there are."""

    _render_traceback_ = _one_line


def check(exercise: str) -> CheckResult | None:
    """Run the visible cases of an exercise with the functions that the caller has defined.

    What comes back shows itself in a notebook and in a terminal, and is true if all cases are
    right. Only while nbgrader validates (its variable NBGRADER_EXECUTION is set) a failure raises
    `ChecksFailed` and nothing comes back; elsewhere "run all cells" goes on to the next exercise.
    """
    namespace = sys._getframe(1).f_globals
    pack = find_pack(exercise)
    result = _run(pack, exercise, namespace)
    if not os.environ.get("NBGRADER_EXECUTION"):
        return result
    if not result:
        raise ChecksFailed(" ".join(result.verdict))
    print(result)  # nbgrader takes what a cell returns for points
    return None


# --- the cases of an exercise --------------------------------------------------------------------


def find_pack(exercise: str) -> Pack:
    """The visible cases of an exercise's sheet: beside the notebook, else those of radixlab."""
    known: list[str] = []
    for pack in _packs_here():
        if exercise in pack["exercises"]:
            return pack
        known += pack["exercises"]
    if (pack_of_ours := _pack_of_ours(exercise)) is not None:
        return pack_of_ours
    known = known or _names_of_ours()
    raise NoSuchExercise("exercise", exercise, f"one of {', '.join(known)}")


def _packs_here() -> Iterator[Pack]:
    """The packs in the working directory, the one of this very notebook first."""
    stem = Path(os.environ.get("JPY_SESSION_NAME", "")).stem
    paths = [*Path.cwd().glob(f"{FOLDER}/*{PACK}"), *Path.cwd().glob(f"*{PACK}")]
    for path in sorted(paths, key=lambda path: (path.name != stem + PACK, path.name)):
        yield json.loads(path.read_text(encoding="utf-8"))


@cache
def _pack_of_ours(exercise: str) -> Pack | None:
    """Made from the sheet that comes with radixlab; takes a second, once for each exercise."""
    from radixlab.classroom.packs import visible_pack
    from radixlab.classroom.sheet import Sheet, find_sheets

    for path in find_sheets():
        if re.search(rf"exercise: {re.escape(exercise)}\b", path.read_text(encoding="utf-8")):
            return visible_pack(Sheet.read(path), only=exercise)
    return None


def _names_of_ours() -> list[str]:
    """The exercises of the sheets that come with radixlab."""
    from radixlab.classroom.sheet import Sheet, find_sheets

    return [name for path in find_sheets() for name in Sheet.read(path).exercises]


# --- running them --------------------------------------------------------------------------------


def _run(pack: Pack, exercise: str, namespace: dict[str, Any]) -> CheckResult:
    task = pack["exercises"][exercise]
    stop, where = _missing(pack, task, namespace), Origin()
    for name in task["names"]:
        if not where.stale:
            where = origin(name, namespace, _known(pack))
    if where.stale:
        stop = where.stale
    cases: list[CaseResult] = []
    outcomes: list[Outcome] = []
    if not stop:
        for outcome, case in _call_all(pack, task, namespace):
            outcomes.append(outcome)
            cases.append(case)
        if outcomes and all(o.error == "NotImplementedError" for o in outcomes):
            stop, cases = "not written yet. Put your code where the cell above raises.", []
    mistakes = () if all(case.right for case in cases) else _mistakes(task, outcomes)
    seen = _passed.setdefault(pack["sheet"], {})
    seen[exercise] = None if stop else all(case.right for case in cases)
    sheet = {name: seen.get(name) for name in pack["order"]}
    warning = _warning(pack, task, namespace)
    return CheckResult(
        exercise,
        pack["title"],
        tuple(cases),
        stop,
        mistakes,
        sheet,
        warning,
        left=0 if stop else len(task["cases"]) - len(cases),
        cell=where.cell,
    )


def _warning(pack: Pack, task: dict[str, Any], namespace: dict[str, Any]) -> str:
    """What the code uses that is not there when it is graded."""
    preload = pack.get("preload", ())
    if not (missing := missing_imports(namespace, task["names"], preload)):
        return ""
    return (
        f"Your code uses {', '.join(f'`{name}`' for name in missing)}. When it is graded, "
        f"it can import {what_is_there(preload)}."
    )


def _missing(pack: Pack, task: dict[str, Any], namespace: dict[str, Any]) -> str:
    """What must be run first, "" if all is there."""
    if given := [name for name in task["given"] if name not in namespace]:
        return f"{', '.join(given)} is not defined. Run the cells above first, from the top."
    for name in task["names"]:
        if name not in namespace:
            return f"`{name}` is not defined. {_instead(pack, namespace, name)}"
        if not callable(namespace[name]):
            what = kind_name(type(namespace[name]).__name__)
            return (
                f"`{name}` is no function any more, but {what}: another cell uses the same name. "
                "Choose another name there, then run the cell with your code again."
            )
    return ""


def _instead(pack: Pack, namespace: dict[str, Any], name: str) -> str:
    """What to do if a name is missing: it may have been written with another one."""
    known = _known(pack)
    own = [each for each in own_names(namespace) if each not in known]
    if not own:
        return "Run the cell with your code first."
    there = ", ".join(f"`{each}`" for each in own[-MOST_NAMED:])
    return (
        f"You have defined {there}: if that is it, call it `{name}`, as the check does, and run "
        "its cell again. If not, run the cell with your code first."
    )


def _known(pack: Pack) -> set[str]:
    """All names that the sheet gives or asks for."""
    tasks = pack["exercises"].values()
    return {each for task in tasks for each in (*task["names"], *task["given"])}


def _call_all(
    pack: Pack, task: dict[str, Any], namespace: dict[str, Any]
) -> Iterator[tuple[Outcome, CaseResult]]:
    timeouts, limits = 0, Limits(pack["seconds"], pack["memory"], pack.get("preload", ()))
    for number, case in enumerate(task["cases"], 1):
        if timeouts == MOST_TIMEOUTS:
            return
        answer, printed = _call(pack, task, case["args"], namespace)
        outcome, told = _read(answer, task, case)
        timeouts += outcome.status == "timeout"
        yield outcome, case_result(task, number, case, outcome, limits, printed=printed, **told)


def _call(
    pack: Pack, task: dict[str, Any], args: list[Any], namespace: dict[str, Any]
) -> tuple[Outcome, str]:
    """One call, in a child: the driver sees the student's names, and what it adds stays there."""

    def work() -> dict[str, Any]:
        own = dict(namespace)
        returned = watch(own, task["names"][0])
        exec(compile(task["driver"], "<driver>", "exec", dont_inherit=True), own)
        try:
            value = own[task["entry"]](*json.loads(json.dumps(args)))
        except MemoryError:
            raise  # nothing can be told without memory
        except Exception as error:
            return {"raised": _tell(error, namespace), "returned": returned}
        kind = odd(value)
        return {"returned": returned} | ({"odd": kind} if kind else {"value": value})

    return call_in_child(work, pack["seconds"], pack["memory"])


def _tell(error: Exception, namespace: dict[str, Any]) -> dict[str, Any]:
    """What an exception says, and the lines of the notebook's own code that it went through."""
    frames = traceback.walk_tb(error.__traceback__)
    own = [(f.f_code, line) for f, line in frames if f.f_globals is namespace]
    where = []
    for code, line in own[-3:]:
        text = linecache.getline(code.co_filename, line).strip()
        where.append(f"{code.co_name}, line {line}: {text}".removesuffix(": "))
    builtin = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    words = f"{type(error).__name__}: {error}"[:500].removesuffix(": ")
    return {"error": builtin, "words": words, "where": where}


def _read(
    answer: Outcome, task: dict[str, Any], case: dict[str, Any]
) -> tuple[Outcome, dict[str, Any]]:
    """What came of a call, and what else can be told of it here: of a `CaseResult`."""
    if answer.status != "ok":
        return answer, {}
    said = answer.value
    came, inside = said["returned"] or ("", "")
    wanted, name = case.get("kind", ""), task["names"][0]
    hint = wrong_kind(name, came, wanted)
    if "value" in said:
        is_plain = "NoneType" in (came, wanted) or came == "raise"
        return Outcome("ok", said["value"]), {"hint": hint if is_plain else ""}
    if "odd" in said:
        return Outcome("not json", kind=said["odd"]), {"hint": hint}
    raised = said["raised"]
    outcome = Outcome("error", None, raised["error"])
    if raised["where"]:
        told = {"where": tuple(raised["where"]), "hint": LOOK}
        return outcome, told | {"message": raised["words"]}
    if not came:
        return outcome, {"message": f"{raised['words']} (when the check called your code)"}
    hint = hint or wrong_inside(name, inside, case.get("inside", ""))
    after = "when the check looked at what your code had given back or left behind"
    return outcome, {"hint": hint, "problem": f"It raised {raised['words']}, {after}."}


def _mistakes(task: dict[str, Any], outcomes: list[Outcome]) -> tuple[str, ...]:
    """What is told to those who make the known mistakes that give just these results."""
    known = [(m["message"], [Outcome(**each) for each in m["outcomes"]]) for m in task["mistakes"]]
    return tuple(mistakes_made(known, outcomes))
