"""The player without a kernel: saved widget state on a static page, as the site has it.

Whatever the page needs lies beside it: require.js, the widgets' html-manager and anywidget. The
first two come from npm, at the versions of tests/html_manager/package-lock.json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Watched, chromium, watch
from ipywidgets.embed import embed_snippet
from test_viz_browser import check_controls

from radixlab.viz import play

NPM = Path(__file__).parent / "html_manager"
MANAGER = NPM / "node_modules/@jupyter-widgets/html-manager/dist"
ANYWIDGET = Path(sys.prefix) / "share/jupyter/nbextensions/anywidget/index.js"

pytestmark = pytest.mark.long


def fetch_html_manager() -> None:
    if (MANAGER / "embed-amd.js").exists():
        return
    if shutil.which("npm") is None:
        message = "no npm: apt install npm"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    answer = subprocess.run(command, cwd=NPM, capture_output=True, text=True, timeout=600)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    fetch_html_manager()
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(MANAGER, folder / "vendor")
    shutil.copy(NPM / "node_modules/requirejs/require.js", folder / "vendor")
    shutil.copy(ANYWIDGET, folder / "vendor/anywidget.js")
    snippet = embed_snippet(
        [play("chapter")],
        requirejs=False,
        embed_url="vendor/embed-amd.js",
        cors=False,
        drop_defaults=False,
    )
    snippet = snippet.replace("<script ", '<script data-jupyter-widgets-cdn="vendor/" ', 1)
    (folder / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Static</title>'
        '<main><h1>Static</h1><script src="vendor/require.js"></script>'
        '<script>requirejs.config({baseUrl: "vendor"})</script>'
        f"{snippet}</main></html>",
        encoding="utf-8",
    )
    with chromium() as browser, watch(browser, viewport={"width": 1280, "height": 900}) as watched:
        watched.page.goto((folder / "index.html").as_uri())
        watched.page.locator(".rl-player").wait_for()
        yield watched


def test_every_control_works_from_saved_state_without_a_kernel(page: Watched) -> None:
    check_controls(page.page)


def test_axe_finds_no_violation_on_the_static_page(page: Watched) -> None:
    page.assert_accessible()


def test_the_console_is_clean_and_nothing_left_this_machine(page: Watched) -> None:
    theirs = "strict mode: use allowUnionTypes"  # the html-manager's own warning
    page.complaints = [each for each in page.complaints if theirs not in each]
    page.assert_clean()
