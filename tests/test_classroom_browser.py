"""A sheet as a student has it: in real JupyterLab with a kernel, and as a page of the site."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from chromium import Watched, chromium, watch
from lab import THEIRS, serve_lab
from playwright.sync_api import Browser, Locator, expect
from test_classroom_build import ours, secret_lines

from radixlab.classroom.build import notebook_text, student_notebook, written_in
from radixlab.classroom.checkresult import VISIBLE_ONLY
from radixlab.classroom.release import write_student_files

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
SPLIT, ATTENTION = "02-split", "08-paged-attention"
PATIENCE = 120_000
"""Milliseconds that a kernel on a busy machine may take."""
FITS = "e => e.scrollWidth <= e.clientWidth"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


# --- in JupyterLab -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make lab` makes of two sheets."""
    folder = tmp_path_factory.mktemp("sheets")
    for name in (SPLIT, ATTENTION):
        write_student_files(ours(name), folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_lab(folder, tmp_path_factory.mktemp("config")) as address:
        yield address


class Lab:
    """A notebook that is open in JupyterLab."""

    def __init__(self, watched: Watched, address: str, name: str) -> None:
        self.watched, self.page = watched, watched.page
        self.page.set_default_timeout(PATIENCE)
        self.page.goto(f"{address}/lab/tree/{name}.ipynb?reset")
        self.page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()

    def menu(self, name: str, entry: str) -> None:
        self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).first.click()

    def cell(self, text: str) -> Locator:
        """The first code cell whose source has this text."""
        return self.page.locator(".jp-CodeCell", has=self.page.locator(f"text={text}")).first

    def write(self, cell: Locator, code: str) -> None:
        """Put code in the place of a cell's source, and run it."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Shift+Enter")

    def check(self, exercise: str) -> Locator:
        """Run the check cell; what it shows."""
        cell = self.cell(f'check("{exercise}")')
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        done = re.compile(r"\[\d+\]")
        expect(cell.locator(".jp-InputPrompt")).to_have_text(done, timeout=PATIENCE)
        return cell.locator(".rl-check")


@pytest.fixture(scope="module")
def lab(server: str, browser: Browser) -> Iterator[Lab]:
    with watch(browser, viewport={"width": 1400, "height": 1000}) as watched:
        lab = Lab(watched, server, SPLIT)
        lab.menu("Run", "Run All Cells")
        watched.page.locator(".rl-check").wait_for()
        yield lab


def answer(lab: Lab) -> Locator:
    return lab.cell("def split_at")


def split_at(number: int | None = None) -> str:
    """The solution of split_at, or one of its known mistakes."""
    exercise = ours(SPLIT).exercises["split_at"]
    return exercise.solution if number is None else exercise.wrong[number].source


def test_a_fresh_sheet_runs_from_top_to_bottom_and_waits_for_code(lab: Lab) -> None:
    expect(lab.page.locator(".rl-check")).to_contain_text("split_at: not written yet")
    assert lab.page.locator('.jp-OutputArea-output[data-mime-type*="stderr"]').count() == 0
    assert lab.page.locator(".jp-RenderedHTMLCommon details").count() == 3, "the hints"


def test_hints_open_by_keyboard(lab: Lab) -> None:
    hint = lab.page.locator("details", has_text="Hint 1 of 3 for split_at")
    assert not hint.evaluate("e => e.open")
    hint.locator("summary").focus()
    lab.page.keyboard.press("Enter")
    assert hint.evaluate("e => e.open")
    expect(hint.locator("p").first).to_be_visible()


def test_a_mistake_is_shown_as_two_trees_and_named(lab: Lab) -> None:
    known = ours(SPLIT).exercises["split_at"].wrong
    number = next(i for i, wrong in enumerate(known) if "children went to" in wrong.message)
    lab.write(answer(lab), split_at(number))
    shown = lab.check("split_at")
    expect(shown).to_contain_text("split_at fails in 1 of 3 visible cases")
    expect(shown).to_contain_text(known[number].message)
    expect(shown).to_contain_text("hangs below node [101, 11], expected below node [12]")
    expect(shown).to_contain_text(VISIBLE_ONLY)
    assert shown.locator("figure svg").count() == 2
    left, right = (box.bounding_box() for box in shown.locator("figure").all())
    assert left and right and right["x"] > left["x"] + left["width"] - 1


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_the_pictures_follow_the_theme_and_axe_finds_nothing(lab: Lab, theme: str) -> None:
    lab.page.get_by_role("menuitem", name="Settings", exact=True).click()
    lab.page.locator(".lm-Menu-itemLabel", has_text="Theme").first.hover()
    lab.page.locator(".lm-Menu-itemLabel", has_text=f"JupyterLab {theme}").first.click()
    light = str(theme == "Light").lower()
    lab.page.wait_for_selector(f"[data-jp-theme-light={light}]", state="attached")
    ground = lab.page.locator(".rl-check").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == {"Dark": "rgb(20, 23, 27)", "Light": "rgb(255, 255, 255)"}[theme]
    lab.watched.assert_accessible(".rl-check")


def test_on_a_narrow_screen_the_trees_stand_one_above_the_other(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 400, "height": 900})
    shown = lab.page.locator(".rl-check")
    shown.scroll_into_view_if_needed()
    shown.evaluate("e => { e.style.width = '320px'; }")
    first, second = (box.bounding_box() for box in shown.locator("figure").all())
    assert first and second and second["y"] > first["y"] + first["height"] - 1
    assert shown.evaluate(FITS)
    shown.evaluate("e => { e.style.width = ''; }")
    lab.page.set_viewport_size({"width": 1400, "height": 1000})


ENDLESS = """def split_at(node, position):
    while True:
        try:
            1 / 0
        except BaseException:
            pass"""


def test_an_endless_loop_is_reported_and_the_kernel_goes_on(lab: Lab) -> None:
    lab.write(answer(lab), ENDLESS)
    expect(lab.check("split_at")).to_contain_text("look for a loop without end")
    lab.write(answer(lab), split_at())
    shown = lab.check("split_at")
    expect(shown).to_contain_text("split_at passes: 3 visible cases, all right.")
    expect(shown.locator("progress")).to_have_attribute("value", "1")


def test_an_exception_names_the_students_own_line(lab: Lab) -> None:
    lab.write(answer(lab), "def split_at(node, position):\n    return node.keys[position]")
    shown = lab.check("split_at")
    expect(shown).to_contain_text("It raised AttributeError: 'Node' object has no attribute 'keys'")
    expect(shown).to_contain_text("split_at, line 2: return node.keys[position]")


def test_work_is_saved_in_the_notebook_and_nowhere_else(lab: Lab, folder: Path) -> None:
    sheet = (BOOK / "exercises" / f"{SPLIT}.md").read_bytes()
    assert not written_in(folder / f"{SPLIT}.ipynb")
    before = sorted(p.name for p in folder.iterdir() if p.name != ".ipynb_checkpoints")
    lab.page.keyboard.press("Control+S")
    lab.page.locator(".jp-NotebookPanel-toolbar").wait_for()
    expect(lab.page.locator(".lm-TabBar-tab.jp-mod-current.jp-mod-dirty")).to_have_count(0)
    assert written_in(folder / f"{SPLIT}.ipynb")
    cells = nbformat.read(folder / f"{SPLIT}.ipynb", as_version=4).cells
    assert any("node.keys[position]" in cell.source for cell in cells)
    after = sorted(p.name for p in folder.iterdir() if p.name != ".ipynb_checkpoints")
    assert after == before
    assert (BOOK / "exercises" / f"{SPLIT}.md").read_bytes() == sheet


def test_jupyterlabs_console_is_clean_and_nothing_left_this_machine(lab: Lab) -> None:
    assert lab.watched.strangers == []
    assert [each for each in lab.watched.complaints if not THEIRS.search(each)] == []


def test_a_sheet_that_uses_torch_is_checked_in_forks_of_a_kernel_with_threads(
    server: str, browser: Browser
) -> None:
    exercises = ours(ATTENTION).exercises
    with watch(browser, viewport={"width": 1400, "height": 1000}) as watched:
        lab = Lab(watched, server, ATTENTION)
        lab.menu("Run", "Run All Cells")
        expect(lab.page.locator(".rl-check")).to_have_count(len(exercises), timeout=PATIENCE)
        for number, (name, exercise) in enumerate(exercises.items(), 1):
            lab.write(lab.cell(f"def {name}"), exercise.solution)
            shown = lab.check(name)
            expect(shown).to_contain_text(f"{name} passes")
            expect(shown.locator("progress")).to_have_attribute("value", str(number))


# --- on the site ---------------------------------------------------------------------------------


def build_site(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A small site with the page on exercises and one sheet."""
    if shutil.which("npm") is None:
        message = "no npm: apt install npm"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    if not (BOOK / "npm/node_modules").exists():
        subprocess.run(["make", "book/npm/node_modules/.package-lock.json"], cwd=ROOT, check=True)
    book = folder / "book"
    (book / "exercises").mkdir(parents=True)
    for name in ("_config.yml", "_ext", "_templates", "assets", "npm", "glossary.md"):
        (book / name).symlink_to(BOOK / name)
    for name in ("notebooks", "radixlab"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("index", SPLIT):
        shutil.copy(BOOK / "exercises" / f"{name}.md", book / "exercises")
    (book / "_toc.yml").write_text(
        f"format: jb-book\nroot: exercises/index\n"
        f"chapters: [{{file: glossary}}, {{file: exercises/{SPLIT}}}]\n"
    )
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", "-W", "-n"]
    return subprocess.run(
        [*command, "--keep-going", str(book)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    answer = build_site(folder)
    assert answer.returncode == 0, (answer.stdout + answer.stderr)[-6000:]
    return folder / "book/_build"


@pytest.fixture
def sheet_page(site: Path, browser: Browser) -> Iterator[Watched]:
    with watch(browser, viewport={"width": 1300, "height": 900}) as watched:
        watched.page.goto((site / f"html/exercises/{SPLIT}.html").as_uri())
        watched.page.wait_for_load_state("networkidle")
        yield watched


def test_no_line_of_the_teachers_is_in_anything_that_was_built(site: Path) -> None:
    secrets = {line for line in secret_lines(ours(SPLIT)) if len(line) > 20}
    files = [p for p in site.rglob("*") if p.is_file() and p.suffix not in (".woff2", ".png")]
    assert len([p for p in files if SPLIT in p.name]) >= 3, "page, download, executed notebook"
    assert any(p.name == "searchindex.js" for p in files)
    for path in files:
        text = path.read_bytes().decode("utf-8", "replace")
        text = re.sub(r"<[^>]+>", "", text).replace("&quot;", '"').replace("&#39;", "'")
        leaked = [line for line in secrets if line in text or json.dumps(line)[1:-1] in text]
        assert not leaked, (path, leaked)


def test_the_page_offers_the_students_notebook(sheet_page: Watched, site: Path) -> None:
    link = sheet_page.page.get_by_role("link", name="Download this sheet as a notebook")
    path = (site / "html/exercises" / (link.get_attribute("href") or "")).resolve()
    assert path.read_text(encoding="utf-8") == notebook_text(student_notebook(ours(SPLIT)))


def test_the_pages_pictures_are_drawn_and_its_checks_are_not_run(sheet_page: Watched) -> None:
    article = sheet_page.page.locator("article.bd-article")
    assert article.locator(".cell_output svg").count() >= 3
    expect(article).to_contain_text('check("split_at")')
    assert article.locator(".rl-check").count() == 0
    expect(article).to_contain_text('raise NotImplementedError("write split_at")')


def test_a_pages_hints_are_folded_and_open_by_keyboard(sheet_page: Watched) -> None:
    page = sheet_page.page
    hints = page.locator("details.sd-dropdown")
    assert hints.count() == 3
    assert not any(hint.evaluate("e => e.open") for hint in hints.all())
    reached = ""
    for _ in range(120):
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.textContent.trim()")
        if reached.startswith("Hint 1 of 3"):
            break
    assert reached.startswith("Hint 1 of 3")
    page.keyboard.press("Enter")
    assert hints.first.evaluate("e => e.open")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1300])
def test_the_page_is_accessible_and_fits(sheet_page: Watched, theme: str, width: int) -> None:
    page = sheet_page.page
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    page.wait_for_timeout(300)  # colours fade
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sheet_page.assert_accessible()


def test_the_list_of_sheets_has_their_points(site: Path) -> None:
    page = (site / "html/exercises/index.html").read_text(encoding="utf-8")
    (row,) = [row for row in page.split("<tr") if f'href="{SPLIT}.html"' in row and "</tr>" in row]
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in cells]
    assert cells == ["Cut an edge", "split_at", f"{ours(SPLIT).total:g}"]


def test_a_private_build_shows_solutions_and_one_to_be_published_refuses(tmp_path: Path) -> None:
    private = build_site(tmp_path / "private", RADIXLAB_SOLUTIONS="1")
    assert private.returncode == 0, (private.stdout + private.stderr)[-6000:]
    page = tmp_path / f"private/book/_build/html/exercises/{SPLIT}.html"
    assert "Solution of split_at" in page.read_text(encoding="utf-8")
    public = {"RADIXLAB_SOLUTIONS": "1", "RADIXLAB_REPOSITORY": "https://github.com/some/radixlab"}
    refused = build_site(tmp_path / "public", **public)
    assert refused.returncode != 0
    assert "RADIXLAB_SOLUTIONS is for a private build" in refused.stdout + refused.stderr
