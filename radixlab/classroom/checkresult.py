"""What a check found, as it is shown: to a notebook as HTML, to a terminal as text.

HTML and text write the same parts of each case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from radixlab.classroom.caseresult import CaseResult, Part, parts_of, summary_of
from radixlab.classroom.picture import drawn, read_json, write
from radixlab.viz.theme import style_sheet
from radixlab.viz.words import escape

VISIBLE_ONLY = "These are the visible checks; hidden ones are run when you hand in."


@cache
def style() -> str:
    """The style sheet of a check: colours and pictures, and its own."""
    own = (files("radixlab.classroom") / "check.css").read_text(encoding="utf-8")
    return f"<style>{style_sheet()}\n{own}</style>"


@dataclass(frozen=True)
class CheckResult:
    """What `check` found in one exercise; true if all visible cases are right.

    `stop` says why nothing was run, "" if all was; `mistakes` are what known mistakes that give
    just these results are told; `sheet` tells of each exercise whether its last check passed, None
    if it has not been checked since the kernel began. `warning` says what will fail when the code
    is graded, though it may be right here. `left` counts cases that were not run any more; `cell`
    is the number of the notebook's cell whose code was checked, 0 if not known.
    """

    exercise: str
    title: str
    cases: tuple[CaseResult, ...] = ()
    stop: str = ""
    mistakes: tuple[str, ...] = ()
    sheet: dict[str, bool | None] = field(default_factory=dict)
    warning: str = ""
    left: int = 0
    cell: int = 0

    @property
    def passed(self) -> bool:
        """Whether every visible case is right."""
        return not self.stop and all(case.right for case in self.cases)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def verdict(self) -> tuple[str, str]:
        """A sign, and the sentence that says the same."""
        right = sum(case.right for case in self.cases)
        if self.stop:
            return "○", f"{self.exercise}: {self.stop}"
        if self.passed:
            return "✓", f"{self.exercise} passes: {_count(right, 'visible case')}, all right."
        failed, of = len(self.cases) - right, _count(len(self.cases) + self.left, "visible case")
        others = "the other was" if self.left == 1 else "the others were"
        more = f"; {others} not run" if self.left else ""
        return "✗", f"{self.exercise} fails in {failed} of {of}{more}."

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _about(result: CheckResult) -> str:
    """What was checked, and that there is more."""
    checked = f"Checked: the code of cell [{result.cell}]. " if result.cell else ""
    return f"{checked if not result.stop else ''}{VISIBLE_ONLY}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


# --- as text -------------------------------------------------------------------------------------


def as_text(result: CheckResult) -> str:
    """For a terminal."""
    sign, words = result.verdict
    lines = [f"{sign} {words}"]
    lines += [f"Careful: {result.warning}"] if result.warning else []
    lines += [f"\n{case_text(case)}" for case in result.cases if not case.right]
    lines += [f"\nWhat may be wrong: {message}" for message in result.mistakes]
    lines += ["", _sheet_text(result), _about(result)]
    return "\n".join(lines)


def case_text(case: CaseResult) -> str:
    """A case that failed."""
    head = f"✗ {case.name}: {summary_of(case)}"
    return "\n".join([head, *map(_part_text, parts_of(case))])


def _part_text(part: Part) -> str:
    lines = [f"{part.title}:"] if part.title else []
    lines += [f"- {sentence}" if part.title else sentence for sentence in part.sentences]
    if part.tree is not None:
        lines.append(write(read_json(part.tree)))
    if part.pair is not None:
        lines.append(part.pair.text)
    if part.code:
        lines.append(part.code)
    return "\n".join(f"  {line}" for line in "\n".join(lines).splitlines())


def _sheet_text(result: CheckResult) -> str:
    signs = {True: "✓", False: "✗", None: "○"}
    passed = sum(value is True for value in result.sheet.values())
    names = "  ".join(f"{signs[value]} {name}" for name, value in result.sheet.items())
    return f"{result.title}: {passed} of {len(result.sheet)} exercises pass.  {names}"


# --- as HTML -------------------------------------------------------------------------------------


def as_html(result: CheckResult) -> str:
    """For a notebook; the first failing case is open, the others are folded."""
    sign, words = result.verdict
    kind = "rl-open" if result.stop else "rl-passed" if result else "rl-failed"
    signed = f'<b aria-hidden="true">{sign}</b>{_prose(words)}'
    body = [f'<p class="rl-verdict {kind}">{signed}</p>']
    body += [_message("Careful:", result.warning)] if result.warning else []
    body += [_message("What may be wrong:", message) for message in result.mistakes]
    body += [cases_html([case for case in result.cases if not case.right])]
    body += [_sheet_html(result), f'<p class="rl-sheet">{_about(result)}</p>']
    label = f"Check of {escape(result.exercise)}"
    inside = style() + "".join(body)
    return f'<div class="radixlab rl-check" role="group" aria-label="{label}">{inside}</div>'


def _message(head: str, message: str) -> str:
    return f'<p class="rl-message"><b>{head}</b> {_prose(message)}</p>'


def _prose(text: str) -> str:
    """A sentence as HTML, `names` in it as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def cases_html(cases: Sequence[CaseResult]) -> str:
    """Cases that failed; the first is open, the others are folded."""
    return "".join(_case_html(case, is_open=i == 0) for i, case in enumerate(cases))


def _case_html(case: CaseResult, is_open: bool) -> str:
    told = f"<b>✗ {escape(case.name)}</b> <code>{escape(summary_of(case))}</code>"
    body = "".join(map(_part_html, parts_of(case)))
    return f"<details{' open' * is_open}><summary>{told}</summary>{body}</details>"


def _part_html(part: Part) -> str:
    html = ""
    if part.title:
        html += f"<p><b>{escape(part.title)}</b></p>"
    if part.pair is not None:
        html += part.pair.html
    if part.tree is not None:
        html += f'<div class="rl-figure">{drawn(read_json(part.tree), part.title)}</div>'
    if len(part.sentences) == 1 and not part.title:
        html += f"<p>{_prose(part.sentences[0])}</p>"
    elif part.sentences:
        html += f"<ul>{''.join(f'<li>{_prose(each)}</li>' for each in part.sentences)}</ul>"
    if part.code:
        html += f"<pre>{escape(part.code)}</pre>"
    return html


def _sheet_html(result: CheckResult) -> str:
    """The progress of the whole sheet: a bar, and each exercise with a sign and a word."""
    signs = {True: ("✓", "passes"), False: ("✗", "fails"), None: ("○", "not checked yet")}
    passed = sum(value is True for value in result.sheet.values())
    total = len(result.sheet)
    label = f"{passed} of {total} exercises of this sheet pass their visible checks"
    bar = f'<progress max="{max(total, 1)}" value="{passed}" aria-label="{label}"></progress>'
    names = "".join(
        f"<span>{signs[value][0]} {escape(name)} {signs[value][1]}</span>"
        for name, value in result.sheet.items()
    )
    title = f"<span>{escape(result.title)}: {passed} of {total}</span>"
    return f'<p class="rl-sheet">{title}{bar}{names}</p>'
