"""`check` and `show`: what a student sees, in a notebook and in a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_classroom_build import OURS, ours

from radixlab.classroom import check, checks, show
from radixlab.classroom.caseresult import CaseResult, differences
from radixlab.classroom.checkresult import VISIBLE_ONLY, CheckResult
from radixlab.classroom.outcome import Outcome
from radixlab.classroom.packs import visible_pack
from radixlab.classroom.picture import is_tree, tree_diff
from radixlab.errors import InvalidArgument

can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no limits without forks")

GIVEN = """
class Node:
    def __init__(self, key, value, parent=None):
        self.key, self.value, self.parent = key, value, parent
        self.children, self.ref_count = {}, 0
        if parent is not None:
            parent.children[key[0]] = self
"""

DRIVER = """
def dump(node):
    children = [dump(node.children[first]) for first in sorted(node.children)]
    return {"key": node.key, "value": node.value, "ref_count": node.ref_count, "children": children}


def run_cut(tree, position):
    root = Node([], [])
    node = Node(tree["children"][0]["key"], tree["children"][0]["value"], root)
    node.ref_count = tree["children"][0]["ref_count"]
    cut(node, position)
    return dump(root)
"""


def node(key: list[int], value: list[int], *children: Any, ref_count: int = 0) -> dict[str, Any]:
    return {"key": key, "value": value, "ref_count": ref_count, "children": list(children)}


WHOLE = node([], [], node([1, 2, 3], [7, 8, 9], ref_count=2))
HALVES = node([], [], node([1], [7], node([2, 3], [8, 9], ref_count=2), ref_count=2))
MISTAKE = "You forget to count: `ref_count` of the upper part is 0."
UNCOUNTED = node([], [], node([1], [7], node([2, 3], [8, 9], ref_count=2)))


def task(**changes: Any) -> dict[str, Any]:
    """An exercise that is its own driver, as a pack has it."""
    plain = {
        "given": [],
        "names": ["double"],
        "entry": "double",
        "visible": ["example"],
        "driver": "",
        "parameters": ["x"],
        "cases": [
            {"group": "example", "args": [2], "expected": 4},
            {"group": "example", "args": [-3], "expected": -6},
        ],
        "mistakes": [],
    }
    return plain | changes


PACK = {
    "sheet": "small",
    "title": "A small sheet",
    "seconds": 1.0,
    "memory": 256,
    "order": ["double", "cut", "count"],
    "exercises": {
        "double": task(
            mistakes=[
                {
                    "message": "You square it.",
                    "outcomes": [{"status": "ok", "value": v, "error": ""} for v in (4, 9)],
                }
            ]
        ),
        "cut": task(
            given=["Node"],
            names=["cut"],
            entry="run_cut",
            driver=DRIVER,
            parameters=["tree", "position"],
            cases=[{"group": "example", "args": [WHOLE, 1], "expected": HALVES}],
            mistakes=[
                {
                    "message": MISTAKE,
                    "outcomes": [{"status": "ok", "value": UNCOUNTED, "error": ""}],
                }
            ],
        ),
        "count": task(
            names=["count"],
            entry="run_count",
            driver="def run_count(operations):\n    return [count(n) for _, n in operations]",
            parameters=["operations"],
            cases=[
                {
                    "group": "example",
                    "args": [[["count", 1], ["count", 2]]],
                    "expected": [{"n": 1}, {"n": 2}],
                }
            ],
        ),
    },
}


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the pack of visible checks, and no check made before."""
    (tmp_path / ".checks").mkdir()
    (tmp_path / ".checks/small.check.json").write_text(json.dumps(PACK), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.setattr(checks, "_passed", {})


def checked(exercise: str, code: str) -> CheckResult:
    """What `check` says in a notebook whose cells are this code."""
    names: dict[str, Any] = {"__name__": "__main__", "check": check}
    exec(compile(code, "<cell>", "exec"), names)
    before = set(names)
    names["result"] = None
    exec(f"result = check({exercise!r})", names)
    result: CheckResult = names["result"]
    assert set(names) - before == {"result"}, "the driver's names stay in the child"
    return result


def words(html: str) -> str:
    """What a page's reader reads: no tags, no style."""
    html = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


# --- right and wrong -----------------------------------------------------------------------------


def test_a_right_answer_is_a_short_quiet_success() -> None:
    result = checked("double", "def double(x):\n    return 2 * x")
    assert result and result.passed
    assert str(result).splitlines()[0] == "✓ double passes: 2 visible cases, all right."
    assert len(str(result).splitlines()) == 4
    assert "<details" not in result._repr_html_()


@pytest.mark.parametrize(
    "code", ["return 2 * x", "return x * x", "1 / 0", "raise NotImplementedError"]
)
def test_22_every_result_says_that_hidden_cases_will_be_run(code: str) -> None:
    """Else "passes" is taken for all there is (ucbds-infra/otter-grader#138)."""
    result = checked("double", f"def double(x):\n    {code}")
    assert VISIBLE_ONLY in str(result) and VISIBLE_ONLY in words(result._repr_html_())


def test_a_wrong_value_is_told_with_call_value_and_expected_value() -> None:
    result = checked("double", "def double(x):\n    return x + 2")
    assert not result
    text = str(result)
    assert "✗ double fails in 1 of 2 visible cases." in text
    assert "double(-3)" in text and "it gave   -1\n  expected  -6" in text
    assert "double(2)" not in text, "what is right is not told at length"
    html = words(result._repr_html_())
    assert "double(-3)" in html and "it gave -1 expected -6" in html


def test_equality_is_of_type_and_value() -> None:
    assert not checked("double", "def double(x):\n    return 2.0 * x")
    always = "class Always(int):\n    __eq__ = lambda *_: True\n    __hash__ = None\n"
    assert not checked("double", f"{always}def double(x):\n    return Always()")


def test_a_known_mistake_is_named_when_all_its_results_agree() -> None:
    assert checked("double", "def double(x):\n    return x * x").mistakes == ("You square it.",)
    assert checked("double", "def double(x):\n    return x + 2").mistakes == ()
    html = checked("cut", GIVEN + CUT.format(count="0"))._repr_html_()
    assert "You forget to count: <code>ref_count</code>" in html


CUT = """
def cut(node, position):
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count = {count}
    node.key, node.value, node.parent = node.key[position:], node.value[position:], upper
    upper.children[node.key[0]] = node
"""


def test_trees_are_shown_before_and_side_by_side_with_the_difference_marked() -> None:
    assert checked("cut", GIVEN + CUT.format(count="node.ref_count"))
    result = checked("cut", GIVEN + CUT.format(count="0"))
    text, html = str(result), result._repr_html_()
    assert "tree, before:\n  root\n  └── [1, 2, 3]  [p7, p8, p9]  ref_count 2" in text
    assert "Node [1]: ref_count is 0, expected 2." in text
    assert "[1]  [p7]  ref_count 0  <- ≠ ref_count" in text
    assert (
        html.count("<svg") == 3 and "<figcaption>yours" in html and "<figcaption>expected" in html
    )
    assert html.count('role="img"') == 3
    assert "<desc>Node [1]: ref_count is 0, expected 2." in html
    assert html.count('class="box split"') == 2, "a border, in both pictures"
    assert ">≠ ref_count</text>" in html, "and a word"


def test_operations_are_numbered_and_the_first_wrong_one_is_named() -> None:
    result = checked("count", "def count(n):\n    return {'n': min(n, 1)}")
    assert "1. count(1)\n  2. count(2)" in str(result)
    assert "after 2. count(2), n: 1, expected 2" in str(result)


def test_what_was_printed_is_shown() -> None:
    result = checked("double", "def double(x):\n    print('x is', x)\n    return 0")
    assert "it printed:\n  x is 2" in str(result)


def test_what_a_student_prints_or_returns_is_never_html() -> None:
    evil = "<img src=x onerror=alert(1)>"
    result = checked("double", f"def double(x):\n    print({evil!r})\n    return {evil!r}")
    html = result._repr_html_()
    assert "<img" not in html and html.count("&lt;img") >= 2


# --- what goes wrong -----------------------------------------------------------------------------


def test_an_exception_is_told_with_the_line_of_the_students_own_code(tmp_path: Path) -> None:
    import linecache

    code = "def helper(x):\n    return x.size\n\n\ndef double(x):\n    return helper(x)\n"
    linecache.cache["<cell>"] = (len(code), None, code.splitlines(True), "<cell>")
    result = checked("double", code)
    assert "It raised AttributeError: 'int' object has no attribute 'size'" in str(result)
    assert "double, line 6: return helper(x)\n  helper, line 2: return x.size" in str(result)


def test_an_exception_in_what_the_check_does_afterwards_says_so() -> None:
    result = checked("cut", GIVEN + "def cut(node, position):\n    node.children = None")
    assert "It raised TypeError" in str(result) and "left behind" in str(result)
    assert "expected:\n  root\n  └── [1]  [p7]  ref_count 2" in str(result)


def test_an_own_exception_is_named_as_it_is() -> None:
    code = "class Odd(ValueError): pass\ndef double(x):\n    raise Odd('x is odd')"
    assert "It raised Odd: x is odd" in str(checked("double", code))


ENDLESS = """
def double(x):
    while True:
        try:
            x += 1 / 1
        except BaseException:
            pass
"""


@can_fork
def test_22_an_endless_loop_is_reported_and_the_kernel_lives() -> None:
    """A loop without end hung the grader (ucbds-infra/otter-grader#469)."""
    pid, start = os.getpid(), time.process_time()
    result = checked("double", ENDLESS)
    assert "look for a loop without end" in str(result)
    assert os.getpid() == pid and time.process_time() - start < 1
    assert checked("double", "def double(x):\n    return 2 * x")


def test_cases_that_were_not_run_are_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "call_in_child", lambda *_: (Outcome("timeout"), ""))
    cases = [{"group": "example", "args": [n], "expected": 2 * n} for n in range(5)]
    verdicts = []
    for number in (5, 3, 2):
        pack = PACK | {"exercises": {"double": task(cases=cases[:number])}}
        (tmp_path / ".checks/small.check.json").write_text(json.dumps(pack), encoding="utf-8")
        verdicts.append(checked("double", ENDLESS).verdict[1])
    assert verdicts == [
        "double fails in 2 of 5 visible cases; the others were not run.",
        "double fails in 2 of 3 visible cases; the other was not run.",
        "double fails in 2 of 2 visible cases.",
    ]


@can_fork
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os._exit(0)", "ended Python itself"),
        ("raise SystemExit", "It raised SystemExit. It ended itself: leave out `exit()`"),
        ("return bytes(9)", "something other than numbers"),
        ("return float('nan')", "something other than numbers"),
        ("return 'x' * 3_000_000", "far too much"),
        ("return [0] * 10**9", "more than 256 MiB"),
        ("return double(x)", "RecursionError"),
        ("return input('?')", "EOFError"),
    ],
)
def test_the_kernel_survives_whatever_an_answer_does(code: str, told: str) -> None:
    assert told in str(checked("double", f"def double(x):\n    {code}"))


@can_fork
def test_nothing_that_an_answer_changes_is_changed_in_the_notebook() -> None:
    names: dict[str, Any] = {"check": check, "seen": []}
    exec("def double(x):\n    seen.append(x)\n    return 2 * x\nresult = check('double')", names)
    assert names["result"] and names["seen"] == []


def test_without_forks_the_cases_run_in_the_kernel_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    assert checked("double", "def double(x):\n    return 2 * x")
    assert "ZeroDivisionError" in str(checked("double", "def double(x):\n    1 / 0"))


@pytest.mark.parametrize(
    "line", ['raise NotImplementedError("write double")', "raise NotImplementedError"]
)
def test_a_stub_is_not_a_failure_but_not_written_yet(line: str) -> None:
    result = checked("double", f"def double(x):\n    {line}")
    assert str(result).startswith("○ double: not written yet.") and not result
    assert "○ double not checked yet" in words(result._repr_html_())


@pytest.fixture
def wanting(tmp_path: Path) -> Any:
    """A check whose function should give back a value of this kind, through a driver or not."""

    def wanted(kind: str, code: str, driver: str = "", inside: str = "") -> CheckResult:
        case = {"group": "example", "args": [2], "expected": [4], "kind": kind, "inside": inside}
        changes: dict[str, Any] = {"cases": [case], "driver": driver}
        changes |= {"entry": "run_double"} if driver else {}
        pack = PACK | {"exercises": {"double": task(**changes)}}
        (tmp_path / ".checks/small.check.json").write_text(json.dumps(pack), encoding="utf-8")
        return checked("double", code)

    return wanted


UNPACKS = "def run_double(x):\n    (value,) = double(x)\n    return [value]"


@pytest.mark.parametrize(
    ("kind", "driver", "body", "came", "next_step"),
    [
        (
            "list",
            "",
            "print([2 * x])",
            "None",
            "Is there a `return` on each way through it? `print`",
        ),
        ("list", UNPACKS, "print([2 * x])", "None", "Is there a `return` on each way through it?"),
        ("list", "", "return lambda: [4]", "a function", "Did you forget the parentheses"),
        ("list", UNPACKS, "return type(x)", "a class", "Did you forget the parentheses"),
        ("bytes", UNPACKS, "return [2 * x, 2 * x]", "a list", "`bytes(…)` makes one of it"),
        ("tuple", UNPACKS, "return 4", "a whole number", "Read in its docstring what it gives."),
        ("Tensor", UNPACKS, "return 4.0", "a float", "Read in its docstring what it gives."),
    ],
)
def test_a_value_of_another_kind_is_told_with_what_was_wanted_and_what_to_do(
    wanting: Any, kind: str, driver: str, body: str, came: str, next_step: str
) -> None:
    result = wanting(kind, f"def double(x):\n    {body}", driver)
    names = {"list": "a list", "tuple": "a tuple", "bytes": "bytes", "Tensor": "a tensor of torch"}
    wanted = names[kind]
    for text in (str(result), words(result._repr_html_()).replace(" ,", ",")):
        text = text.replace("`", "")
        said = f"double returned {came}, and should return {wanted}."
        assert said in text.replace("  ", " ")
        assert next_step.replace("`", "") in text
        assert "expected [4]" in " ".join(text.split())


def test_what_json_does_not_have_is_named_and_told_how_to_mend(wanting: Any) -> None:
    lazy = wanting("list", "def double(x):\n    yield 2 * x")
    assert "of these: there is a generator in it." in str(lazy)
    assert "It has computed nothing yet: put it into `list(…)`" in str(lazy)
    pair = wanting("list", "def double(x):\n    return (2 * x,)")
    assert "`double` returned a tuple, and should return a list. `list(…)` makes" in str(pair)
    inside = wanting("list", "def double(x):\n    return [(2, x)]")
    assert "of these: there is a tuple in it." in str(inside)
    assert "should return" not in str(inside)
    odd = wanting("list", "class Odd: pass\ndef double(x):\n    return Odd()")
    assert "there is a value of the type `Odd` in it" in str(odd)


def test_who_returns_where_nothing_is_asked_back_is_told(wanting: Any) -> None:
    driver = "def run_double(x):\n    row = [x]\n    double(row)\n    return row"
    result = wanting("NoneType", "def double(row):\n    return [2 * x for x in row]", driver)
    assert "`double` returned a list, and should return None. So it changes what it" in str(result)
    assert wanting("NoneType", "def double(row):\n    row[0] *= 2", driver)


def test_a_driver_that_takes_any_sequence_says_nothing_of_its_kind(wanting: Any) -> None:
    driver = "def run_double(x):\n    return list(double(x))"
    assert "returned a tuple" not in str(wanting("list", "def double(x): return (5,)", driver))
    assert wanting("list", "def double(x): return (4,)", driver)


def test_other_things_in_a_list_than_were_asked_for_are_named(wanting: Any) -> None:
    driver = "def run_double(x):\n    return [each.real for each in double(x)]"
    told = "There is a text in what `double` returned, where a whole number should be."
    for value in ("['4']", "[['4'], 4]"):
        assert told in str(wanting("list", f"def double(x): return {value}", driver, "int"))
    assert wanting("list", "def double(x): return [4]", driver, "int")
    assert told not in str(wanting("list", "def double(x): return ['4']", driver))


@pytest.mark.parametrize("value", ["ValueError", "ValueError(x)"])
def test_an_exception_that_is_returned_should_be_raised(wanting: Any, value: str) -> None:
    driver = "def run_double(x):\n    return list(double(x))"
    text = str(wanting("", f"def double(x): return {value}", driver))
    assert "`double` returned an exception: it should `raise` it." in text


def test_what_should_have_come_of_calls_is_told_call_by_call() -> None:
    text = str(checked("count", "def count(n):\n    return 1 / 0"))
    assert "expected:\n  - after 1. count(1): {'n': 1}\n  - after 2. count(2): {'n': 2}" in text


def test_a_difference_is_told_once() -> None:
    result = checked("count", "def count(n):\n    return {'n': 0}")
    assert "what differs" in str(result) and "it gave" not in str(result)
    case = CaseResult("case 1", "f", True, (), (), [[1, 2], [3, 4]], [[1, 2], [3, 5]])
    text = str(CheckResult("f", "A sheet", (case,)))
    assert "it gave   [[1, 2], [3, 5]]\n  expected  [[1, 2], [3, 4]]" in text
    assert "what differs" not in text


def test_an_exception_says_what_was_expected_and_where_to_look(wanting: Any) -> None:
    text = str(wanting("list", "def double(x):\n    return [x, 4][x]"))
    assert "It raised IndexError: list index out of range. It asked a list for a place" in text
    assert "Look at the last of these lines" in text
    assert "expected  [4]" in text
    text = str(wanting("list", "def double():\n    return [4]"))
    assert "(when the check called your code). It used a value of the wrong kind, or too" in text


def test_a_function_with_another_name_is_found() -> None:
    code = "import math\ndef dubble(x):\n    return 2 * x\nclass Node: pass\n"
    text = str(checked("double", code))
    assert "`double` is not defined. You have defined `dubble`: if that is it, call it" in text
    assert "Run the cell with your code first." in str(checked("double", "def count(n): return n"))


def test_a_name_that_is_no_function_any_more_says_so() -> None:
    text = str(checked("double", "def double(x):\n    return 2 * x\ndouble = double(3)"))
    assert "`double` is no function any more, but a whole number" in text


@pytest.mark.parametrize("name", ["01-longest-prefix", "02-split", "03-insert"])
def test_packs_know_what_kind_of_value_each_function_gives(name: str) -> None:
    wanted = {
        "match_len": {"int"},
        "longest_prefix": {"tuple"},
        "split_at": {"Node"},
        "insert": {"tuple"},
        "repoint": {"NoneType"},
    }
    for exercise, one in visible_pack(ours(name))["exercises"].items():
        assert {case["kind"] for case in one["cases"]} == wanted[exercise]


def test_missing_names_say_which_cell_to_run() -> None:
    assert "Run the cell with your code first" in str(checked("double", ""))
    assert "Node is not defined. Run the cells above first" in str(checked("cut", ""))


# --- which code is checked -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Any:
    """IPython, which takes the place of `__main__`, and gives it back here."""
    shells, main = pytest.importorskip("IPython.core.interactiveshell"), sys.modules["__main__"]
    shell = shells.InteractiveShell()
    sys.modules["__main__"] = main
    return shell


@pytest.fixture
def cells(shell: Any) -> Any:
    """Runs cells one after another, then a check; gives the check's result."""
    shell.reset()

    def run(*sources: str) -> CheckResult:
        for source in sources:
            shell.run_cell(source, store_history=True)
        shell.run_cell("from radixlab.classroom import check\nresult = check('double')", True)
        result: CheckResult = shell.user_ns["result"]
        return result

    return run


RIGHT = "def double(x):\n    return 2 * x"
STALE = "What is there is still the `double` of cell [1]."


def test_a_check_says_of_which_cell_the_code_is(cells: Any) -> None:
    result = cells("x = 1", RIGHT)
    assert result and "Checked: the code of cell [2]. These are the visible" in str(result)
    assert "Checked: the code of cell [2]." in words(result._repr_html_())
    assert "cell [4]" in str(cells("def double(x):\n    return x + x"))
    assert "Checked" not in str(checked("double", RIGHT)), "nobody knows of cells there"


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("def double(x)\n    return 2 * x", "did not run: SyntaxError in its line 1."),
        ("def double(x):\n  return 2\n return 3", "did not run: IndentationError in its line 3."),
        ("import nothing\ndef double(x):\n    return 3", "stopped before it came to `double`."),
        ("@nothing\ndef double(x):\n    return 3", "stopped before it came to `double`."),
    ],
)
def test_no_green_tick_for_the_code_before_the_one_that_did_not_run(
    cells: Any, cell: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old function would be judged in place of the new one, and pass."""
    result = cells(RIGHT, cell)
    assert not result and result.sheet["double"] is None
    assert str(result).startswith("○ double: your last cell with it, [2], ")
    assert told in str(result) and STALE in str(result)
    assert cells(RIGHT), "it is run again"


def test_a_first_cell_that_did_not_run_is_named(
    cells: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(cells("def double(x)\n    return 2 * x"))
    assert "your last cell with it, [1], did not run: SyntaxError" in text and "still" not in text


def test_no_green_tick_for_the_code_before_it_got_another_name(cells: Any) -> None:
    result = cells(RIGHT, "def dubble(x):\n    return 3 * x")
    assert not result and "you have defined `dubble` since. " in str(result)
    assert STALE in str(result) and "run cell [1] again." in str(result)
    assert cells(RIGHT)
    assert cells("def helper(x):\n    return 3"), "another name is another function"


@pytest.mark.parametrize(
    "cell",
    [
        "first = double",
        "import functools\ndouble = functools.cache(double)",
        "import functools\n@functools.cache\ndef double(x):\n    return 2 * x",
        "class Numbers:\n    def double(self, x):\n        return 3 * x",
        "%time double(3)",
        "%%time\ndef double(x):\n    return 2 * x",
        'text = """\nx x\ndouble"""',
        "1 / 0",
        "def double(x):\n    return 2 * x\nreturn 3",  # IPython runs what stands above
        "In = 3",
        "del In",
    ],
)
def test_who_does_other_things_with_the_name_is_not_held_up(
    cells: Any, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cells(RIGHT, cell)


def test_a_class_is_from_its_cell_too() -> None:
    import linecache

    from radixlab.classroom.origin import origin

    old, new = (f"class Double:\n    def of(self, x):\n        return x{s}" for s in ("", "("))
    linecache.cache["<old>"] = (len(old), None, old.splitlines(True), "<old>")
    names: dict[str, Any] = {"__name__": "__main__", "In": ["", old, new]}
    exec(compile(old, "<old>", "exec"), names)
    assert "[2], did not run" in origin("Double", names, ()).stale
    names["In"].pop()
    assert origin("Double", names, ()) == (1, "")


# --- the sheet -----------------------------------------------------------------------------------


def test_the_progress_of_the_sheet_is_remembered() -> None:
    first = checked("double", "def double(x):\n    return 2 * x")
    assert first.sheet == {"double": True, "cut": None, "count": None}
    second = checked("count", "def count(n):\n    return n")
    assert second.sheet == {"double": True, "cut": None, "count": False}
    html = second._repr_html_()
    assert '<progress max="3" value="1" aria-label="1 of 3 exercises' in html
    assert "✓ double passes ○ cut not checked yet ✗ count fails" in words(html)
    assert "A small sheet: 1 of 3 exercises pass.  ✓ double  ○ cut  ✗ count" in str(second)


def test_the_pack_of_this_very_notebook_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = json.dumps(PACK | {"sheet": "a", "title": "Another sheet"})
    code = "def double(x):\n    return 2 * x"
    for place in ("a.check.json", ".checks/a.check.json"):  # beside it, as before, or not
        (tmp_path / place).write_text(other, encoding="utf-8")
        monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
        assert checked("double", code).title == "Another sheet"
        monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "small.ipynb"))
        assert checked("double", code).title == "A small sheet"
        (tmp_path / place).unlink()


def test_an_unknown_exercise_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidArgument, match=r"one of double, cut, count.*'triple'") as refused:
        check("triple")
    (line,) = refused.value._render_traceback_()  # type: ignore[attr-defined]
    assert line == "NoSuchExercise: exercise must be one of double, cut, count, got 'triple'"


def test_without_a_pack_an_unknown_exercise_is_refused_with_the_names_of_our_sheets(
    tmp_path: Path,
) -> None:
    (tmp_path / ".checks/small.check.json").unlink()
    with pytest.raises(InvalidArgument, match=r"one of match_len, longest_prefix, split_at, "):
        check("match_length")


def test_a_downloaded_notebook_without_its_pack_uses_the_sheet_of_the_package() -> None:
    sheet = ours("02-split")
    result = checked("split_at", sheet.given + "\n\n" + sheet.exercises["split_at"].solution)
    assert result and result.title == sheet.title


# --- nbgrader and terminals ----------------------------------------------------------------------


def test_only_while_nbgrader_validates_a_failure_raises_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not checked("double", "def double(x):\n    return x")
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    assert checked("double", "def double(x):\n    return 2 * x") is None  # or it would be points
    assert "✓ double" in capsys.readouterr().out
    with pytest.raises(checks.ChecksFailed) as failed:
        checked("double", "def double(x):\n    return x")
    (line,) = failed.value._render_traceback_()
    assert line == "ChecksFailed: ✗ double fails in 2 of 2 visible cases."


@pytest.mark.long
def test_nbgraders_validation_sees_the_failure(tmp_path: Path) -> None:
    validator = pytest.importorskip("nbgrader.validator")
    import nbformat
    from test_classroom_build import by_role, small

    from radixlab.classroom.build import nbgrader_notebook

    def failed(double: str) -> int:
        notebook = nbgrader_notebook(small())
        by_role(notebook, "answer", "double").source = double
        nbformat.write(notebook, tmp_path / "sheet.ipynb")
        return len(validator.Validator().validate(str(tmp_path / "sheet.ipynb")).get("failed", []))

    (tmp_path / ".checks/small.check.json").unlink()
    pack = json.dumps(visible_pack(small()))
    (tmp_path / "classroom_sheet.check.json").write_text(pack, encoding="utf-8")
    assert failed("def double(x):\n    return 2 * x") == 0
    assert failed("def double(x):\n    return x") == 1


def test_a_check_needs_no_notebook_and_no_ipython() -> None:
    import subprocess

    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "from radixlab.classroom import check\n"
        "def double(x):\n    return x * x\n"
        "result = check('double')\nprint(result)\n"
        "print(sorted({'IPython', 'torch', 'matplotlib', 'anywidget'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "What may be wrong: You square it." in answer.stdout, answer.stderr
    assert "['IPython']" in answer.stdout, "nothing else was loaded"


# --- our own sheets ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_in_each_of_our_sheets_solutions_pass_stubs_wait_and_mistakes_are_named(
    name: str, tmp_path: Path
) -> None:
    sheet = ours(name)
    (tmp_path / f"{name}.check.json").write_text(json.dumps(visible_pack(sheet)), encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__", "check": check}
    exec(sheet.given, names)
    for exercise in sheet.exercises.values():
        exec(exercise.stub, names)
        exec(f"result = check({exercise.id!r})", names)
        assert names["result"].stop.startswith("not written yet"), names["result"]
        for wrong in exercise.wrong:
            exec(wrong.source, names)
            exec(f"result = check({exercise.id!r})", names)
            assert names["result"].passed or wrong.message in names["result"].mistakes
            assert names["result"]._repr_html_() and str(names["result"])
        exec(exercise.solution, names)
        exec(f"result = check({exercise.id!r})", names)
        assert names["result"], names["result"]


RETURN = "`{name}` returned None, and should return {kind}. Is there a `return` on each way"
REAL = [
    ("01-longest-prefix", "longest_prefix", "    return len", "    len", RETURN, "a tuple"),
    ("01-longest-prefix", "longest_prefix", "return len(slots), slots", "return 3", "", "a tuple"),
    ("03-insert", "insert", "return found", "found", RETURN, "a tuple"),
    ("05-evict", "victim", "default=None)", "default=None).key", "", "a value of the type `Node`"),
    ("05-evict", "evict", "return slots", "slots", RETURN, "a list"),
    ("06-pages", "allocate", "return [", "print(*[", RETURN, "a list"),
    ("07-schedule", "defer_repeated", "return now", "now", RETURN, "a tuple"),
    ("07-schedule", "lpm", "return sorted(waiting, ", "return waiting.sort(", RETURN, "a list"),
    ("08-paged-attention", "paged_attention", "return torch", "torch", RETURN, "a tensor of torch"),
]
"""What a student did for real: a sheet, an exercise, and a change of its solution."""


@pytest.mark.long
@pytest.mark.parametrize(("name", "exercise", "old", "new", "told", "kind"), REAL)
def test_what_a_student_did_for_real_is_told_in_plain_words(
    name: str, exercise: str, old: str, new: str, told: str, kind: str
) -> None:
    sheet = ours(name)
    changed = sheet.exercises[exercise].solution.replace(old, new)
    changed += ")" * (new == "print(*[")
    others = [e.solution for e in sheet.exercises.values() if e.id != exercise]
    text = str(checked(exercise, "\n\n".join([sheet.given, *others, changed])))
    assert told.format(name=exercise, kind=kind) in text
    assert f"and should return {kind}" in text or not kind, text


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "exercise", "code", "told"),
    [
        (
            "01-longest-prefix",
            "match_len",
            "def match_len(edge):\n    return 0",
            "takes 1 positional argument but 2 were given (when the check called your code)",
        ),
        (
            "07-schedule",
            "lpm",
            "def lpm(waiting):\n    return [each.name for each in waiting]",
            "There is a text in what `lpm` returned, where a value of the type `Request` should",
        ),
        (
            "06-pages",
            "page_table_row",
            "def page_table_row(pages, num_tokens, page_size):\n    return ValueError",
            "`page_table_row` returned an exception: it should `raise` it.",
        ),
        (
            "06-pages",
            "floor_to_page",
            "def floor_to_page(num_tokens, page_size):\n    return num_tokens / 1",
            "`floor_to_page` returned a float, and should return a whole number.",
        ),
        (
            "04-lock",
            "unlock",
            "def unlock(cache, node):\n    raise ValueError",
            "1. unlock([900, 41]), came of it: 'raised ValueError', expected 'raised NotLocked'",
        ),
        (
            "04-lock",
            "unlock",
            "def unlock(cache, node):\n    return NotLocked",
            "`unlock` returned an exception: it should `raise` it.",
        ),
        (
            "05-evict",
            "evict",
            "def evict(cache, num_tokens):\n    raise RuntimeError('too few')",
            "after 1. evict(3), slots: 'raised RuntimeError', expected 'raised ValueError'",
        ),
    ],
)
def test_what_was_done_otherwise_is_told_in_plain_words(
    name: str, exercise: str, code: str, told: str
) -> None:
    sheet = ours(name)
    assert told in str(checked(exercise, f"{sheet.given}\n\n{code}"))


# --- comparing -----------------------------------------------------------------------------------


def tree(**changes: Any) -> dict[str, Any]:
    """A tree of two leaves below one node; `changes` go to the second leaf."""
    leaf = {"key": [31, 32], "value": [5, 6], "ref_count": 0, "timestamp": 4, "children": []}
    common = {"key": [101, 11], "value": [0, 1], "ref_count": 1, "timestamp": 4}
    other = leaf | {"key": [21], "value": [3]}
    return {"key": [], "value": [], "children": [common | {"children": [other, leaf | changes]}]}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ref_count": 2}, "Node [31, 32]: ref_count is 2, expected 0."),
        ({"timestamp": 3}, "Node [31, 32]: timestamp is 3, expected 4."),
        ({"value": [5, 7]}, "Node [31, 32]: value is [5, 7], expected [5, 6]."),
        ({"key": [31, 33]}, "Where node [31, 32] is expected, yours has node [31, 33]."),
        ({"key": [7]}, "Node [7] below node [101, 11] should not be there."),
        ({"ref_count": True}, "Node [31, 32]: ref_count is True, expected 0."),
    ],
)
def test_each_difference_between_trees_is_a_sentence(changes: dict[str, Any], told: str) -> None:
    diff = tree_diff(tree(**changes), tree())
    assert told in diff.sentences
    assert told in diff.html.replace("&#x27;", "'")
    assert not tree_diff(tree(), tree()).sentences


def test_missing_and_moved_nodes_are_told_apart() -> None:
    lost = tree()
    leaf = lost["children"][0]["children"].pop()
    assert tree_diff(lost, tree()).sentences == ("Node [31, 32] is missing below node [101, 11].",)
    lost["children"].append(leaf)
    moved = tree_diff(lost, tree())
    assert moved.sentences == (
        "Node [31, 32] hangs below the root, expected below node [101, 11].",
    )
    assert moved.text.count("<- hangs elsewhere") == 2


def test_differences_go_as_deep_as_one_can() -> None:
    got, wanted = {"a": [1, 2], "b": [{"c": 3}, {"c": 4}]}, {"a": [1, 2], "b": [{"c": 3}, {"c": 5}]}
    assert list(differences(got, wanted)) == [(("b", 1, "c"), 4, 5)]
    assert list(differences({"a": 1}, {"b": 1})) == [((), {"a": 1}, {"b": 1})]
    assert list(differences([1, 2], [2, 1])) == [((), [1, 2], [2, 1])]
    assert not list(differences(0.1 + 0.2, 0.3))


def test_complaints_stand_for_themselves() -> None:
    case = CaseResult("case 1", "f", False, ("n",), (1,), {"faults": []}, {"faults": ["it is bad"]})
    text = str(CheckResult("f", "A sheet", (case,)))
    assert "what differs:\n  - it is bad\n" in text


@pytest.mark.parametrize(
    "got", [{"key": [], "children": 3}, {"key": [], "children": [4]}, {"key": [1], "value": None}]
)
def test_whatever_comes_instead_of_a_tree_can_be_shown(got: dict[str, Any]) -> None:
    assert is_tree(got)
    assert "<svg" in tree_diff(got, tree()).html


def test_deep_and_large_trees_are_cut_short() -> None:
    deep: dict[str, Any] = {"key": [0], "value": [0], "children": []}
    for i in range(1, 90):
        deep = {"key": [i], "value": [i], "children": [deep]}
    assert "and so on" in tree_diff({"key": [], "value": [], "children": [deep]}, tree()).text
    wide = {"key": [], "value": [], "children": [{"key": [i], "value": [i]} for i in range(200)]}
    assert "A tree of 200 nodes is not drawn" in tree_diff(wide, tree()).html


# --- show ----------------------------------------------------------------------------------------


class Node:
    def __init__(self, key: list[int], parent: Node | None = None) -> None:
        self.key, self.value, self.parent = key, list(key), parent
        self.ref_count = 0
        self.children: Any = {}
        if parent is not None:
            parent.children[key[0]] = self


def test_show_draws_a_students_tree_and_says_it_in_words() -> None:
    root = Node([])
    leaf = Node([3, 4], Node([1, 2], root))
    leaf.ref_count = 1
    picture = show(root)
    assert picture.text.splitlines() == [
        "root",
        "└── [1, 2]  [p1, p2]  ref_count 0",
        "    └── [3, 4]  [p3, p4]  ref_count 1",
    ]
    assert "<title>Your tree: 2 nodes below the root</title>" in picture.svg
    assert picture._repr_mimebundle_()["text/html"].startswith('<div class="radixlab')


def test_show_marks_loops_and_wrong_links_and_never_hangs() -> None:
    root = Node([])
    upper = Node([1], root)
    lower = Node([2], upper)
    lower.children[1] = root
    assert "in a loop" in show(root).text
    del lower.children[1]
    lower.parent = root
    assert "its parent link leads elsewhere" in show(root).text
    lower.parent = upper
    upper.children = {9: lower}
    assert "hangs under [9]" in show(root).text


def test_show_takes_lists_of_children_json_and_the_librarys_own_trees() -> None:
    from radixlab import RadixCache

    root = Node([])
    root.children = [Node([1]), Node([2])]
    for child in root.children:
        child.parent = root
    assert show(root).text.count("──") == 2 and "<-" not in show(root).text
    assert "[31, 32]" in show(tree()).text
    from array import array

    cache = RadixCache(page_size=1)
    cache.insert_prefix([1, 2], array("i", [5, 6]))
    assert "[1, 2]  [p5, p6]" in show(cache.tree).text


def test_show_stops_at_trees_without_an_end() -> None:
    class Endless:
        def __init__(self, n: int) -> None:
            self.key, self.value, self.n = [n], [n], n

        @property
        def children(self) -> list[Endless]:
            return [Endless(self.n + 1)]

    assert "its children are not drawn" in show(Endless(0)).text


@pytest.mark.parametrize("thing", [None, 3, [1, 2], {"a": 1}])
def test_show_refuses_what_is_no_tree(thing: Any) -> None:
    with pytest.raises(InvalidArgument, match="key, value and children"):
        show(thing)
