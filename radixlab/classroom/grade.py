"""Grading: a submission's code runs in the sandbox, what comes out is judged here.

A group of cases counts as a whole. The same submission, sheet and seed give the same result, and no
submission stops the others. Of hidden cases a result says how many failed, and how.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import radixlab
from radixlab.classroom.build import released_cells
from radixlab.classroom.cases import Case, is_right, make_cases, mistake_outcomes
from radixlab.classroom.collect import Found, find_submissions
from radixlab.classroom.outcome import Mistakes, Outcome, mistakes_made
from radixlab.classroom.results import (
    ExerciseResult,
    GroupResult,
    Shown,
    SubmissionResult,
    refuse_other_sheets,
)
from radixlab.classroom.sandbox import Call, check_sandbox, run_calls
from radixlab.classroom.sheet import Exercise, Role, Sheet
from radixlab.classroom.submission import CodeCell, Submission, read_submission
from radixlab.classroom.words import find_answers
from radixlab.errors import RadixLabError

MOST_SHOWN = 5
"""Visible cases of a group that are shown when they fail."""
LONGEST_SHOWN = 5000
"""Characters of a value that is shown."""

Progress = Callable[[int, int, SubmissionResult], None]
"""Is told how many of how many submissions are done, and the one done last."""


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """All that grades a sheet: cases with expected values, visible ones first, and mistakes.

    `digest` is another one for another sheet, seed or version of radixlab, and tells none of them.
    """

    sheet: Sheet
    cases: dict[str, list[Case]]
    mistakes: dict[str, Mistakes]
    digest: str

    @staticmethod
    def make(sheet: Sheet, seed: str) -> AnswerKey:
        """Draw a seed's cases, run solutions and mistakes with them; may raise `BadSheet`."""
        cases: dict[str, list[Case]] = {}
        mistakes: dict[str, Mistakes] = {}
        for name, exercise in sheet.exercises.items():
            drawn = make_cases(sheet, exercise, seed)
            cases[name] = sorted(drawn, key=lambda case: not case.visible)
            mistakes[name] = mistake_outcomes(sheet, exercise, cases[name])
        what = f"{radixlab.__version__}\0{sheet.name}\0{sheet.text}"
        digest = hmac.new(seed.encode(), what.encode(), hashlib.sha256).hexdigest()
        return AnswerKey(sheet, cases, mistakes, digest)


# --- many submissions ----------------------------------------------------------------------------


def grade_all(
    sheet: Sheet,
    folder: Path,
    out: Path,
    seed: str,
    *,
    workers: int | None = None,
    unsafe: bool = False,
    again: bool = False,
    on_progress: Progress | None = None,
) -> list[SubmissionResult]:
    """Grade all submissions of a folder, `workers` at a time, into OUT/results/STUDENT.json.

    What has been graded with the same key before is not graded again, unless `again`. Raises
    `SandboxUnavailable` (unless `unsafe`), `BadSheet` if the sheet itself fails, `InvalidArgument`
    if OUT has results of another sheet, and OSError if it can't be written.
    """
    if not unsafe:
        check_sandbox()
    refuse_other_sheets(sheet.name, out)
    key = AnswerKey.make(sheet, seed)
    results = out / "results"
    results.mkdir(parents=True, exist_ok=True)
    there = [
        found
        for found in find_submissions(folder, sheet.name)
        if not out.resolve().is_relative_to(found.path.resolve())
    ]
    done = []
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        jobs = [pool.submit(_grade_anew, key, one, results, unsafe, again) for one in there]
        try:
            for job in as_completed(jobs):
                done.append(job.result())
                if on_progress:
                    on_progress(len(done), len(jobs), done[-1])
        finally:
            pool.shutdown(cancel_futures=True)
    return sorted(done, key=lambda result: result.student)


def _grade_anew(
    key: AnswerKey, found: Found, results: Path, unsafe: bool, again: bool
) -> SubmissionResult:
    """The result that is there, if it's still the right one; else, or `again`, a new one."""
    student = found.student
    file = results / f"{student}.json"
    try:
        submission = (
            Submission(problem=found.problem) if found.problem else read_submission(found.path)
        )
        known = None if again else _load(file)
        if not known or (known.student, known.key) != (student, _key(key, submission, unsafe)):
            known = _grade(key, student, submission, unsafe)
        result = replace(known, note=found.note, came_as=found.came_as)
    except Exception as error:  # ours: without a key, so that it is graded again the next time
        why = str(error) if isinstance(error, RadixLabError) else type(error).__name__
        problem = f"The grader itself failed, which is not the student's fault: {why}"
        result = SubmissionResult(student, key.sheet.name, "", (), problem=problem)
    result.save(file)
    return result


def _load(file: Path) -> SubmissionResult | None:
    try:
        return SubmissionResult.load(file)
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- one submission ------------------------------------------------------------------------------


def grade_submission(
    key: AnswerKey, student: str, path: Path, *, unsafe: bool = False
) -> SubmissionResult:
    """Grade one file; a file that can't be read gives a result with a `problem`."""
    return _grade(key, student, read_submission(path), unsafe)


def _grade(key: AnswerKey, student: str, submission: Submission, unsafe: bool) -> SubmissionResult:
    problem, name = submission.problem, key.sheet.name
    if submission.sheet not in ("", name):
        problem = f"The notebook belongs to the sheet {submission.sheet[:50]}, not to {name}."
    exercises: tuple[ExerciseResult, ...] = ()
    cells: list[tuple[int, str]] = []
    if not problem:
        own = own_cells(key.sheet, submission)
        exercises, failed = grade_cells(key, [cell.source for cell in own], unsafe=unsafe)
        told = [(own[index], error) for index, error in failed]
        cells = [(cell.number, error) for cell, error in told if not cell.is_sheets]
    return SubmissionResult(
        student=student,
        sheet=name,
        key=_key(key, submission, unsafe),
        exercises=exercises,
        written=find_answers(key.sheet, submission),
        cells=tuple(cells),
        problem=problem,
    )


def own_cells(sheet: Sheet, submission: Submission) -> tuple[CodeCell, ...]:
    """The code cells in which a student has typed, and the answer cells.

    Left out are those that are as they were handed out, comments aside.
    """
    shown = {_code_of(text) for role, _, text in released_cells(sheet) if role != Role.ANSWER}
    return tuple(
        cell for cell in submission.cells if cell.exercise or _code_of(cell.source) not in shown
    )


def _code_of(source: str) -> str:
    lines = (line.rstrip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _key(key: AnswerKey, submission: Submission, unsafe: bool) -> str:
    parts = (key.digest, submission.digest, submission.problem, str(unsafe))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def grade_cells(
    key: AnswerKey, cells: Sequence[str], *, unsafe: bool = False
) -> tuple[tuple[ExerciseResult, ...], list[tuple[int, str]]]:
    """Grade a student's code cells; also returns which of them failed (index, exception).

    No hidden input is in the sandbox before all visible calls are made, so that what is shown of
    these can't tell of any.
    """
    cases = [case for drawn in key.cases.values() for case in drawn]
    cases.sort(key=lambda case: not case.visible)
    entries = {name: exercise.entry for name, exercise in key.sheet.exercises.items()}
    calls = [Call(case.exercise, entries[case.exercise], case.args) for case in cases]
    run = run_calls(key.sheet, cells, calls, unsafe=unsafe)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in entries}
    for case, outcome in zip(cases, run.outcomes, strict=True):
        outcomes[case.exercise].append(outcome)
    results = (
        _judge(key, exercise, outcomes[name]) for name, exercise in key.sheet.exercises.items()
    )
    return tuple(results), run.cell_errors


def _judge(key: AnswerKey, exercise: Exercise, outcomes: list[Outcome]) -> ExerciseResult:
    cases = key.cases[exercise.id]
    calls = [(n, *pair) for n, pair in enumerate(zip(cases, outcomes, strict=True), 1)]
    groups = tuple(
        _group(exercise, name, [call for call in calls if call[1].group == name])
        for name in exercise.points
    )
    made: list[str] = []
    if any(group.failed for group in groups):
        made = mistakes_made(key.mistakes[exercise.id], outcomes)
    return ExerciseResult(exercise.id, groups, made[0] if made else "")


def _group(exercise: Exercise, name: str, calls: list[tuple[int, Case, Outcome]]) -> GroupResult:
    failed = {n: call for n, call in enumerate(calls, 1) if not is_right(call[2], call[1])}
    visible, most = name in exercise.visible, exercise.points[name]
    how = Counter(_how(outcome) for _, _, outcome in failed.values())
    return GroupResult(
        name=name,
        visible=visible,
        points=0 if failed else most,
        most=most,
        cases=len(calls),
        failed=tuple(failed),
        how=dict(sorted(how.items())),
        shown=tuple(_show(*call) for call in list(failed.values())[:MOST_SHOWN]) if visible else (),
    )


def _how(outcome: Outcome) -> str:
    if outcome.status == "error":
        return outcome.error
    return "wrong value" if outcome.status == "ok" else outcome.status


def _show(number: int, case: Case, outcome: Outcome) -> Shown:
    if len(json.dumps(outcome.value)) > LONGEST_SHOWN:
        outcome = Outcome("long")
    about = {"group": case.group, "args": case.args, "expected": case.expected}
    return Shown(number, about, outcome)
