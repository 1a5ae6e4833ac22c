"""Each target of the Makefile installs all that it imports: `make test` has everything, they don't.

The site is built so in test_book_site.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from extras import ROOT, only, read_profile
from shell import run

LAB, BOOK = read_profile("LAB"), read_profile("BOOK")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_what_is_not_named_is_not_there(tmp_path: Path) -> None:
    """Else the tests below could not fail."""
    code = "import radixlab, torch\ntry: import nbgrader\nexcept ModuleNotFoundError: print('gone')"
    assert run(sys.executable, "-c", code, cwd=tmp_path, **only("model")) == "gone\n"


def test_the_demo_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "radixlab", "demo", "--json"]
    assert json.loads(run(*command, cwd=tmp_path, **only("model")))


def test_make_lab_builds_its_sheets_and_a_solved_one_passes(tmp_path: Path) -> None:
    here = only(LAB)
    build = "classroom", "build", "02-split", "--with-solutions", "--out", "work"
    run(sys.executable, "-m", "radixlab", *build, cwd=tmp_path, **here)
    execute = "nbconvert", "--to", "markdown", "--stdout", "--execute", "02-split.solutions.ipynb"
    said = run(sys.executable, "-m", *execute, cwd=tmp_path / "work", **here)
    assert "split_at passes: 3 visible cases, all right." in said


def test_a_sheet_alone_is_checked_by_what_the_book_tells_to_install(tmp_path: Path) -> None:
    code = """
from radixlab.classroom import check
def split_at(node, position): return node
print(check("split_at"))
"""
    (tmp_path / "sheet.py").write_text(code, encoding="utf-8")
    said = run(sys.executable, "sheet.py", cwd=tmp_path, **only("lab"))
    assert "Cut an edge: 0 of 1 exercises pass." in said


def imports_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return "\n".join(re.findall(r"^(?:import|from) .+$", code, re.MULTILINE))


@pytest.mark.parametrize("extras", [LAB, BOOK])
def test_the_notebooks_find_what_they_import(extras: str, tmp_path: Path) -> None:
    (tmp_path / "imports.py").write_text("\n".join(map(imports_of, NOTEBOOKS)), encoding="utf-8")
    run(sys.executable, "imports.py", cwd=tmp_path, **only(extras))
