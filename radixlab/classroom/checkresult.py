"""What a check found, as it is shown: to a notebook as HTML, to a terminal as text.

Each case is first put into parts (sentences, code, trees); HTML and text write the same parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from radixlab.classroom.outcome import Json, same
from radixlab.classroom.picture import TreeDiff, drawn, is_tree, read_json, tree_diff, write
from radixlab.viz.theme import style_sheet
from radixlab.viz.words import escape

MOST_TREES, MOST_DIFFERENCES, LONGEST = 2, 6, 400
"""Pairs of pictures, sentences on differences, and characters of a value, in one case."""

VISIBLE_ONLY = "These are the visible checks; hidden ones are run when you hand in."


@cache
def style() -> str:
    """The style sheet of a check: colours and pictures, and its own."""
    own = (files("radixlab.classroom") / "check.css").read_text(encoding="utf-8")
    return f"<style>{style_sheet()}\n{own}</style>"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One visible case: what was called, what came and what should have.

    `direct` says that the arguments are the function's own, not those of its driver. `problem` is a
    sentence if nothing came; `where` are the lines of the student's own code that an exception went
    through.
    """

    name: str
    function: str
    direct: bool
    parameters: tuple[str, ...]
    args: tuple[Json, ...]
    expected: Json
    got: Json = None
    problem: str = ""
    where: tuple[str, ...] = ()
    printed: str = ""

    @property
    def right(self) -> bool:
        """Whether it gave what was expected."""
        return not self.problem and same(self.got, self.expected)


@dataclass(frozen=True)
class CheckResult:
    """What `check` found in one exercise; true if all visible cases are right.

    `stop` says why nothing was run, "" if all was; `mistakes` are what known mistakes that give
    just these results are told; `sheet` tells of each exercise whether its last check passed, None
    if it has not been checked since the kernel began. `warning` says what will fail when the code
    is graded, though it may be right here.
    """

    exercise: str
    title: str
    cases: tuple[CaseResult, ...] = ()
    stop: str = ""
    mistakes: tuple[str, ...] = ()
    sheet: dict[str, bool | None] = field(default_factory=dict)
    warning: str = ""

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
        failed = len(self.cases) - right
        return (
            "✗",
            f"{self.exercise} fails in {failed} of {_count(len(self.cases), 'visible case')}.",
        )

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


# --- a case in parts -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of what is told of a case: its title, and sentences, code or trees."""

    title: str
    sentences: Sequence[str] = ()
    code: str = ""
    tree: Json = None
    pair: TreeDiff | None = None


def parts_of(case: CaseResult) -> Iterator[Part]:
    """All that is told of a case that failed."""
    yield from _asked(case)
    if case.problem:
        yield Part("", [case.problem], "\n".join(case.where))
    else:
        yield from _compared(case)
    if case.printed:
        yield Part("it printed", code=_cut(case.printed.rstrip("\n"), 2 * LONGEST))


def _asked(case: CaseResult) -> Iterator[Part]:
    """What does not fit the summary's line: trees as pictures, operations one a line."""
    for name, value in zip(case.parameters, case.args, strict=True):
        if is_tree(value):
            yield Part(f"{name}, before", tree=value)
        elif name in OPERATIONS:
            yield Part(name, code="\n".join(_operations(value)))
        elif not _fits(value):
            yield Part(name, code="\n".join(_rows(value)))


OPERATIONS = ("operations", "calls")
"""Parameters of a driver that are a list of calls in JSON: ["insert", [1, 2]]."""


def _rows(value: Json) -> list[str]:
    """A large value, an item a line."""
    if isinstance(value, dict):
        return [f"{key} = {_brief(item)}" for key, item in value.items()]
    return [_brief(item) for item in value] if isinstance(value, list) else [_brief(value)]


def _operations(value: Json) -> list[str]:
    """Each of the calls as Python, numbered."""
    return [
        f"{i}. {name}({', '.join(_brief(arg, 60) for arg in args)})"
        for i, (name, *args) in enumerate(value, 1)
    ]


def _fits(value: Json) -> bool:
    return not is_tree(value) and len(repr(value)) <= 60


def summary_of(case: CaseResult) -> str:
    """The call in one line: as Python where it is one, else the arguments by their names."""
    shown = [
        (name, _brief(value))
        for name, value in zip(case.parameters, case.args, strict=True)
        if _fits(value) and name not in OPERATIONS
    ]
    if case.direct and len(shown) == len(case.args):
        return f"{case.function}({', '.join(text for _, text in shown)})"
    named = ", ".join(f"{name} = {text}" for name, text in shown)
    return f"{case.function}{': ' * bool(named)}{named}"


def _compared(case: CaseResult) -> Iterator[Part]:
    found = list(differences(case.got, case.expected))
    pairs = [(path, tree_diff(got, wanted)) for path, got, wanted in found if _both(got, wanted)]
    for path, diff in pairs[:MOST_TREES]:
        yield Part(_place(path, case), diff.sentences[:MOST_DIFFERENCES], pair=diff)
    if len(pairs) > MOST_TREES:
        yield Part("", [f"{len(pairs) - MOST_TREES} more trees differ."])
    others = [each for each in found if not _both(each[1], each[2])]
    if others and others[0][0]:
        told = [words for each in others for words in _told(*each, case)]
        more = len(told) - MOST_DIFFERENCES
        yield Part("what differs", told[:MOST_DIFFERENCES] + [f"and {more} more"] * (more > 0))
    came, wanted = _brief(case.got), _brief(case.expected)
    if not pairs and (not others[0][0] or (isinstance(case.expected, list) and len(wanted) <= 100)):
        yield Part("", code=f"it gave   {came}\nexpected  {wanted}")


def _told(path: Path, got: Json, wanted: Json, case: CaseResult) -> list[str]:
    """One difference; where no complaints are expected, each complaint stands for itself."""
    if wanted == [] and isinstance(got, list) and all(" " in str(each) for each in got):
        return [str(each) for each in got]
    return [f"{_place(path, case)}: {_brief(got, 90)}, expected {_brief(wanted, 90)}"]


def _both(got: Json, expected: Json) -> bool:
    return is_tree(got) and is_tree(expected)


Path = tuple[str | int, ...]


def differences(got: Json, expected: Json, path: Path = ()) -> Iterator[tuple[Path, Json, Json]]:
    """Where two results differ: trees and short lists as a whole, all else as deep as one can."""
    if same(got, expected):
        return
    kind = type(expected)
    if _both(got, expected) or kind not in (list, dict) or type(got) is not kind:
        yield path, got, expected
    elif isinstance(got, dict):
        if got.keys() != expected.keys():
            yield path, got, expected
        else:
            for key in expected:
                yield from differences(got[key], expected[key], (*path, key))
    elif len(got) != len(expected) or _is_short(expected):
        yield path, got, expected
    else:
        for i, (mine, other) in enumerate(zip(got, expected, strict=True)):
            yield from differences(mine, other, (*path, i))


def _is_short(value: list[Json]) -> bool:
    return len(value) <= 12 and not any(isinstance(item, list | dict) for item in value)


def _place(path: Path, case: CaseResult) -> str:
    """Where in the result: by names, by numbers, and after which operation."""
    words, rest = "", path
    named = zip(case.parameters, case.args, strict=True)
    calls: list[Json] = next((value for name, value in named if name in OPERATIONS), [])
    if path and isinstance(path[0], int) and len(calls) == len(case.expected):
        words, rest = f"after {_operations(calls)[path[0]]}", path[1:]
    for part in rest:
        words += f"[{part}]" if isinstance(part, int) else f"{', ' * bool(words)}{part}"
    return words or "the result"


def _brief(value: Json, most: int = LONGEST) -> str:
    return _cut(repr(_rounded(value)), most)


def _rounded(value: Json) -> Json:
    """Floats with as many digits as are compared."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]} … {text[-most // 4 :]}"


# --- as text -------------------------------------------------------------------------------------


def as_text(result: CheckResult) -> str:
    """For a terminal."""
    sign, words = result.verdict
    lines = [f"{sign} {words}"]
    lines += [f"Careful: {result.warning}"] if result.warning else []
    for case in result.cases:
        if not case.right:
            lines += ["", f"✗ {case.name}: {summary_of(case)}", *map(_part_text, parts_of(case))]
    lines += [f"\nWhat may be wrong: {message}" for message in result.mistakes]
    lines += ["", _sheet_text(result), VISIBLE_ONLY]
    return "\n".join(lines)


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
    signed = f'<b aria-hidden="true">{sign}</b>{escape(words)}'
    body = [f'<p class="rl-verdict {kind}">{signed}</p>']
    body += [_message("Careful:", result.warning)] if result.warning else []
    body += [_message("What may be wrong:", message) for message in result.mistakes]
    failing = [case for case in result.cases if not case.right]
    body += [_case_html(case, is_open=i == 0) for i, case in enumerate(failing)]
    body += [_sheet_html(result), f'<p class="rl-sheet">{VISIBLE_ONLY}</p>']
    label = f"Check of {escape(result.exercise)}"
    inside = style() + "".join(body)
    return f'<div class="radixlab rl-check" role="group" aria-label="{label}">{inside}</div>'


def _message(head: str, message: str) -> str:
    return f'<p class="rl-message"><b>{head}</b> {_prose(message)}</p>'


def _prose(text: str) -> str:
    """A sentence as HTML, `names` in it as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


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
