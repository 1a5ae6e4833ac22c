"""Each chapter is one text in two files, book/NAME.md and notebooks/NAME.ipynb, without outputs."""

from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHAPTERS = [
    path
    for path in sorted((ROOT / "book").glob("*.md"))
    if path.read_text(encoding="utf-8").startswith("---\njupytext:")
]


def test_every_chapter_has_a_notebook_and_every_notebook_a_chapter() -> None:
    assert [path.stem for path in CHAPTERS] == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_pair_says_the_same(notebook: Path) -> None:
    chapter = ROOT / "book" / f"{notebook.stem}.md"
    pair = [
        [(cell.cell_type, cell.source, cell.metadata) for cell in jupytext.read(path).cells]
        for path in (chapter, notebook)
    ]
    assert pair[0] == pair[1], "run `make sync`"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_committed_without_outputs(notebook: Path) -> None:
    code = [cell for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
