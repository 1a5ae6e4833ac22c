"""README's table of steps names the code that does them, and that code is short."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
README = (HERE.parent / "README.md").read_text(encoding="utf-8")
ROOMS = ("cache", "manager", "pool", "scheduler", "tree")
STEPS = re.findall(r"^\| ([1-7] \w+) \|.*\| (.+) \|$", README, re.MULTILINE)


def find(dotted: str) -> Callable[..., Any]:
    first, *rest = dotted.split(".")
    for room in ROOMS:
        module = importlib.import_module(f"radixlab.{room}")
        if hasattr(module, first):
            found = getattr(module, first)
            for name in rest:
                found = getattr(found, name)
            return found
    raise AssertionError(f"README names {dotted}, which no room has")


def code_lines(function: Callable[..., Any]) -> int:
    """Lines from `def` to the end, without the docstring, comments and blank lines."""
    source = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef)
    documentation = definition.body[0]
    hidden = set(range(documentation.lineno, (documentation.end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in hidden
        for number, line in enumerate(source.splitlines(), 1)
    )


def test_the_table_has_all_seven_steps() -> None:
    assert {step[0] for step, _ in STEPS} == set("1234567")


@pytest.mark.parametrize(("step", "cell"), STEPS, ids=[step for step, _ in STEPS])
def test_each_step_is_done_by_a_function_of_at_most_25_lines(step: str, cell: str) -> None:
    names = [name for name in re.findall(r"`([\w.]+)`", cell) if not name.endswith(".py")]
    assert names
    for name in names:
        assert code_lines(find(name)) <= 25, name


def test_the_code_in_the_readme_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), {})


def test_every_room_of_the_table_exists_and_none_is_missing() -> None:
    table = README.split("## The rooms of the house")[1].split("##")[0]
    named = set(
        re.findall(
            r"`(\w+)`",
            "".join(
                line.split("|")[2]
                for line in table.splitlines()
                if line.startswith("| ") and line[2].isdigit()
            ),
        )
    )
    folder = Path(__file__).resolve().parents[1] / "radixlab"
    rooms = {p.stem for p in folder.glob("*.py") if not p.stem.startswith("_")}
    rooms |= {p.parent.name for p in folder.glob("*/__init__.py")}
    assert named == rooms


def test_the_tables_of_figures_are_those_of_the_committed_runs() -> None:
    checked = subprocess.run(
        [sys.executable, "tests/figures.py", "write", "--check"], cwd=HERE.parent, check=False
    )
    assert checked.returncode == 0, "run `python tests/figures.py write`"
