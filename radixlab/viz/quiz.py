"""Questions to check oneself with, each answer explained (jupyterquiz shows them)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from radixlab.errors import InvalidArgument

FOLDER = Path(__file__).with_name("quizzes")
QUIZZES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names of all quizzes: those of the chapters."""


def questions(name: str) -> list[dict[str, Any]]:
    """The questions of a chapter, as jupyterquiz reads them; `InvalidArgument` for no chapter."""
    if name not in QUIZZES:
        raise InvalidArgument("quiz", name, f"one of {', '.join(QUIZZES)}")
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return loaded


def quiz(name: str) -> None:
    """Show the questions of a chapter; a click on an answer explains it."""
    from jupyterquiz import display_quiz

    display_quiz(questions(name), shuffle_answers=False, max_width=720)
