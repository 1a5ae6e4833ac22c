"""The wheel and the sdist work outside the repository."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from shell import run

nbformat = pytest.importorskip("nbformat", reason="needs radixlab[lab]")
NotebookClient = pytest.importorskip("nbclient", reason="needs radixlab[lab]").NotebookClient

ROOT = Path(__file__).resolve().parents[1]
MODEL = "radixlab/models/tiny-austen"
MODEL_FILES = {path.name for path in (ROOT / MODEL).iterdir()}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel in it."""
    (wheel,) = built.glob("*.whl")
    folder = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder, wheel, cwd=folder)
    return folder


def test_the_sdist_holds_code_tests_chapters_model_and_licences(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "LICENSE", "LICENSE-TEXT", "README.md"} <= names
    assert {f"{MODEL}/{name}" for name in MODEL_FILES} <= names
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "radixlab").rglob("*.py")}
    assert modules <= names
    assert "tests/test_wheel.py" in names


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"radixlab"}
    assert {f"{MODEL}/{name}" for name in MODEL_FILES} <= set(names)
    assert {"radixlab/py.typed", "radixlab/classroom/sheets/02-split.md"} <= set(names)
    assert any(name.endswith("licenses/LICENSE-TEXT") for name in names)


def test_the_installed_core_works_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import radixlab.cache, radixlab.manager, radixlab.scheduler, radixlab.lifecycle\n"
        "print(radixlab.__file__)"
    )
    where = run(sys.executable, "-I", "-S", "-c", code, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed)


def test_the_installed_package_finds_its_model(installed: Path) -> None:
    assert {path.name for path in (installed / MODEL).iterdir()} == MODEL_FILES


def test_the_command_of_the_installed_package_runs(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin/radixlab"
    text = run(sys.executable, command, "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "demo" in text


def radixlab(installed: Path, cwd: Path, *arguments: str | Path, **environment: str) -> str:
    """What the command of the installed wheel prints; what it needs is this environment's."""
    command = installed / "bin/radixlab"
    return run(
        sys.executable, command, *arguments, cwd=cwd, PYTHONPATH=str(installed), **environment
    )


def execute(notebook: Any, installed: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": cwd}}).execute()


def test_the_installed_demo_proves_reuse_with_its_own_model(
    installed: Path, tmp_path: Path
) -> None:
    said = radixlab(installed, tmp_path, "demo", "--part", "3")
    assert "Cold and warm draw the same tokens." in said


def test_the_installed_players_show_themselves_in_a_notebook(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ["import radixlab; print(radixlab.__file__)"]
    cells += ["radixlab.playground()", "radixlab.play('chapter')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    execute(notebook, installed, tmp_path, monkeypatch)
    where, *shown = [cell.outputs[-1] for cell in notebook.cells]
    assert Path(where.text.strip()).is_relative_to(installed)
    assert all("application/vnd.jupyter.widget-view+json" in each.data for each in shown)


def test_a_class_needs_the_installed_package_only(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "02-split" in radixlab(installed, tmp_path, "classroom", "list")
    radixlab(installed, tmp_path, "classroom", "build", "02", "--out", "in", "--with-solutions")
    notebook = nbformat.read(tmp_path / "in/02-split.ipynb", as_version=4)
    solved = nbformat.read(tmp_path / "in/02-split.solutions.ipynb", as_version=4)
    for stub in notebook.cells:
        if "raise NotImplementedError" in stub.source and stub.cell_type == "code":
            same = (cell for cell in solved.cells if cell.metadata == stub.metadata)
            stub.source = next(same).source
    execute(notebook, installed, tmp_path / "in", monkeypatch)
    assert "✓ split_at passes" in str(notebook)
    (tmp_path / "submissions").mkdir()
    nbformat.write(notebook, tmp_path / "submissions/ana.ipynb")
    options = "02", "submissions", "out"
    radixlab(installed, tmp_path, "classroom", "grade", *options, RADIXLAB_CLASSROOM_SEED="5" * 32)
    grades = (tmp_path / "out/grades.csv").read_text(encoding="utf-8")
    assert "ana,10,10" in grades


def test_the_command_without_its_extra_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    answer = subprocess.run(
        [sys.executable, "-S", installed / "bin/radixlab", "demo"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode != 0
    assert "pip install" in answer.stderr
    assert "Traceback" not in answer.stderr
