"""Every notebook runs from top to bottom, as a learner would run it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


def run(path: Path) -> str:
    """Execute a notebook in a kernel of its own; returns all that it printed."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": path.parent}}).execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    return "".join(o.text for o in outputs if o.output_type == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_without_an_error(path: Path) -> None:
    printed = run(path)
    if path.stem == "00-start":
        assert "largest difference of the logits, cold against warm: 0.0" in printed
