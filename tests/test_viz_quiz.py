"""The self-check questions: three for each chapter, one right answer each, all explained."""

from __future__ import annotations

from pathlib import Path

import pytest

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
