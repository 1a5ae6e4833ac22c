"""The core compiled by mypyc follows the same rules: its tests, run on it."""

import sys
from pathlib import Path

import pytest
from shell import run

ROOT = Path(__file__).resolve().parents[1]
SUITES = [
    "tests/test_boundary.py",
    "tests/test_cache.py",
    "tests/test_chapter.py",
    "tests/test_engine.py",
    "tests/test_events.py",
    "tests/test_heal.py",
    "tests/test_stateful.py",
]
"""Without those that hand in wrong types (which a compiled function refuses by itself) or that put
methods of their own in the place of the core's."""
CANNOT = ("deep_copy", "names_the_code_that_did_it", "out_of_range")
"""What a compiled core can't do: be copied whole, show its source, and say which type was wrong."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with radixlab installed in it, its core compiled: what `make compiled` makes."""
    folder = tmp_path_factory.mktemp("compiled")
    python = sys.executable
    run(python, "-m", "build", "--sdist", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    install = [python, "-m", "pip", "install", "--no-deps", "--target", folder / "site", sdist]
    run(*install, cwd=folder, HATCH_BUILD_HOOK_ENABLE_MYPYC="1")
    return folder / "site"


def test_the_core_s_tests_pass_on_the_compiled_core(compiled: Path) -> None:
    places = "import radixlab.cache, radixlab.tree; print(radixlab.cache.__file__)"
    options = {"PYTHONPATH": f"{compiled}", "HYPOTHESIS_STORAGE_DIRECTORY": str(compiled)}
    seen = run(sys.executable, "-P", "-c", places, cwd=compiled, **options)
    assert seen.strip().endswith(".so") and str(compiled) in seen
    quiet = ["-q", "-m", "not long", "-p", "no:cacheprovider", "-k", f"not ({' or '.join(CANNOT)})"]
    told = run(sys.executable, "-P", "-m", "pytest", *quiet, *SUITES, cwd=ROOT, **options)
    assert "passed" in told
