"""What stands around the code: packaging, environments, licences, make targets, and the promise
that the core needs the standard library alone."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONTRACTS = {each["id"]: each for each in PYPROJECT["tool"]["importlinter"]["contracts"]}
CORE = CONTRACTS["stdlib"]["source_modules"]
TARGETS = ["help", "demo", "lab", "book", "serve", "publish-check", "bench"]
TARGETS += ["compiled", "figures", "cuda-check", "test", "test-long", "lint", "format", "sync"]
TARGETS += ["clean"]

in_a_checkout = pytest.mark.skipif(
    not (ROOT / ".ci").exists(), reason="an sdist leaves the CI's files out"
)


def direct_dependencies() -> dict[str, Requirement]:
    """Every requirement of any extra, by name, radixlab's own extras left out."""
    requirements = [Requirement(line) for lines in EXTRAS.values() for line in lines]
    return {each.name: each for each in requirements if each.name != "radixlab"}


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {each.name: each for each in requirements}


def bare_environment(**more: str) -> dict[str, str]:
    """This process's environment without an active Python environment."""
    active = {"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "MAKEFLAGS", "MAKELEVEL"}
    return {name: value for name, value in os.environ.items() if name not in active} | more


def make(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=cwd,
        env=bare_environment(**environment),
        capture_output=True,
        text=True,
        timeout=60,
    )


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


# --- dependencies and environments ---------------------------------------------------------------


def test_the_core_depends_on_nothing() -> None:
    assert PROJECT["dependencies"] == []


def test_the_extra_all_holds_every_other_extra() -> None:
    (everything,) = (Requirement(line) for line in EXTRAS["all"])
    assert everything.extras == set(EXTRAS) - {"all"}


def test_each_direct_dependency_is_pinned_to_a_version_it_allows() -> None:
    pinned, wanted = pins(), direct_dependencies()
    assert set(pinned) == set(wanted)
    for name, pin in pinned.items():
        (version,) = (each.version for each in pin.specifier if each.operator == "==")
        assert wanted[name].specifier.contains(version), f"{pin} is not within {wanted[name]}"


def test_the_pins_name_no_build_so_that_a_cuda_torch_satisfies_them() -> None:
    assert pins()["torch"].specifier.contains("2.13.0+cu130")
    assert "+" not in (ROOT / "constraints.txt").read_text()


def test_the_conda_environment_agrees_with_pyproject() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    packages = [each for each in environment["dependencies"] if isinstance(each, str)]
    (pip,) = (each["pip"] for each in environment["dependencies"] if isinstance(each, dict))
    assert environment["name"] == PROJECT["name"]
    assert packages == [f"python{PROJECT['requires-python']}", "graphviz", "pip"]
    assert pip == ["-e .[all]"]


def test_make_accepts_the_pythons_that_pyproject_accepts() -> None:
    bounds = re.search(r"\((\d), (\d+)\) <= .* < \((\d), (\d+)\)", (ROOT / "Makefile").read_text())
    assert bounds
    assert PROJECT["requires-python"] == ">={}.{},<{}.{}".format(*bounds.groups())


# --- versions, licences, documents ---------------------------------------------------------------


def test_all_versions_agree() -> None:
    import radixlab

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert radixlab.__version__ == PROJECT["version"]
    try:
        installed = importlib.metadata.version("radixlab")
    except importlib.metadata.PackageNotFoundError:
        return  # run from a checkout without an installation
    assert installed == PROJECT["version"]


def test_the_citation_is_a_valid_cff_file() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert all({"name"} <= set(author) for author in citation["authors"])
    assert citation["type"] == "software"
    assert citation["license"] == PROJECT["license"]


def test_code_is_mit_and_text_is_cc_by() -> None:
    assert PROJECT["license-files"] == ["LICENSE", "LICENSE-TEXT"]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n\nCopyright (c)")
    text = (ROOT / "LICENSE-TEXT").read_text()
    assert "Creative Commons Attribution 4.0 International" in text
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in text


def test_the_changelog_has_a_section_for_this_version() -> None:
    version = Version(PROJECT["version"])
    heading = (
        r"## \[Unreleased\]" if version.is_devrelease else rf"## \[{version}\] - \d{{4}}-\d\d-\d\d"
    )
    assert re.search(rf"^{heading}$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)


# --- make ----------------------------------------------------------------------------------------


def test_make_alone_lists_every_target() -> None:
    listed = re.findall(r"^ +make ([a-z-]+)  +\w", make().stdout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_how_to(target: str) -> None:
    plan = make("-n", target)
    assert plan.returncode == 0, plan.stderr


def test_make_uses_its_own_environment_and_the_pins_when_none_is_active() -> None:
    plan = make("-n", "demo").stdout
    assert '".venv/bin/radixlab" demo' in plan
    assert "-c constraints.txt" in plan


@pytest.mark.parametrize(
    "active",
    [
        {"VIRTUAL_ENV": "/some/venv"},
        {"CONDA_PREFIX": "/some/venv", "CONDA_DEFAULT_ENV": "radixlab"},
        {"CONDA_PREFIX": "/a/base", "CONDA_DEFAULT_ENV": "base", "VIRTUAL_ENV": "/some/venv"},
    ],
)
def test_make_uses_an_active_environment_without_pins(active: dict[str, str]) -> None:
    plan = make("-n", "demo", **active).stdout
    assert '"/some/venv/bin/radixlab" demo' in plan
    assert "constraints.txt" not in plan
    assert ".venv" not in plan.replace("/some/venv", "")


@pytest.mark.parametrize(
    "active",
    [
        {"CONDA_PREFIX": "/a/base", "CONDA_DEFAULT_ENV": "base"},
        {"VIRTUAL_ENV": str(ROOT / ".venv")},
    ],
)
def test_make_does_not_touch_a_conda_base_or_mistake_its_own(active: dict[str, str]) -> None:
    plan = make("-n", "demo", **active).stdout
    assert '".venv/bin/radixlab" demo' in plan
    assert "-c constraints.txt" in plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a space in its path that holds what `make` reads to set itself up."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def programme(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_make_says_which_python_it_needs(folder: Path) -> None:
    old = programme(folder / "python3.9", "exit 1")
    answer = make("env-demo", f"PYTHON={old}", cwd=folder)
    assert answer.returncode != 0
    assert "radixlab needs Python 3.11, 3.12 or 3.13" in answer.stderr
    assert not (folder / ".venv").exists()


def test_make_says_that_the_venv_module_is_missing(folder: Path) -> None:
    bare = programme(folder / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    answer = make("env-demo", f"PYTHON={bare}", cwd=folder)
    assert answer.returncode != 0
    assert "lacks its venv module" in answer.stderr
    assert not (folder / ".venv").exists()


def test_make_installs_once_and_again_when_the_dependencies_change(folder: Path) -> None:
    active = folder / "venv"
    log = folder / "pip.log"
    programme(
        active / "bin/python",
        f'case "$*" in *"pip install"*) echo "$*" >> "{log}";; -V) echo Python 3.11.0;; '
        "*) echo the device;; esac",
    )

    def installs(target: str) -> list[str]:
        log.unlink(missing_ok=True)
        answer = make(target, cwd=folder, VIRTUAL_ENV=str(active))
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines()[-1] == "the device"
        return log.read_text().splitlines() if log.exists() else []

    (first,) = installs("env-demo")
    assert first.endswith("-e .[model]")
    assert installs("env-demo") == []
    (more,) = installs("env-test")
    assert more.endswith("-e .[all]")
    assert installs("env-lab") == [], "the larger profile holds the smaller"
    with (folder / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    assert len(installs("env-lab")) == 1
    assert len(installs("env-test")) == 1, "the old stamp of the larger profile is void"


@in_a_checkout
def test_ci_runs_what_the_readme_says() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert {"make test", "RADIXLAB_LONG=small make test-long"} <= set(
        script.read_text().splitlines()
    )


# --- the core, on the standard library alone -----------------------------------------------------


def test_importing_radixlab_loads_none_of_the_heavy_packages() -> None:
    answer = python(
        "import radixlab, sys; assert not {'torch', 'numpy', 'IPython'} & set(sys.modules)"
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("module", ["radixlab", *CORE])
def test_the_core_imports_in_an_interpreter_without_site_packages(module: str) -> None:
    answer = python(
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded - set(sys.stdlib_module_names) - {'__main__', 'radixlab'}))",
        "-I",
        "-S",
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "[]"


def test_importing_radixlab_takes_less_than_a_tenth_of_a_second() -> None:
    code = "import time; t = time.process_time(); import radixlab; print(time.process_time() - t)"
    assert min(float(python(code).stdout) for _ in range(5)) < 0.1
