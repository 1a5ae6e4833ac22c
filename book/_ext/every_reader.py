"""What readers with a phone, a keyboard, a screen reader or no JavaScript need of each page.

Wide pictures in boxes that scroll, headers of rows, outputs that may wrap, and the steps of each
player as text. assets/site.js gives the boxes that do scroll a name and a place in the tab order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx

from radixlab.viz.player import as_list

STATE, VIEW = (f"application/vnd.jupyter.widget-{kind}+json" for kind in ("state", "view"))

COLUMNS = re.compile(r"\S {2,}\S|[├└]")
"""What a line of an output has if its parts must stay below those of the next line."""


def raw(html: str) -> nodes.raw:
    """HTML as it is."""
    return nodes.raw("", html, format="html")


def outputs(doctree: nodes.document) -> Iterator[nodes.container]:
    """The outputs of all cells."""
    for container in doctree.findall(nodes.container):
        if "cell_output" in container["classes"]:
            yield container


# --- tables and pictures -------------------------------------------------------------------------


def name_heads(app: Sphinx, doctree: nodes.document) -> None:
    """A table's first column names its rows; an empty corner is named for those who hear it."""
    for table in doctree.findall(nodes.table):
        for head in table.findall(nodes.thead):
            for entry in head.findall(nodes.entry):
                if not entry.astext().strip():
                    entry.children = [nodes.inline("", "row", classes=["visually-hidden"])]
        names = [row[0].astext().strip() for body in table.findall(nodes.tbody) for row in body]
        if all(names):
            next(table.findall(nodes.colspec))["stub"] = 1


def wrap_wide(app: Sphinx, doctree: nodes.document) -> None:
    """Charts and the map of the house stay legible on a phone, where they are scrolled."""
    charts = [image for output in outputs(doctree) for image in output.findall(nodes.image)]
    maps = [i for i in doctree.findall(nodes.image) if i["uri"].endswith("architecture.svg")]
    for name, image in [("Chart", i) for i in charts] + [("Map", i) for i in maps]:
        inner = image.parent if isinstance(image.parent, nodes.paragraph) else image
        place, at = inner.parent, inner.parent.index(inner)
        place.insert(at + 1, raw("</div>"))
        place.insert(at, raw(f'<div class="rl-wide rl-{name.lower()}" data-name="{name}">'))


def wrap_lines(app: Sphinx, doctree: nodes.document) -> None:
    """On a phone an output without columns is wrapped; one with columns is scrolled."""
    for output in outputs(doctree):
        for text in output.findall(nodes.literal_block):
            if not COLUMNS.search(text.astext()):
                text["classes"].append("rl-wraps")


# --- players without JavaScript, or before it has come -------------------------------------------


def add_words(app: Sphinx, doctree: nodes.document) -> None:
    """Beside each player its steps, which the page's style hides when the player is there."""
    scripts: Any = NbMetadataCollector.get_js_files(cast(Any, app.env), app.env.docname)
    if "ipywidgets_state" not in scripts:
        return
    models = json.loads(scripts["ipywidgets_state"][1]["body"])["state"]
    for output in outputs(doctree):
        for view in [each for each in output.findall(nodes.raw) if VIEW in each.astext()]:
            shown = json.loads(re.sub(r"<.*?>", "", view.astext()))["model_id"]
            model = models[shown]["state"]
            if "story" in model:
                words = as_list(model["title"], model["story"]["frames"])
                view.parent.insert(view.parent.index(view) + 1, raw(words))


def widgets_last(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """What widgets need, up to a megabyte and a half, comes after the text (layout.html)."""
    files = context["script_files"]
    late = [
        file
        for file in files
        if file.attributes.get("type") == STATE or str(file.filename).endswith("widgets.js")
    ]
    files[:] = [file for file in files if file not in late]
    context["late_scripts"] = late


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this; `radixlab_site` registers it."""
    app.connect("doctree-read", name_heads)
    app.connect("doctree-read", wrap_wide)
    app.connect("doctree-read", wrap_lines)
    app.connect("doctree-read", add_words)
    app.connect("html-page-context", widgets_last, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
