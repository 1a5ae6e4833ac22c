"""ARCHITECTURE.md is true: its map, its walk, and every place and test that it names."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import architecture
import pytest

ROOT = architecture.ROOT
TEXT = architecture.TEXT.read_text(encoding="utf-8")
ROWS = architecture.read_rows()
ROOMS = [room for _, rooms in ROWS for room in rooms]


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def names_of(path: Path) -> set[str]:
    """What a file defines: functions, values, classes, and methods with and without their class."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            found |= {*methods, *(f"{node.name}.{name}" for name in methods)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


def code_lines(path: Path) -> int:
    """Lines without blank ones, comments and strings that stand alone."""
    source = path.read_text(encoding="utf-8")
    told: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(re.match(r"\s*[^\s#]", line)) and i not in told for i, line in lines)


def test_map_and_table_are_those_of_the_source() -> None:
    picture, table = architecture.make()
    message = "run `python tests/architecture.py`"
    assert architecture.PICTURE.read_text(encoding="utf-8") == picture, message
    assert TEXT.split(architecture.MARKS[0])[1].split(architecture.MARKS[1])[0] == table, message


def test_every_room_is_on_the_map_once() -> None:
    folder = architecture.PACKAGE
    rooms = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert sorted(ROOMS) == sorted(rooms | {path.parent.name for path in folder.glob("*/*.py")})
    svg = architecture.PICTURE.read_text(encoding="utf-8")
    assert sorted(re.findall(r">(?:<tspan.*</tspan> )?(\w+)</text>", svg)) == sorted(ROOMS)


def test_all_arrows_lead_down() -> None:
    row = {room: i for i, (_, rooms) in enumerate(ROWS) for room in rooms}
    for room, imported in architecture.read_imports(ROOMS).items():
        assert all(row[room] < row[other] for other in imported), room


def test_an_arrow_that_others_say_already_is_left_out() -> None:
    imports = {"roof": {"hall", "cellar"}, "hall": {"cellar"}, "cellar": set()}
    assert architecture.reduced(imports) == imports | {"roof": {"hall"}}


def test_a_token_id_walks_through_ten_rooms() -> None:
    lines = re.findall(
        r"^\d+\. \*\*(\w+)\*\*(.*(?:\n    ?.*)*)", section("The walk of a token id"), re.M
    )
    assert len(lines) == 10
    for room, text in lines:
        names = re.findall(r"`([\w.]+)`", text)
        assert names and not set(names) - names_of(ROOT / f"radixlab/{room}.py") - {"Request"}


def test_the_token_of_the_walk_has_that_id() -> None:
    tokenizer = json.loads((ROOT / "radixlab/models/tiny-austen/tokenizer.json").read_text("utf-8"))
    assert f'" truth" is {tokenizer["model"]["vocab"]["Ġtruth"]}.' in TEXT


CHANGES = re.findall(r"^\| .*", section("Where do I change ..."), re.MULTILINE)[1:]


@pytest.mark.parametrize("line", CHANGES, ids=lambda line: line.split("|")[1].strip())
def test_what_one_may_want_to_change_is_there(line: str) -> None:
    _, _, places, test, _ = line.split("|")
    names: list[str] = []
    for quoted in re.findall(r"`([^`]+)`", places):
        if quoted.startswith("make "):
            assert re.search(rf"^{quoted[5:]}:", (ROOT / "Makefile").read_text(), re.M)
        elif "/" not in quoted:
            names.append(quoted)
        else:
            path = ROOT / quoted
            assert path.suffix == ".md" or set(names) <= names_of(path), (quoted, names)
            names = []
    assert not names, "each name stands before its file"
    assert (ROOT / "tests" / test.strip(" `")).is_file()


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:radixlab|book)/[\w/.-]+)`", TEXT)
    named += [f"tests/{name}" for name in re.findall(r"`(test_\w+\.py)`", TEXT)]
    assert len(named) > 40
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_floors_0_to_4_have_fewer_than_1300_lines() -> None:
    core = [room for floor, rooms in ROWS for room in rooms if floor <= architecture.CORE]
    assert sum(code_lines(ROOT / f"radixlab/{room}.py") for room in core) < 1300
