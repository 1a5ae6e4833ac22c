"""Exercise sheets as pages: a sheet's source becomes what readers may see before Sphinx reads it.

So no solution, hidden case or rubric reaches a page, the search, `_sources` or the cached outputs.
A teacher's own build shows them with `RADIXLAB_SOLUTIONS=1`; one that is to be published, with
`RADIXLAB_REPOSITORY`, refuses to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from radixlab.classroom.build import book_page, notebook_text, student_notebook
from radixlab.classroom.sheet import Sheet, parse_sheet

FOLDER = "exercises"


def is_sheet(page: str) -> bool:
    """Whether a page comes from a sheet's source: exercises/02-split."""
    folder, _, name = page.partition("/")
    return folder == FOLDER and name[:2].isdigit()


def refuse_to_publish(app: Sphinx) -> None:
    """Solutions are for a private build; and no page's source is copied beside it."""
    if app.config.radixlab_solutions and app.config.radixlab_repository:
        raise ExtensionError("RADIXLAB_SOLUTIONS is for a private build: unset RADIXLAB_REPOSITORY")
    if app.config.html_copy_source:
        raise ExtensionError("html_copy_source must be off: the sheets' sources hold solutions")


def read_sheet(app: Sphinx, page: str, source: list[str]) -> None:
    """In the place of a sheet's source: its page; on the first page of all: their list."""
    if page == f"{FOLDER}/index":
        source[0] = source[0].replace("{{sheets}}", sheet_list(app))
    if is_sheet(page):
        sheet = parse_sheet(source[0], Path(page).name)
        source[0] = book_page(sheet, with_solutions=app.config.radixlab_solutions)
        write_notebook(app, sheet)


def sheet_list(app: Sphinx) -> str:
    """All sheets as a table: what one writes, and for how many points."""
    rows = ["| sheet | you write | points |", "|---|---|---|"]
    for page in sorted(filter(is_sheet, app.env.found_docs)):
        path = Path(app.env.doc2path(page))
        app.env.note_dependency(str(path))
        sheet = Sheet.read(path)
        tasks = [f"`{name}`" for name in sheet.exercises]
        tasks += ["an answer in words"] * bool(sheet.written)
        rows.append(f"| [{sheet.title}]({path.name}) | {', '.join(tasks)} | {sheet.total:g} |")
    return "\n".join(rows)


def notebook_of(app: Sphinx, name: str) -> Path:
    """Where the student's notebook of a sheet is made, to be downloaded from its page."""
    return Path(app.outdir).parent / FOLDER / f"{name}.ipynb"


def write_notebook(app: Sphinx, sheet: Sheet) -> None:
    """Make the student's notebook."""
    path = notebook_of(app, sheet.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook_text(student_notebook(sheet)), encoding="utf-8")


def add_download(app: Sphinx, doctree: nodes.document) -> None:
    """Under a sheet's title: its notebook, and how to get the checks to run."""
    page = app.env.docname
    title = next(doctree.findall(nodes.title), None)
    if not is_sheet(page) or title is None:
        return
    path = os.path.relpath(notebook_of(app, Path(page).name), Path(app.srcdir) / FOLDER)
    file = addnodes.download_reference(
        "", reftarget=path, refdoc=page, refdomain="", reftype="download"
    )
    file += nodes.inline("", "Download this sheet as a notebook")
    bar = nodes.paragraph("", "", file, classes=["rl-notebook"])
    bar += nodes.inline("", "The checks run in it, with Python and radixlab behind them; not here.")
    title.parent.insert(title.parent.index(title) + 1, bar)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this; `radixlab_site` registers it."""
    app.add_config_value("radixlab_solutions", os.environ.get("RADIXLAB_SOLUTIONS") == "1", "env")
    app.connect("builder-inited", refuse_to_publish)
    app.connect("source-read", read_sheet)
    app.connect("doctree-read", add_download, priority=100)  # before Sphinx collects downloads
    return {"parallel_read_safe": True, "parallel_write_safe": True}
