"""The player and the playground in real JupyterLab, with a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from chromium import Watched, chromium, watch
from lab import THEIRS, serve_lab
from playwright.sync_api import Page, expect
from test_viz_browser import check_clicks, check_controls

ROOT = Path(__file__).parents[1]
CELLS = [
    "import radixlab\nradixlab.play('chapter')",
    "playground = radixlab.playground(8)\nplayground",
    "from radixlab.scenarios import chapter_scenario\nchapter_scenario().manager",
    "from radixlab.viz import quiz\nquiz('04-lifecycle')",
]
FORMULA = "JupyterLab loads its MathJax for $x^2$."
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("lab")
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(FORMULA),
            *map(nbformat.v4.new_code_cell, CELLS),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "player.ipynb")
    with serve_lab(folder, tmp_path_factory.mktemp("config")) as address:
        yield address


@pytest.fixture(scope="module")
def lab(server: str) -> Iterator[Watched]:
    with chromium() as browser, watch(browser, viewport={"width": 1400, "height": 1000}) as watched:
        page = watched.page
        page.set_default_timeout(60_000)
        page.goto(f"{server}/lab/tree/player.ipynb?reset")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.locator(".rl-player").wait_for()
        page.locator(".rl-playground").wait_for()
        yield watched


def test_every_control_works_with_a_kernel(lab: Watched) -> None:
    check_controls(lab.page)


def test_keys_step_the_player_and_leave_the_notebook_alone(lab: Watched) -> None:
    page = lab.page
    page.locator(".rl-player .rl-stage").focus()
    active = "document.querySelector('.jp-mod-active').outerHTML.length"
    before = page.evaluate(active), page.locator(".jp-Cell").count()
    for key in ("ArrowDown", "ArrowDown", "End", "Home", "b", "a", "x"):
        page.keyboard.press(key)
    assert (page.evaluate(active), page.locator(".jp-Cell").count()) == before


def test_a_click_on_plain_text_takes_the_keys_from_the_notebook(lab: Watched) -> None:
    page = lab.page
    page.locator(".rl-player").evaluate("e => e.scrollIntoView({ block: 'center' })")
    check_clicks(page)


def test_the_player_follows_jupyterlabs_theme(lab: Watched) -> None:
    page: Page = lab.page
    ground = "e => getComputedStyle(e).backgroundColor"
    assert page.locator(".rl-player").evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text="Theme").first.hover()
    page.locator(".lm-Menu-itemLabel", has_text="JupyterLab Dark").first.click()
    page.wait_for_selector("[data-jp-theme-light=false]", state="attached")
    assert page.locator(".rl-player").evaluate(ground) == "rgb(20, 23, 27)"


def test_axe_finds_no_violation_in_the_player(lab: Watched) -> None:
    lab.assert_accessible(".rl-player")


def test_the_playground_shows_what_its_buttons_do(lab: Watched) -> None:
    page = lab.page
    page.locator(".jupyter-button", has_text="Insert").click()
    page.locator(".rl-playground text", has_text="‘mat’").wait_for()
    page.locator(".jupyter-button", has_text="Unlock").click()
    page.get_by_text("Refused.", exact=True).wait_for()
    page.locator(".jupyter-button", has_text="Undo").click()
    page.locator(".rl-playground text", has_text="‘mat’").wait_for(state="detached")


@pytest.mark.parametrize(("width", "tallest"), [(930, 120), (844, 120), (320, 330)])
def test_the_playgrounds_controls_leave_room_for_its_picture(
    lab: Watched, width: int, tallest: int
) -> None:
    board = lab.page.locator(".widget-vbox:has(.rl-playground)")
    board.evaluate(f"e => e.style.width = '{width}px'")
    top, picture = board.bounding_box(), board.locator(".rl-playground").bounding_box()
    assert picture["y"] - top["y"] <= tallest
    assert board.evaluate("e => e.scrollWidth") <= width
    for control in board.locator("button, input, select").all():
        box = control.bounding_box()
        assert min(box["width"], box["height"]) >= 24
        assert box["x"] + box["width"] <= top["x"] + width
    lab.assert_accessible(".rl-playground")


def test_a_manager_shows_itself_as_a_picture(lab: Watched) -> None:
    figure = lab.page.locator(".jp-OutputArea-output .rl-figure svg.rl-dot")
    assert figure.count() == 1 and figure.is_visible()


def test_a_quiz_explains_each_answer(lab: Watched) -> None:
    page = lab.page
    groups = page.locator(".rl-quiz fieldset")
    expect(groups).to_have_count(3)
    cells = page.locator(".jp-Cell").count()
    for group in groups.all():
        group.locator("summary").first.focus()
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        expect(group.get_by_role("status")).not_to_be_empty()
        expect(group.locator("summary").last).to_be_focused()
    assert page.locator(".jp-Cell").count() == cells
    lab.assert_accessible(".rl-quiz")


def test_the_console_is_clean_and_nothing_left_this_machine(lab: Watched) -> None:
    assert lab.strangers == []
    assert [each for each in lab.complaints if not THEIRS.search(each)] == []


def test_without_its_kernel_the_playground_says_so(lab: Watched) -> None:
    page = lab.page
    gone = page.get_by_text("The kernel has gone")
    expect(gone).to_be_hidden()
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text="Restart Kernel…").click()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    expect(gone).to_be_visible(timeout=30_000)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    expect(page.locator(".rl-message[role=status]")).to_be_hidden()
