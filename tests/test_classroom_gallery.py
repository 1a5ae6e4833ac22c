"""The gallery: many submissions to one sheet, graded by one command, and nothing else happens."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import html
import json
import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from radixlab.classroom.build import student_notebook
from radixlab.classroom.collect import find_submissions
from radixlab.classroom.grade import AnswerKey
from radixlab.classroom.results import SubmissionResult
from radixlab.classroom.sheet import Sheet, load_sheet
from radixlab.classroom.submission import MOST_BYTES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")

GALLERY = Path(__file__).parent / "gallery"
SHEET = "02-split"
SEED = "the seed that only the teacher knows"
SECRET = "what no student should read"
TRAP = "radixlab-gallery-"
"""The attacks look for what is called so, in /tmp and in the home folder, and for nothing else."""

with open(GALLERY / "expected.csv", encoding="utf-8", newline="") as table:
    EXPECTED = {row["student"]: row for row in csv.DictReader(table)}


@dataclass(frozen=True)
class Graded:
    """What a command left in OUT, and what it found and left in the course's folder."""

    out: Path
    before: dict[str, str]
    after: dict[str, str]

    def result(self, student: str) -> SubmissionResult:
        return SubmissionResult.load(self.out / "results" / f"{student}.json")

    def feedback(self, student: str) -> str:
        """The page as it is read: without tags."""
        page = (self.out / "feedback" / f"{student}.html").read_text(encoding="utf-8")
        return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())

    def everything(self) -> dict[str, str]:
        files = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.out)): path.read_text("utf-8") for path in files}


def grade(submissions: Path, out: Path, seed: str = SEED, *options: str) -> None:
    """The command, as a teacher gives it."""
    command = [sys.executable, "-m", "radixlab", "classroom", "grade", SHEET]
    environment = os.environ | {"RADIXLAB_CLASSROOM_SEED": seed}
    done = subprocess.run(
        [*command, str(submissions), str(out), "--workers", "2", *options],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def fingerprint(*places: Path) -> dict[str, str]:
    """All that is there: names, rights, times, contents."""
    return {str(file): _look(file) for place in places for file in (place, *place.rglob("*"))}


def _look(file: Path) -> str:
    status, content = file.lstat(), b""
    if file.is_symlink():
        content = os.readlink(file).encode()
    elif file.is_file():
        content = file.read_bytes()
    return f"{status.st_mode:o} {status.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"


@pytest.fixture(scope="module")
def graded(sheet: Sheet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graded]:
    """The gallery and a huge notebook, graded in a course that has something to lose."""
    out = tmp_path_factory.mktemp("out")
    with trap(TRAP + secrets.token_hex(4)) as (course, canary):
        submissions = course / "submissions"
        shutil.copytree(GALLERY, submissions, symlinks=True)
        notebook = student_notebook(sheet)
        notebook.metadata["picture"] = "x" * MOST_BYTES
        (submissions / "huge.ipynb").write_text(json.dumps(notebook))
        (course / f"{SHEET}.md").write_text(sheet.text)
        before = fingerprint(course, canary)
        grade(submissions, out)
        yield Graded(out, before, fingerprint(course, canary))


@contextlib.contextmanager
def trap(name: str) -> Iterator[tuple[Path, Path]]:
    """A course's folder in /tmp and a file in the home folder, both with a secret."""
    course, canary = Path("/tmp", name), Path(pwd.getpwuid(os.getuid()).pw_dir, f".{name}")
    try:
        course.mkdir()
        for file in (course / "seed.txt", canary):
            file.write_text(SECRET)
        yield course, canary
    finally:
        shutil.rmtree(course, ignore_errors=True)
        canary.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return load_sheet(SHEET)


# --- who gets what -------------------------------------------------------------------------------


def test_all_that_is_there_is_expected():
    there = {each.student: each.path for each in find_submissions(GALLERY, SHEET)}
    assert sorted(there) == sorted(EXPECTED) and len(there) >= 28
    assert all(path.read_text().startswith("# ") for path in GALLERY.glob("*.py"))


@pytest.mark.parametrize("student", EXPECTED)
def test_each_gets_what_it_earns_and_is_told_why(student, graded):
    row, result = EXPECTED[student], graded.result(student)
    earned = {g.name: g.points for e in result.exercises for g in e.groups}
    groups = {name: float(row[name]) for name in ("example", "links", "random")}
    assert earned == (groups if result.exercises else {})
    assert result.points == float(row["total"]) == sum(groups.values())
    assert row["feedback"] in graded.feedback(student)


def test_the_table_has_the_same_totals(graded):
    with open(graded.out / "grades.csv", encoding="utf-8-sig", newline="") as table:
        totals = {row["student"]: float(row["total"]) for row in csv.DictReader(table)}
    assert totals == {s: float(row["total"]) for s, row in EXPECTED.items()} | {"huge": 0}


def test_a_huge_notebook_is_not_read(graded):
    assert "The file has more than 20000000 bytes" in graded.feedback("huge")


def test_who_is_right_is_not_told_that_something_is_wrong(graded):
    right = [student for student in EXPECTED if student.startswith("right-")]
    pages = [graded.feedback(student) for student in right]
    assert len(right) >= 6 and not any(re.search("stops with|What to do", page) for page in pages)


def test_each_mistake_that_the_sheet_knows_is_named_and_no_other(graded, sheet):
    wrong = [student for student in EXPECTED if student.startswith("wrong-")]
    named = {graded.result(student).exercises[0].mistake for student in wrong}
    assert named == {w.message for w in sheet.exercises["split_at"].wrong} | {""}
    assert not graded.result("wrong-slots-stay").exercises[0].mistake


# --- what else happens: nothing ------------------------------------------------------------------


def test_nothing_changes_outside_the_sandbox(graded):
    assert graded.before == graded.after
    assert len(graded.before) > len(EXPECTED) + 5


def test_no_secret_is_told(graded, sheet):
    solution = sheet.exercises["split_at"].solution.splitlines()[-4].strip()
    assert "node.key[position:]" in solution
    for name, text in graded.everything().items():
        assert not any(secret in text for secret in (SEED, SECRET, solution)), name


def test_no_hidden_input_is_told(graded, sheet):
    cases = AnswerKey.make(sheet, SEED).cases["split_at"]
    hidden = [slot_runs(str(case.args)) for case in cases if not case.visible]
    assert len(hidden) == 14 and all(hidden)
    told = {name: slot_runs(text) for name, text in graded.everything().items()}
    assert not [name for name, runs in told.items() for case in hidden if runs & case]


def slot_runs(text: str) -> set[tuple[str, ...]]:
    """Three numbers of three digits in a row, however they are written."""
    numbers = re.findall(r"\d+", text)
    runs = zip(numbers, numbers[1:], numbers[2:], strict=False)
    return {run for run in runs if all(len(number) == 3 for number in run)}


def test_what_failing_cells_could_tell_is_not_listened_to(graded):
    assert graded.result("hostile-leaks-by-cells").cells == ()


def test_no_page_runs_anything(graded):
    pages = {n: text for n, text in graded.everything().items() if n.endswith(".html")}
    assert len(pages) == len(EXPECTED) + 2
    for name, page in pages.items():
        assert not Scripts(page).found, name
    assert "<script>alert(1)</script>" in graded.feedback("hostile-html")
    assert Scripts("<svg/onload=alert(3)>").found == ["onload"]


class Scripts(HTMLParser):
    """Finds what a browser would run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        names = [tag, *(name for name, _ in attrs)]
        self.found += [name for name in names if name == "script" or name.startswith("on")]


def test_without_the_sandbox_the_attacks_work(tmp_path):
    out, submissions = tmp_path / "out", tmp_path / "submissions"
    submissions.mkdir()
    name = f"radixlab-control-{secrets.token_hex(4)}-"

    def hand_in(attack: str, own: str) -> None:
        text = (GALLERY / f"{attack}.py").read_text().replace(TRAP, own)
        (submissions / f"{attack}.py").write_text(text)

    with trap(f"{name}1") as (course, canary), trap(f"{name}2"):
        hand_in("hostile-deletes", f"{name}1")
        hand_in("hostile-reads", f"{name}2")
        hand_in("hostile-seed", TRAP)
        grade(submissions, out, SEED, "--unsafe")
        assert not course.exists() and canary.read_text() == "overwritten"
    assert SECRET in (out / "results" / "hostile-reads.json").read_text()
    assert SEED in (out / "results" / "hostile-seed.json").read_text()


# --- again ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_same_seed_gives_the_same_bytes(graded, tmp_path):
    grade(GALLERY, tmp_path)
    again = {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    first = {path.name: path.read_bytes() for path in (graded.out / "results").iterdir()}
    assert first.pop("huge.json") and again == first


@pytest.mark.long
def test_another_seed_gives_other_cases_and_the_same_points(graded, tmp_path):
    grade(GALLERY, tmp_path, "another seed")
    for student in EXPECTED:
        other = SubmissionResult.load(tmp_path / "results" / f"{student}.json")
        assert other.points == graded.result(student).points
        assert other.key != graded.result(student).key
