"""The self-check questions: three for each chapter, one right answer each, all explained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chromium import chromium, watch
from playwright.sync_api import expect

from radixlab.errors import InvalidArgument
from radixlab.viz.quiz import QUIZZES, questions, quiz

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


# --- in a browser --------------------------------------------------------------------------------

OUTPUTS = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
InteractiveShell.instance()
from radixlab.viz import quiz
with capture_output() as captured:
    quiz("02-radix-tree")
    quiz("04-lifecycle")
for output in captured.outputs:
    script = output.data.get("application/javascript")
    print(f"<script>{script}</script>" if script else output.data["text/html"])
"""
LABS = '<script>window.MathJax = { version: "3.2.2" }</script>'
"""What JupyterLab leaves of MathJax on a page where it has set a formula."""


@pytest.mark.parametrize("mathjax", [LABS, ""], ids=["with-mathjax", "without"])
def test_a_quiz_asks_no_other_host_and_every_answer_is_explained(
    mathjax: str, tmp_path: Path
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", OUTPUTS], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quizzes</title>'
    (tmp_path / "quiz.html").write_text(head + mathjax + answer.stdout, encoding="utf-8")
    asked = questions("02-radix-tree") + questions("04-lifecycle")
    with chromium() as browser, watch(browser) as watched:
        page = watched.page
        page.goto((tmp_path / "quiz.html").as_uri())
        expect(page.locator(".Quiz")).to_have_count(len(asked))
        page.wait_for_timeout(800)  # half a second on, it would look for MathJax
        for shown, question in zip(page.locator(".Quiz").all(), asked, strict=True):
            for button, each in zip(shown.locator("label").all(), question["answers"], strict=True):
                button.click()
                colour = "correct" if each["correct"] else "incorrect"
                expect(shown.locator(f".Feedback.{colour}")).to_have_text(each["feedback"])
        watched.assert_clean()
