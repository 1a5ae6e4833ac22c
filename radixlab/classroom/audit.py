"""What makes a sheet fair and closed, ours or a teacher's own: the rules, each tried by running it.

The solution passes, the stub fails loudly, constant answers earn nothing, the seed decides what is
hidden, mistakes are caught and told apart, and nothing of the teacher's is in what students get.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from radixlab.classroom.build import book_page, student_notebook
from radixlab.classroom.cases import Case, is_right, make_cases, run_trusted
from radixlab.classroom.outcome import Outcome, alike, same
from radixlab.classroom.sandbox import Call, SandboxUnavailable, run_calls
from radixlab.classroom.sheet import SOLUTION, BadSheet, Exercise, Sheet, Wrong, keep_solution

CONSTANT_ANSWERS = {
    "returns None": "return None",
    "returns 0": "return 0",
    "returns []": "return []",
    "returns {}": "return {}",
    "returns its first argument": "return next(iter(locals().values()), None)",
}
"""Answers of somebody who has written nothing, with the body that gives them."""

SHORT = 12
"""A line of code with fewer characters (spaces not counted) may stand in a hint."""


def audit(sheet: Sheet, seeds: tuple[str, str] = ("a", "b")) -> list[str]:
    """What is wrong with a sheet, one sentence each that says what to do; empty if all is well.

    Runs the teacher's code: solutions, stubs, mistakes and case generators, with two seeds. That
    takes seconds, and more with torch.
    """
    problems = [*_texts(sheet), *_leaks(sheet)]
    if given := _given(sheet):
        return [*problems, given]
    for exercise in sheet.exercises.values():
        problems += (f"{exercise.id}: {problem}" for problem in _exercise(sheet, exercise, seeds))
    return problems


# --- what needs no cases -------------------------------------------------------------------------


def _texts(sheet: Sheet) -> Iterator[str]:
    """Points, docstrings and hints."""
    for written in sheet.written.values():
        if written.points <= 0:
            yield f"{written.id}: the question is worth nothing; give its cell some points."
    for exercise in sheet.exercises.values():
        yield from (f"{exercise.id}: {problem}" for problem in _text(exercise))


def _text(exercise: Exercise) -> Iterator[str]:
    for group, points in exercise.points.items():
        if points <= 0:
            yield f"group {group!r} is worth nothing; give it some points."
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not ast.get_docstring(node):
            yield f"{node.name} has no docstring; say there all that is graded."
    if not exercise.hints:
        yield "there is no hint; write one for those who are stuck."
    for place, hint in enumerate(exercise.hints, 1):
        if line := _told_in(hint, exercise):
            yield f"hint {place} says a line of the solution, {line!r}; say less."


def _told_in(hint: str, exercise: Exercise) -> str | None:
    """The first line of the solution that a hint has, spaces and backticks not counted."""
    blocks = [block["code"] for block in SOLUTION.finditer(exercise.answer)]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    told = _squeeze(hint)
    return next((x for x in lines if len(_squeeze(x)) >= SHORT and _squeeze(x) in told), None)


def _squeeze(text: str) -> str:
    return re.sub(r"[\s`]", "", text)


def _leaks(sheet: Sheet) -> Iterator[str]:
    """Building what students get also looks whether it has anything of the teacher's."""
    try:
        student_notebook(sheet)
        book_page(sheet)
    except BadSheet as error:
        yield f"{error.problem}."


def _given(sheet: Sheet) -> str | None:
    """Whether the given cells run without the page's cells."""
    calls = [Call(exercise.id, exercise.entry, []) for exercise in sheet.exercises.values()]
    try:
        run_calls(sheet, [], calls[:1], unsafe=True)
    except BadSheet as error:
        return f"{error.problem}; it must run on its own, without the cells of the page."
    return None


# --- what the cases show -------------------------------------------------------------------------


def _exercise(sheet: Sheet, exercise: Exercise, seeds: tuple[str, str]) -> Iterator[str]:
    try:
        draws = [make_cases(sheet, exercise, seed) for seed in seeds]
        again, shown = (make_cases(sheet, exercise, seed) for seed in (seeds[0], None))
    except BadSheet as error:
        yield f"{error.problem}; mend that first."
        return
    except Exception as error:  # whatever the teacher's generator raises
        yield f"its cases fail with {type(error).__name__} ({error}); mend them first."
        return
    if draws[0] != again:
        yield "the same seed gives other cases or values; draw from rng, and from nothing else."
    yield from _groups(exercise, draws, shown)
    yield from _in_sandbox(sheet, exercise, draws[0])
    yield from _answers(sheet, exercise, draws[0])


def _groups(exercise: Exercise, draws: list[list[Case]], shown: list[Case]) -> Iterator[str]:
    """What is visible is always the same, what is hidden depends on the seed."""
    visible, *others = ([c for c in cases if c.visible] for cases in (*draws, shown))
    known = [case.args for case in visible]
    if any(visible != other for other in others):
        yield "visible cases differ from seed to seed; don't use rng for them."
    for group in exercise.points:
        first, second = ([c for c in cases if c.group == group] for cases in draws)
        if len(_few(first)) < 2:
            yield f"group {group!r} always expects the same; add a case with another answer."
        if group in exercise.visible:
            continue
        if [case.args for case in first] == [case.args for case in second]:
            yield f"group {group!r} is the same for two seeds; draw its cases from rng."
        if any(case.args in known for case in first + second):
            yield f"a hidden case of group {group!r} is a visible one, too; draw another."


def _in_sandbox(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[str]:
    """The solutions handed in like a student's; nothing where there is no sandbox."""
    cells = [each.solution for each in sheet.exercises.values()]
    calls = [Call(exercise.id, exercise.entry, case.args) for case in cases]
    try:
        outcomes = run_calls(sheet, cells, calls).outcomes
    except SandboxUnavailable:
        return
    wrong = [(c.group, o) for c, o in zip(cases, outcomes, strict=True) if not is_right(o, c)]
    for group, outcome in wrong[:1]:
        how = outcome.error or outcome.status
        yield f"the solution fails in the sandbox ({group!r}: {how}); see `preload` and limits."


def _answers(sheet: Sheet, exercise: Exercise, cases: list[Case]) -> Iterator[str]:
    """The stub, constant answers and known mistakes, run with these cases."""

    def run(source: str, cases: list[Case]) -> list[Outcome]:
        return run_trusted(sheet, exercise, source, [case.args for case in cases])

    few = _few(cases)
    yield from _stub(few, run(exercise.stub, few))
    for name, body in CONSTANT_ANSWERS.items():
        source = _with_body(exercise, body)
        if _earned(few, run(source, few)):  # else it earns nothing with all cases either
            for group in _earned(cases, run(source, cases)):
                yield f"who {name} earns group {group!r}; add a case in which that is wrong."
    mistakes = [(wrong, run(wrong.source, cases)) for wrong in exercise.wrong]
    yield from _mistakes(cases, mistakes)


def _few(cases: list[Case]) -> list[Case]:
    """Two cases of each group, with different values."""
    few: list[Case] = []
    for case in cases:
        others = [each for each in few if each.group == case.group]
        if len(others) < 2 and not any(same(case.expected, each.expected) for each in others):
            few.append(case)
    return few


def _with_body(exercise: Exercise, body: str) -> str:
    """The answer with this statement in place of each solution within a function."""

    def replace(block: re.Match[str]) -> str:
        return block["indent"] + body if block["indent"] else block[0]

    return keep_solution(SOLUTION.sub(replace, exercise.answer))


def _earned(cases: list[Case], run: list[Outcome]) -> list[str]:
    """The groups in which all is right."""
    lost = {c.group for c, o in zip(cases, run, strict=True) if not is_right(o, c)}
    return [group for group in dict.fromkeys(case.group for case in cases) if group not in lost]


def _stub(cases: list[Case], run: list[Outcome]) -> Iterator[str]:
    pairs = zip(cases, run, strict=True)
    quiet = [case.group for case, outcome in pairs if outcome.error != "NotImplementedError"]
    for group in dict.fromkeys(quiet):
        yield (
            f"the stub does not raise NotImplementedError in group {group!r}; "
            "let the marks go around all that the student writes, and the driver pass it on."
        )


def _mistakes(cases: list[Case], mistakes: list[tuple[Wrong, list[Outcome]]]) -> Iterator[str]:
    """Each is caught, gives some value, and is unlike the others."""
    for wrong, run in mistakes:
        name = _brief(wrong.message)
        if all(map(is_right, run, cases)):
            yield f"the mistake {name} earns everything; add a case that catches it."
        if not any(outcome.status == "ok" for outcome in run):
            yield f"the mistake {name} only fails, as much else does; let it give a wrong value."
    for (one, run), (other, other_run) in combinations(mistakes, 2):
        if all(map(alike, run, other_run)):
            names = f"{_brief(one.message)} and {_brief(other.message)}"
            yield f"the mistakes {names} look the same; add a case that tells them apart."


def _brief(message: str) -> str:
    words = message.split()
    return f"'{' '.join(words[:6])} ...'" if len(words) > 6 else repr(message)
