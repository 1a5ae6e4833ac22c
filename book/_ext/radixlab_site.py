"""What the site needs beyond Jupyter Book.

Our own copies of scripts, a player, links to the glossary, notebooks to take along, descriptions, a
sitemap and a page for wrong addresses.

One variable of the environment says where the project lives: `RADIXLAB_REPOSITORY`, for example
https://github.com/someone/radixlab. Without it no page offers Colab, and the sitemap has the
address of `make serve`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from first_use import link_first_uses, read_terms
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from radixlab.viz import play
from radixlab.viz.player import as_list
from radixlab.viz.theme import read_static, style_sheet

LOCAL = "http://localhost:8000/radixlab/"
"""Where `make serve` shows the site: under a sub-path, as GitHub Pages does."""

FIXED = {
    "search": "Search all pages of the book on RadixAttention and prefix caching.",
    "genindex": "Every name of the package radixlab, by alphabet, with a link to what it does.",
    "_modules/index": "All modules of the package radixlab whose source can be read on this site.",
}


def site_address(repository: str) -> str:
    """The address of the published site: GitHub Pages of the repository, else `make serve`."""
    parts = urlsplit(repository.removesuffix("/").removesuffix(".git"))
    if parts.hostname != "github.com":
        return LOCAL
    owner, name = parts.path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def keep_outputs_fresh(app: Sphinx, config: Config) -> None:
    """Executed notebooks are kept until the package changes, not only until they do."""
    package = Path(app.srcdir).parent / "radixlab"
    seen = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.js"), *package.rglob("*.json")]):
        seen.update(path.read_bytes())
    config.radixlab_source = seen.hexdigest()[:16]
    caches = Path(app.outdir).parent / ".jupyter_cache"
    for old in caches.glob("*"):
        if old.name != config.radixlab_source and old.is_dir():
            shutil.rmtree(old)
    config.nb_execution_cache_path = str(caches / config.radixlab_source)


MATH = (nodes.math, nodes.math_block)


# --- what pages load -----------------------------------------------------------------------------


def copy_vendor(app: Sphinx) -> None:
    """Put scripts and fonts of others beside the pages (book/npm, fetched by `make book`)."""
    packages = Path(app.srcdir) / "npm/node_modules"
    if not packages.is_dir():
        raise ExtensionError("book/npm/node_modules is missing: `make book` fetches it")
    vendor = Path(app.outdir) / "_static/vendor"
    widgets = packages / "@jupyter-widgets/html-manager/dist"
    mathjax = packages / "mathjax/es5"
    anywidget = Path(sys.prefix) / "share/jupyter/nbextensions/anywidget/index.js"
    wanted = {
        packages / "requirejs/require.js": "require.js",
        widgets / "embed-amd.js": "embed-amd.js",
        anywidget: "anywidget.js",
        mathjax / "tex-mml-chtml.js": "mathjax/tex-mml-chtml.js",
    }
    wanted |= {font: font.name for font in widgets.glob("*.woff2")}
    fonts = mathjax / "output/chtml/fonts/woff-v2"
    wanted |= {font: f"mathjax/{font.relative_to(mathjax)}" for font in fonts.glob("*.woff")}
    for source, name in wanted.items():
        target = vendor / name
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            target.parent.mkdir(parents=True, exist_ok=True)
            if name == "embed-amd.js":  # its schema checker warns of its own schema on each page
                text = source.read_text(encoding="utf-8")
                quiet = re.sub(r'(strictTypes:[^,]+:)"log"', r"\1!1", text)
                target.write_text(quiet, encoding="utf-8")
            else:
                shutil.copy(source, target)


class Player(SphinxDirective):
    """`{player} chapter`: a step player that needs a few kB of script and no widget manager."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The player as HTML: what `StepPlayer.save` writes, within the page, there at once."""
        title = " ".join(self.content)
        player = play(self.arguments[0], title=title)
        state = {"index": 0, "title": title, "story": player.story}
        data = json.dumps(state, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        script = read_static("player.js").replace("export default", "const player =")
        words = as_list(title, player.story["frames"])
        html = f"""<style>{style_sheet(player=True)}</style>
<div class="rl-here"><noscript>{words}</noscript></div>
<script type="application/json" class="rl-story">{data}</script>
<script>
{{ {script}
const here = document.querySelector(".rl-here");
const state = JSON.parse(document.querySelector(".rl-story").textContent);
const watchers = [];
player.render({{ el: here, model: {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  save_changes: () => watchers.forEach((watcher) => watcher()),
  on: (event, watcher) => watchers.push(watcher),
  off: () => {{}},
}} }}); }}
</script>"""
        return [nodes.raw("", html, format="html")]


# --- what a page says ----------------------------------------------------------------------------


def add_notebook(app: Sphinx, doctree: nodes.document) -> None:
    """Under a chapter's title: its notebook, to download and, if we have an address, for Colab."""
    name = app.env.docname
    notebook = Path(app.srcdir).parent / "notebooks" / f"{name}.ipynb"
    title = next(doctree.findall(nodes.title), None)
    if not notebook.exists() or title is None:
        return
    bar = nodes.paragraph(classes=["rl-notebook"])
    file = addnodes.download_reference(
        "", reftarget=f"../notebooks/{name}.ipynb", refdoc=name, refdomain="", reftype="download"
    )
    file += nodes.inline("", "Download this notebook")
    bar += file
    if repository := app.config.radixlab_repository:
        path = urlsplit(repository).path.strip("/")
        colab = f"https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}.ipynb"
        bar += [nodes.Text(" "), nodes.reference("", "Open in Colab", refuri=colab)]
        install = f'%pip install "radixlab[lab,model,sweep] @ git+{repository}"'
        bar += [nodes.Text(" In Colab, run "), nodes.literal("", install), nodes.Text(" first.")]
    title.parent.insert(title.parent.index(title) + 1, bar)


WIDGET = "application/vnd.jupyter.widget-view+json"


def still_playground(app: Sphinx, doctree: nodes.document) -> None:
    """A playground does nothing without a kernel: show its still, which has no buttons."""
    for view in list(doctree.findall(nodes.container)):
        if view.get("mime_type") != WIDGET:
            continue
        stills = [each for each in view.parent.children if each.get("mime_type") == "text/html"]
        if stills and "A still of the playground" in stills[0].astext():
            view.parent.remove(view)


def describe(doctree: nodes.document, length: int = 155) -> str:
    """A page's first sentences, without those that only announce a list."""
    words = ""
    for node in doctree.findall(nodes.paragraph):
        text = " ".join(node.astext().split())
        if "rl-notebook" in node["classes"] or text.endswith(":") or "\x00" in text:
            continue
        words = f"{words} {text}".strip()
        if len(words) > length:
            break
    return words if len(words) <= length else f"{words[:length].rsplit(' ', 1)[0]} …"


def add_description(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """`<meta name="description">` for each page."""
    if page in FIXED:
        words = FIXED[page]
    elif page.startswith("_modules/"):
        module = page.removeprefix("_modules/").replace("/", ".")
        words = f"The source code of {module}, from which this book's pages are made."
    else:
        words = describe(doctree) if doctree is not None else str(context["title"])
    # docutils says the viewport once more.
    metatags = re.sub(r'<meta [^>]*name="viewport"[^>]*>', "", context.get("metatags", ""))
    context["metatags"] = f'{metatags}\n<meta name="description" content="{escape(words)}" />'


def leave_out_mathjax(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the formulas' script on pages that have a formula."""
    if doctree is None or not any(doctree.findall(lambda n: isinstance(n, MATH))):
        files = context["script_files"]
        files[:] = [file for file in files if "mathjax" not in str(file.filename)]


def to_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write code as Markdown does: in single backticks, or indented by four."""
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", "\n".join(lines))
    text = re.sub(r"(?<=\w``)(?=\w)", r"\\ ", text)
    lines[:] = re.sub(r"(?m)(^(?! {4}).*\n\n)(?= {4}\S)", r"\1::\n\n", text).split("\n")


def only_our_source(app: Sphinx, module: str) -> tuple[str, dict[str, Any]] | None:
    """Source pages for radixlab alone, not for what it inherits from the standard library."""
    return None if module.partition(".")[0] == "radixlab" else ("", {})


def mend_source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Drop what is not ours, and let each [docs] link lead to where the name is described."""
    modules = getattr(app.env, "_viewcode_modules", {})
    described = app.env.get_domain("py").objects  # type: ignore[attr-defined]  # PythonDomain
    for module, entry in list(modules.items()):
        if module.partition(".")[0] != "radixlab":
            del modules[module]
        elif entry:
            used = entry[2]
            for name in list(used):
                target = described.get(f"{module}.{name}")
                if target is None:
                    del used[name]
                else:
                    used[name] = target.docname
    yield from ()


# --- what stands beside the pages ----------------------------------------------------------------


def finish(app: Sphinx, error: Exception | None) -> None:
    """Sitemap, a page for wrong addresses, and the word to GitHub that `_static` is meant so."""
    if error is not None or app.builder.name != "html":
        return
    out, address = Path(app.outdir), site_address(app.config.radixlab_repository)
    places = "".join(
        f"<url><loc>{escape(address + app.builder.get_target_uri(page))}</loc></url>\n"
        for page in sorted(app.env.found_docs)
    )
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
    )
    (out / ".nojekyll").touch()
    # Half a megabyte of script that turns icons into SVG: the theme's font shows them too.
    for path in out.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        slim = re.sub(r"\s*<script[^>]*/fontawesome\.js[^>]*></script>", "", text)
        path.write_text(slim, encoding="utf-8")
    for script in (out / "_static/scripts").glob("fontawesome.js*"):
        script.unlink()
    page = (Path(app.srcdir) / "assets/404.html").read_text(encoding="utf-8")
    (out / "404.html").write_text(page.replace("{{home}}", urlsplit(address).path))
    (out / "_static/404.html").unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this."""
    app.setup_extension("sphinx.ext.viewcode")  # has the events below
    app.setup_extension("exercise_pages")
    app.setup_extension("every_reader")
    app.add_config_value("radixlab_repository", os.environ.get("RADIXLAB_REPOSITORY", ""), "env")
    app.add_config_value("radixlab_source", "", "env")
    app.add_directive("player", Player)
    app.connect("config-inited", keep_outputs_fresh)
    app.connect("builder-inited", copy_vendor)
    app.connect("builder-inited", read_terms)
    app.connect("doctree-read", add_notebook, priority=100)  # before Sphinx collects downloads
    app.connect("doctree-read", link_first_uses)
    app.connect("doctree-read", still_playground)
    app.connect("html-page-context", add_description)
    app.connect("html-page-context", leave_out_mathjax, priority=900)
    app.connect("autodoc-process-docstring", to_rst)
    app.connect("viewcode-find-source", only_our_source)
    app.connect("html-collect-pages", mend_source_pages, priority=100)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
