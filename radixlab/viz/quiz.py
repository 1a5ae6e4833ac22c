"""Questions to check oneself with, each answer explained (jupyterquiz shows them)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from radixlab.errors import InvalidArgument

FOLDER = Path(__file__).with_name("quizzes")
QUIZZES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names of all quizzes: those of the chapters."""


# The house palette (Okabe-Ito): each pair of text and background has a contrast above 4.5.
COLOURS = {
    "--jq-multiple-choice-bg": "#005a8c",
    "--jq-mc-button-bg": "#f4f6f8",
    "--jq-mc-button-border": "#8c959f",
    "--jq-mc-button-inset-shadow": "#d0d7de",
    "--jq-incorrect-color": "#a04a00",
    "--jq-correct-color": "#00674c",
    "--jq-text-color": "#ffffff",
    "--jq-mc-button-color": "#1f2328",
}


def questions(name: str) -> list[dict[str, Any]]:
    """The questions of a chapter, as jupyterquiz reads them; `InvalidArgument` for no chapter."""
    if name not in QUIZZES:
        raise InvalidArgument("quiz", name, f"one of {', '.join(QUIZZES)}")
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return loaded


def quiz(name: str) -> None:
    """Show the questions of a chapter; a click on an answer explains it."""
    from IPython.display import publish_display_data
    from IPython.utils.capture import capture_output
    from jupyterquiz import display_quiz

    publish: Any = publish_display_data  # IPython publishes no types
    with capture_output() as captured:
        display_quiz(questions(name), shuffle_answers=False, max_width=720, colors=COLOURS)
    for output in captured.outputs:
        if script := output.data.get("application/javascript"):
            output.data["application/javascript"] = _without_mathjax(script)
        publish(output.data)


def _without_mathjax(script: str) -> str:
    """The script where no MathJax is seen: our questions have no formula.

    Of a page's MathJax without `typeset`, such as JupyterLab's, jupyterquiz fetches another from a
    CDN, and throws where that can't be reached.
    """
    return f"((MathJax) => {{\n{script}\n}})();"
