"""Questions to check oneself with, each answer explained.

Plain HTML: an answer is a `details` that opens, so that a page without JavaScript, or a notebook
that nobody trusts yet, still has all of it. The script adds arrow keys and tells screen readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from radixlab.errors import InvalidArgument
from radixlab.viz.theme import read_static, style_sheet
from radixlab.viz.words import escape

FOLDER = Path(__file__).with_name("quizzes")
QUIZZES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names of all quizzes: those of the chapters."""

KEYS = 'data-lm-suppress-shortcuts="true"'
"""JupyterLab leaves the keys to an answer that has the focus."""


def questions(name: str) -> list[dict[str, Any]]:
    """The questions of a chapter with their answers; `InvalidArgument` for no chapter."""
    if name not in QUIZZES:
        raise InvalidArgument("quiz", name, f"one of {', '.join(QUIZZES)}")
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return loaded


def quiz(name: str) -> None:
    """Show the questions of a chapter; whoever opens an answer reads why it is right or wrong."""
    from IPython.display import publish_display_data

    asked = questions(name)
    publish: Any = publish_display_data  # IPython publishes no types
    publish({"text/plain": _text(asked), "text/html": quiz_html(name)})


def quiz_html(name: str) -> str:
    """The questions of a chapter as HTML that needs nothing else."""
    style = f"<style>{style_sheet()}\n{read_static('quiz.css')}</style>"
    asked = (_ask(f"{name}-{i}", each) for i, each in enumerate(questions(name), 1))
    script = f"<script>{read_static('quiz.js')}</script>"
    return f'<div class="radixlab rl-quiz">{style}{"".join(asked)}{script}</div>'


def _ask(group: str, question: dict[str, Any]) -> str:
    """One question: of the answers that share a name, one is open at a time."""
    answers = "".join(
        f'<details name="{group}" class="{"right" if each["correct"] else "wrong"}">'
        f"<summary {KEYS}>{escape(each['answer'])}</summary>"
        f"<p>{escape(each['feedback'])}</p></details>"
        for each in question["answers"]
    )
    return (
        f"<fieldset><legend>{escape(question['question'])}</legend>{answers}"
        '<p class="rl-live" role="status"></p></fieldset>'
    )


def _text(asked: list[dict[str, Any]]) -> str:
    """The questions and their answers, without telling which is right."""
    lines = []
    for number, question in enumerate(asked, 1):
        lines.append(f"{number}. {question['question']}")
        lines += [f"   - {each['answer']}" for each in question["answers"]]
    return "\n".join(lines)
