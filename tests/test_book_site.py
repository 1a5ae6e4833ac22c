"""The built site in a headless browser: every page, as readers with any device have it."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import publish
import pytest
from chromium import Watched, chromium, watch
from extras import only, read_profile
from playwright.sync_api import Browser, expect
from shell import run
from test_viz_browser import check_controls

ROOT = Path(__file__).resolve().parents[1]
SITE = publish.SITE
WIDTHS = (360, 768, 1440)
REDUCED = os.environ.get("RADIXLAB_LONG") == "small"
DARK = ("index", "02-radix-tree", "05-scheduling-and-eviction", "exercises/02-split", "api/viz")
"""In the dark all pages have the same few colours: in CI these stand for the others."""
MB = 1_000_000

pytestmark = pytest.mark.long


@pytest.fixture(scope="session")
def start() -> Iterator[str]:
    """Build the site (`make book`, with what that installs) and serve it under a sub-path."""
    if shutil.which("npm") is None:
        message = "no npm: apt install npm"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    command = ["make", "-o", "env-book", "book", f"VIRTUAL_ENV={sys.prefix}"]
    run(*command, cwd=ROOT, **only(read_profile("BOOK")))
    with publish.serving() as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def phone(browser: Browser) -> Iterator[Watched]:
    with watch(browser, viewport={"width": 360, "height": 740}, has_touch=True) as watched:
        yield watched


@pytest.fixture
def page(browser: Browser) -> Iterator[Watched]:
    with watch(browser, viewport={"width": 1440, "height": 900}) as watched:
        yield watched


def book_pages() -> list[str]:
    """All pages but those of source code, of which two stand for the rest (one template)."""
    toc = (ROOT / "book/_toc.yml").read_text(encoding="utf-8")
    pages = re.findall(r"(?:file|root): (\S+)", toc)
    return [*pages, "search", "genindex", "404", "_modules/index", "_modules/radixlab/cache"]


def open_page(watched: Watched, address: str) -> None:
    watched.page.goto(address)
    if "embed-amd" in watched.page.content():
        watched.page.locator(".rl-player").first.wait_for()
    watched.page.wait_for_load_state("networkidle")


@cache
def compressed_size(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 6))


def weigh(watched: Watched, address: str) -> int:
    """Bytes that a page and all it loads take, as a server that compresses sends them."""
    sizes: dict[str, int] = {}

    def note(response: object) -> None:
        url = response.url.split("?")[0]  # type: ignore[attr-defined]
        path = SITE / (url.removeprefix(address_root(address)) or "index.html")
        if path.is_file():
            sizes[url] = compressed_size(path)

    watched.page.on("response", note)
    open_page(watched, address)
    return sum(sizes.values())


def address_root(address: str) -> str:
    return re.match(r"http://[^/]+/[^/]+/", address).group()  # type: ignore[union-attr]


def test_the_site_is_fit_to_publish(start: str) -> None:
    assert publish.check() == []


@pytest.mark.parametrize("name", book_pages())
def test_a_page_is_small_clean_accessible_and_fits_every_screen(
    name: str, start: str, page: Watched
) -> None:
    assert weigh(page, f"{start}{name}.html") <= 3 * MB
    page.assert_clean()
    for width in WIDTHS:
        page.page.set_viewport_size({"width": width, "height": 900})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.page.evaluate("document.querySelectorAll('.rl-all').forEach((e) => { e.open = true; })")
    for theme, width in (("light", 1440), ("dark", 1440), ("light", 360)):
        if theme == "dark" and REDUCED and name not in DARK:
            continue
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        page.page.wait_for_timeout(300)  # colours fade
        seen = width == 360 and name != "index"  # the colours; a phone's own buttons are on each
        page.assert_accessible(without=("color-contrast",) if seen else ())


@pytest.mark.parametrize("name", [p for p in book_pages() if p[0] == "0"])
def test_every_figure_has_a_caption_and_a_text_that_says_what_it_shows(
    name: str, start: str, page: Watched
) -> None:
    open_page(page, f"{start}{name}.html")
    for picture in page.page.locator("article .cell_output img").all():
        assert len(picture.get_attribute("alt") or "") > 60
        figure = picture.locator("xpath=ancestor::figure")
        assert len(figure.locator("figcaption").inner_text()) > 30
    assert "Figure size" not in page.page.locator("article").inner_text()


# --- players and quizzes without a kernel --------------------------------------------------------


@pytest.mark.parametrize("name", ["index", "00-start"])
def test_a_player_steps_without_a_kernel(name: str, start: str, page: Watched) -> None:
    open_page(page, f"{start}{name}.html")
    check_controls(page.page)
    page.assert_clean()


def test_every_player_of_the_lifecycle_page_steps(start: str, page: Watched) -> None:
    open_page(page, start + "04-lifecycle.html")
    players = page.page.locator(".rl-player")
    assert players.count() == 4
    for player in players.all():
        stage = player.locator(".rl-stage")
        stage.focus()
        page.page.keyboard.press("End")
        last = player.get_by_label("Jump to step")
        assert last.input_value() == last.get_attribute("max")


def test_a_quiz_answers_and_explains(start: str, page: Watched) -> None:
    open_page(page, start + "02-radix-tree.html")
    page.page.locator("summary", has_text="It may cut an edge and refresh recency").click()
    expect(page.page.locator(".rl-quiz details[open].right p")).to_be_visible()
    page.assert_clean()


def test_a_playground_says_that_it_needs_python(start: str, page: Watched) -> None:
    open_page(page, start + "02-radix-tree.html")
    expect(page.page.get_by_text("A still of the playground")).to_be_visible()
    board = page.page.locator(".cell_output", has=page.page.locator(".rl-playground"))
    expect(board).to_have_count(1)
    expect(board.get_by_role("img").first).to_be_visible()
    page.page.locator(".rl-player").first.wait_for()  # by now the widgets are there
    assert not board.locator("input, button, select, .widget-vbox").count()


# --- on a phone ----------------------------------------------------------------------------------

SCROLLED = """() => [...document.querySelectorAll("main *:not(.rl-words)")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1)
    .filter((e) => /auto|scroll/.test(getComputedStyle(e).overflowX))
    .map((e) => [e.className, e.tabIndex, e.getAttribute("role"), e.getAttribute("aria-label")])"""


@pytest.mark.parametrize("name", ["03-paged-pool", "05-scheduling-and-eviction", "architecture"])
def test_what_scrolls_sideways_has_a_name_and_can_be_reached(
    name: str, start: str, phone: Watched
) -> None:
    open_page(phone, f"{start}{name}.html")
    phone.page.wait_for_timeout(500)
    boxes = phone.page.evaluate(SCROLLED)
    assert boxes
    for classes, place, role, label in boxes:
        assert place == 0 and role == "group" and label, classes


@pytest.mark.parametrize("name", ["02-radix-tree", "05-scheduling-and-eviction"])
def test_charts_and_tables_of_rates_are_legible_on_a_phone(
    name: str, start: str, phone: Watched
) -> None:
    open_page(phone, f"{start}{name}.html")
    charts = phone.page.locator(".rl-chart img").all()
    assert charts
    for chart in charts:
        scale = chart.evaluate("e => e.getBoundingClientRect().width / e.naturalWidth")
        assert scale * 11 * 220 / 72 >= 8  # 11 points at 220 dpi
    for rates in phone.page.locator(".rl-rates").all():
        assert rates.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 12
        assert rates.evaluate("e => e.offsetWidth <= e.parentElement.clientWidth")


def test_printed_lines_without_columns_are_wrapped(start: str, phone: Watched) -> None:
    open_page(phone, start + "05-scheduling-and-eviction.html")
    outputs = phone.page.locator(".cell_output pre").all()
    wrapped = [o for o in outputs if o.evaluate("e => getComputedStyle(e).whiteSpace") != "pre"]
    assert 0 < len(wrapped) < len(outputs)
    for output in wrapped:
        assert not re.search(r"\S {2,}\S", output.inner_text())
        assert output.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_a_drawer_closes_by_choosing_by_escape_and_by_its_button(
    start: str, phone: Watched
) -> None:
    open_page(phone, start + "05-scheduling-and-eviction.html")
    drawer = phone.page.get_by_role("dialog", name="On this page")
    opener = phone.page.get_by_role("button", name="On this page")
    opener.click()
    drawer.get_by_role("link", name="Break each condition once").click()
    expect(drawer).to_be_hidden()
    expect(phone.page.get_by_role("heading", name="Break each condition once")).to_be_in_viewport()
    phone.page.keyboard.press("Tab")  # reading goes on where one has gone
    assert phone.page.evaluate("document.activeElement.closest('#break-each-condition-once')")
    opener.click()
    drawer.get_by_text("On this page").click()  # the focus is nowhere
    phone.page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(opener).to_be_focused()
    opener.click()
    drawer.get_by_role("button", name="Close").click()
    expect(opener).to_be_focused()
    phone.page.get_by_role("button", name="Chapters").click()
    expect(phone.page.get_by_role("dialog", name="Chapters")).to_be_visible()


# --- in the dark, without JavaScript, on a slow line ---------------------------------------------


def test_colours_are_the_systems_until_the_reader_chooses(browser: Browser, start: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with watch(browser, color_scheme="dark") as watched:
        open_page(watched, start)
        assert watched.page.evaluate(ground) == "rgb(18, 18, 18)"
        switch = watched.page.locator(".theme-switch-button")
        expect(switch).to_have_accessible_name("Colours: as the system")
        switch.click()
        expect(switch).to_have_accessible_name("Colours: light")
        expect(switch).to_be_focused()
        watched.page.goto(start + "no/such/page.html")
        assert watched.page.evaluate(ground) == "rgb(255, 255, 255)"


def test_charts_are_no_white_cards_in_the_dark(browser: Browser, start: str) -> None:
    with watch(browser, color_scheme="dark") as watched:
        open_page(watched, start + "02-radix-tree.html")
        chart = watched.page.locator(".rl-chart img").first
        assert "invert" in chart.evaluate("e => getComputedStyle(e).filter")


def test_a_player_is_a_list_of_steps_until_its_script_has_come(start: str, page: Watched) -> None:
    held = []
    page.page.route("**/embed-amd.js", lambda route: held.append(route))
    page.page.goto(start + "04-lifecycle.html", wait_until="domcontentloaded")
    words = page.page.locator(".rl-words")
    expect(words.first).to_contain_text("lock. ")
    painted = "performance.getEntriesByName('first-contentful-paint').length"
    page.page.wait_for_function(painted)
    page.page.get_by_role("button", name="Colours").click()  # the page works meanwhile
    while not held:
        page.page.wait_for_timeout(50)
    held[0].continue_()
    page.page.locator(".rl-player").first.wait_for()
    for each in words.all():
        expect(each).to_be_hidden()


@pytest.mark.parametrize("name", ["index", "02-radix-tree", "04-lifecycle"])
def test_without_javascript_each_player_is_a_list_of_its_steps(
    name: str, browser: Browser, start: str
) -> None:
    with watch(browser, java_script_enabled=False) as watched:
        watched.page.goto(f"{start}{name}.html")
        lists = watched.page.locator(".rl-words")
        assert lists.count() == {"index": 1, "02-radix-tree": 2, "04-lifecycle": 4}[name]
        for each in lists.all():
            expect(each.locator("li").last).to_be_visible()


# --- what the pages say --------------------------------------------------------------------------


def source_of(name: str) -> str:
    return (SITE / f"{name}.html").read_text(encoding="utf-8")


def test_everyday_words_are_no_links_to_the_glossary(start: str) -> None:
    for name in ("teach", "grading", "nbgrader"):
        assert "rl-term" not in source_of(name)
    for name in ("exercises/05-evict", "exercises/08-paged-attention"):
        hints = re.findall("<details.*?</details>", source_of(name), re.DOTALL)
        assert hints and "rl-term" not in "".join(hints)
        assert "rl-term" in source_of(name)
    assert "it is never free:" in source_of("05-scheduling-and-eviction")
    assert "#term-key" not in source_of("05-scheduling-and-eviction")  # there: of a sort


def test_the_first_column_names_the_rows(start: str, page: Watched) -> None:
    open_page(page, start + "05-scheduling-and-eviction.html")
    page.page.get_by_role("rowheader", name="dfs-weight").first.wait_for()
    figure = page.page.get_by_role("figure", name=re.compile("Blocks found by each strategy"))
    rates = figure.get_by_role("table")
    expect(rates.get_by_role("rowheader", name="belady")).to_be_visible()
    expect(rates.get_by_role("columnheader", name="few-shot")).to_be_visible()


# --- by keyboard, on paper, without a network ----------------------------------------------------


def test_everything_on_the_first_page_can_be_reached_by_keyboard(start: str, page: Watched) -> None:
    open_page(page, start)
    reached = set()
    for _ in range(90):
        page.page.keyboard.press("Tab")
        name = "(e => e.getAttribute('aria-label') || e.textContent.trim())"
        reached.add(page.page.evaluate(f"{name}(document.activeElement)"))
    for name in ("Next step", "Play", "Step", "Jump to step", "All 16 steps as text"):
        assert name in reached
    for door in ("Learn", "Teach", "Read the code"):
        assert any(door in each for each in reached), door
    for _ in range(3):
        page.page.keyboard.press("Shift+Tab")
    # The theme rings links in the sidebar by a shadow, all else by an outline.
    ring = "(s => [s.outlineStyle, s.boxShadow])(getComputedStyle(document.activeElement))"
    assert page.page.evaluate(ring) != ["none", "none"]


def test_no_formula_stops_the_tab_key(start: str, page: Watched) -> None:
    open_page(page, start + "05-scheduling-and-eviction.html")
    page.page.locator("mjx-container").first.wait_for()
    assert page.page.locator("mjx-container[tabindex]").count() == 0


def test_the_skip_link_leads_past_the_toolbar(start: str, page: Watched) -> None:
    open_page(page, start + "00-start.html")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.closest('article') !== null")


def test_the_menu_button_and_the_doors_show_the_focus(start: str, page: Watched) -> None:
    open_page(page, start)
    page.page.keyboard.press("Tab")
    ring = "getComputedStyle(document.activeElement.closest('.sd-card, button')).outlineStyle"
    menu = page.page.get_by_role("button", name="Chapters")
    menu.focus()
    assert page.page.evaluate(ring) == "solid"
    menu.press("Enter")
    expect(menu).to_be_focused()  # and the sidebar is folded
    page.page.locator(".sd-card a").first.focus()
    assert page.page.evaluate(ring) == "solid"


def test_paper_shows_the_steps_as_text(start: str, page: Watched) -> None:
    open_page(page, start + "04-lifecycle.html")
    page.page.emulate_media(media="print")
    for player in page.page.locator(".rl-player").all():
        expect(player.locator(".rl-controls")).to_be_hidden()
        expect(player.locator(".rl-all li").last).to_be_visible()
    expect(page.page.locator(".bd-sidebar-primary")).to_be_hidden()


def test_search_finds_evictable_size(start: str, page: Watched) -> None:
    open_page(page, start + "search.html?q=evictable_size")
    results = page.page.locator("ul.search li")
    expect(results.first).to_be_visible()
    assert results.count() >= 3
    page.assert_clean()


def test_search_counts_one_page_and_quotes_its_sentence(start: str, page: Watched) -> None:
    open_page(page, start + "search.html?q=starvation")
    expect(page.page.locator(".search-summary")).to_have_text(re.compile(r"^Pages found: \d+\.$"))
    quoted = page.page.locator("ul.search li", has_text="Who goes first").locator(".context")
    expect(quoted).not_to_contain_text("Eight at a time")


# --- size and time -------------------------------------------------------------------------------


def test_the_first_page_is_small_and_soon_usable(start: str, page: Watched) -> None:
    size = weigh(page, start)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        page.page.goto(start, wait_until="commit")
        page.page.get_by_role("button", name="Next step").click()
        expect(page.page.get_by_label("Jump to step")).to_have_value("2")
        times.append(time.perf_counter() - begin)
    print(f"{size / 1000:.0f} kB, usable after {min(times):.2f} s")
    assert size <= MB
    assert min(times) <= 2


# --- what keeps a site from being built ----------------------------------------------------------


NOTEBOOK_ONLY = """
+++ {"tags": ["remove-cell"]}

Said in a notebook.

```{code-cell} ipython3
:tags: [remove-cell]

print("done in a notebook")
```

Said on both.
"""


@pytest.mark.parametrize("cell", ["1 / 0", "print('well')"])
def test_a_failing_cell_fails_the_build_and_colab_is_offered_with_an_address(
    cell: str, tmp_path: Path, start: str
) -> None:
    book = tmp_path / "book"
    book.mkdir()
    for name in ("_config.yml", "_ext", "_templates", "assets", "npm", "glossary.md"):
        (book / name).symlink_to(ROOT / "book" / name)
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    (tmp_path / "radixlab").symlink_to(ROOT / "radixlab")
    (book / "_toc.yml").write_text(
        "format: jb-book\nroot: 00-start\nchapters: [{file: glossary}]\n", encoding="utf-8"
    )
    head = (ROOT / "book/00-start.md").read_text(encoding="utf-8").split("\n# ")[0]
    page = f"{head}\n# Title\n\n```{{code-cell}} ipython3\n{cell}\n```\n{NOTEBOOK_ONLY}"
    (book / "00-start.md").write_text(page, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", "-W", "-n"]
    environment = os.environ | {"RADIXLAB_REPOSITORY": "https://github.com/some/radixlab"}
    answer = subprocess.run(
        [*command, "--keep-going", str(book)], capture_output=True, text=True, env=environment
    )
    if cell == "1 / 0":
        assert answer.returncode != 0
        return
    assert answer.returncode == 0, answer.stdout + answer.stderr
    html = (book / "_build/html/00-start.html").read_text(encoding="utf-8")
    assert "colab.research.google.com/github/some/radixlab/blob/main/notebooks/00-start" in html
    assert "in a notebook" not in html and "on both" in html
    assert "colab" not in (SITE / "00-start.html").read_text(encoding="utf-8")
    assert "https://some.github.io/radixlab/" in (book / "_build/html/sitemap.xml").read_text()
