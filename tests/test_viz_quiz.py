"""The self-check questions: three for each chapter, one right answer each, all explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, watch
from playwright.sync_api import Browser, Page, expect

from radixlab.errors import InvalidArgument
from radixlab.viz.quiz import QUIZZES, _text, questions, quiz, quiz_html

CHAPTERS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", QUIZZES)
def test_each_quiz_has_three_questions_with_one_right_answer_and_an_explanation(name: str) -> None:
    asked = questions(name)
    assert len(asked) == 3
    for question in asked:
        answers = question["answers"]
        assert [answer["correct"] for answer in answers].count(True) == 1
        assert all(len(answer["feedback"]) > 20 for answer in answers)
    places = {[a["correct"] for a in question["answers"]].index(True) for question in asked}
    assert len(places) > 1, "the right answer always stands at the same place"


def test_every_chapter_but_the_first_page_ends_with_its_quiz() -> None:
    for path in CHAPTERS:
        if path.stem != "00-start":
            assert f'quiz(\\"{path.stem}\\")' in path.read_text(encoding="utf-8")
            assert path.stem in QUIZZES


def test_an_unknown_chapter_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InvalidArgument, match="02-radix-tree"):
        quiz("99-nothing")


def test_without_a_browser_a_quiz_is_text_that_tells_no_answer() -> None:
    text = _text(questions("02-radix-tree"))
    for question in questions("02-radix-tree"):
        assert question["question"] in text
        for each in question["answers"]:
            assert each["answer"] in text and each["feedback"] not in text


# --- in a browser --------------------------------------------------------------------------------

NAMES = ("02-radix-tree", "04-lifecycle")
ASKED = [each for name in NAMES for each in questions(name)]
PHONE, LAPTOP = {"width": 393, "height": 727}, {"width": 1366, "height": 768}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("quiz") / "quiz.html"
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quizzes</title>'
        "<style>:root { color-scheme: light dark }</style><main><h1>Quizzes</h1>"
    )
    path.write_text(head + "".join(map(quiz_html, NAMES)) + "</main>", encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with watch(browser, viewport=LAPTOP) as watched:
        watched.page.goto(address)
        yield watched.page
        watched.assert_clean()


def test_every_answer_is_explained_one_at_a_time_and_announced(page: Page) -> None:
    for asked in ASKED:
        group = page.get_by_role("group", name=asked["question"])
        for each in asked["answers"]:
            group.get_by_text(each["answer"], exact=True).click()
            words = "right" if each["correct"] else "wrong"
            expect(group.get_by_role("status")).to_have_text(f"{words}: {each['feedback']}")
            expect(group.locator("details[open] p")).to_have_text(each["feedback"])
    group.locator("summary").last.click()
    expect(group.get_by_role("status")).to_have_text("")


def test_arrow_keys_go_from_answer_to_answer_and_answer_nothing(page: Page) -> None:
    answers = page.locator("fieldset").first.locator("summary")
    page.keyboard.press("Tab")
    expect(answers.nth(0)).to_be_focused()
    ring = "e => [getComputedStyle(e).outlineStyle, getComputedStyle(e).outlineWidth]"
    assert answers.nth(0).evaluate(ring) == ["solid", "2px"]
    for key, place in [("ArrowDown", 1), ("ArrowRight", 2), ("ArrowDown", 0), ("ArrowUp", 2)]:
        page.keyboard.press(key)
        expect(answers.nth(place)).to_be_focused()
    assert page.locator("details[open]").count() == 0
    for key, place in [("Enter", 2), ("Space", 1)]:
        answers.nth(place).press(key)
        expect(page.locator("details[open] summary")).to_have_text(
            ASKED[0]["answers"][place]["answer"]
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_answered_in_either_theme_it_has_contrast_and_fits(
    scheme: Any, viewport: Any, browser: Browser, address: str
) -> None:
    with watch(browser, viewport=viewport, color_scheme=scheme) as watched:
        watched.page.goto(address)
        watched.assert_accessible()
        ground = "e => getComputedStyle(e).backgroundColor"
        box = watched.page.locator("details").first.evaluate(ground)
        assert box == ("rgb(243, 245, 247)" if scheme == "light" else "rgb(31, 36, 42)")
        for place in (0, 1, 2):
            for group in watched.page.locator("fieldset").all():
                group.locator("summary").nth(place).click()
            watched.assert_accessible()
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_without_javascript_an_answer_still_opens_its_explanation(
    browser: Browser, address: str
) -> None:
    with watch(browser, java_script_enabled=False) as watched:
        watched.page.goto(address)
        first = watched.page.locator("details").first
        first.locator("summary").click()
        expect(first.locator("p")).to_be_visible()
