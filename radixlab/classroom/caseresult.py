"""One case, as it is told: its parts are sentences, code and trees.

`check` and the pages of feedback both make cases here; `checkresult` writes the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from radixlab.classroom.outcome import Json, Outcome, same
from radixlab.classroom.picture import TreeDiff, is_tree, tree_diff
from radixlab.classroom.ways import Limits, problem, wrong_kind

MOST_TREES, MOST_DIFFERENCES, LONGEST, LONGEST_LINE = 2, 6, 400, 100
"""Pairs of pictures, sentences on differences, and characters of a value, in one case and line."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One visible case: what was called, what came and what should have.

    `direct` says that the arguments are the function's own, not those of its driver. `problem` is a
    sentence if nothing came; `where` are the lines of the student's own code that an exception went
    through; `hint` says what to do, where that is known.
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
    hint: str = ""
    printed: str = ""

    @property
    def right(self) -> bool:
        """Whether it gave what was expected."""
        return not self.problem and same(self.got, self.expected)


def case_result(
    task: Mapping[str, Any],
    number: int,
    case: Mapping[str, Any],
    outcome: Outcome,
    limits: Limits,
    *,
    message: str = "",
    **told: Any,
) -> CaseResult:
    """One visible case, the `number`-th of its exercise, and what came of it.

    `task` and `case` are as a pack of checks has them. `message` is what an exception says; what
    else is `told` takes the place of what can be told without it.
    """
    name = task["names"][0]
    if task["entry"] == name and outcome.status == "ok":  # else the driver's values tell nothing
        kinds = (type(value).__name__ for value in (outcome.value, case["expected"]))
        told |= {"hint": wrong_kind(name, *kinds)}
    about = {"problem": problem(outcome, name, limits, message)} | told
    return CaseResult(
        name=f"case {number}" + f" ({case['group']})" * (len(task.get("visible", ())) > 1),
        function=name,
        direct=task["entry"] in task["names"],
        parameters=tuple(task["parameters"]),
        args=tuple(case["args"]),
        expected=case["expected"],
        got=outcome.value,
        **about,
    )


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
    told = [Part("", [case.problem], "\n".join(case.where))] if case.problem else []
    hint = [Part("", [case.hint])] if case.hint else []
    yield from (*told, *hint) if case.where else (*hint, *told)  # after the lines that it is about
    yield from _expected(case) if case.problem else _compared(case)
    if case.printed:
        yield Part("it printed", code=_cut(case.printed.rstrip("\n"), 2 * LONGEST))


def _expected(case: CaseResult) -> Iterator[Part]:
    """What should have come: after each call; or trees as pictures; or the value."""
    value = case.expected
    if _calls(case) and all(isinstance(step, dict) for step in value):
        steps = [{k: v for k, v in step.items() if not is_tree(v)} for step in value]
        told = [f"{_place((i,), case)}: {_brief(step, 90)}" for i, step in enumerate(steps)]
        yield Part("expected", told[:MOST_DIFFERENCES])
        return
    parts = value if isinstance(value, dict) and not is_tree(value) else {"": value}
    trees = {name: part for name, part in parts.items() if is_tree(part)}
    for name, tree in trees.items():
        yield Part(f"{name}, expected" if name else "expected", tree=tree)
    if not trees:
        yield Part("", code=f"expected  {_brief(value)}")


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
    others = [each for each in found if not _both(each[1], each[2])]
    if not pairs and (not others[0][0] or _is_plain(case.expected)):
        yield Part("", code=f"it gave   {_brief(case.got)}\nexpected  {_brief(case.expected)}")
    elif others:
        told = [words for each in others for words in _told(*each, case)]
        more = len(told) - MOST_DIFFERENCES
        yield Part("what differs", told[:MOST_DIFFERENCES] + [f"and {more} more"] * (more > 0))
    for path, diff in pairs[:MOST_TREES]:
        yield Part(_place(path, case), diff.sentences[:MOST_DIFFERENCES], pair=diff)
    if (more := len(pairs) - MOST_TREES) > 0:
        yield Part("", ["1 more tree differs." if more == 1 else f"{more} more trees differ."])


def _is_plain(value: Json) -> bool:
    """Whether a list is seen at one glance."""
    text = _brief(value)
    return isinstance(value, list) and "{" not in text and len(text) <= LONGEST_LINE


def _told(path: Path, got: Json, wanted: Json, case: CaseResult) -> list[str]:
    """One difference; where no complaints are expected, each complaint stands for itself."""
    if wanted == [] and isinstance(got, list) and all(map(_is_sentence, got)):
        return got
    return [f"{_place(path, case)}: {_brief(got, 90)}, expected {_brief(wanted, 90)}"]


def _is_sentence(value: Json) -> bool:
    return isinstance(value, str) and " " in value and value.isprintable()


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
    if path and isinstance(path[0], int) and (calls := _calls(case)):
        words, rest = f"after {calls[path[0]]}", path[1:]
    for part in rest:
        words += f"[{part}]" if isinstance(part, int) else f"{', ' * bool(words)}{part}"
    return words or "the result"


def _calls(case: CaseResult) -> list[str]:
    """The calls of a case in words, if its expected value has an item for each."""
    named = zip(case.parameters, case.args, strict=True)
    calls: list[Json] = next((value for name, value in named if name in OPERATIONS), [])
    one_each = isinstance(case.expected, list) and len(calls) == len(case.expected)
    return _operations(calls) if one_each else []


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
