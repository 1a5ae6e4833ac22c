"""The book's sources: nothing is missing, every name exists, and the build is strict and local."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(BOOK / "_ext"))
PAGES = sorted(
    path
    for path in BOOK.rglob("*.md")
    if path.stem[0] != "_" and not {"npm", "_build"} & set(path.parts)
)
CONFIG = yaml.safe_load((BOOK / "_config.yml").read_text(encoding="utf-8"))
TOC = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))

pytest.importorskip("sphinx")

# Each word that the chapter introduces, in the order of its sections.
TERMS = """
KV cache | prefix caching | RadixAttention | radix tree | LRU | prefix | trie | longest-prefix
matching | split | node | slot | KV cache pool | match | schedule | lock | evict | free | full
attention | attention | autoregressive | request | token | system prompt | prefill | prefix cache
| eviction policy | hidden state | causal mask | decode | suffix | positional encoding | RoPE |
cache-aware scheduler | hit rate | token id | edge | path compression | `children` | `key_fn` |
`parent` | `length` | `ref_count` | `uuid` | `timestamp` | key | value | root | leaf |
`set_key_value` | `set_parent` | `get_match_len` | `split_at` | tokenizer | longest common prefix
| physical slot | page | `page_size` | token slot | page table | free list | handle | page index |
mini-SGLang | SGLang | prompt | `cache_hit_len` | fcfs | lpm | dfs-weight | hrrn |
shortest-prefill-first | lof | random | routing-key | token budget | waiting queue | batch |
uncached suffix | in-batch prefix check | `evictable_size` | `protected_size` | evictable |
allocate | insert | insert race | duplicates | unlock | internal node | unified radix cache |
scheduler | K and V
"""


def test_the_contents_list_every_page_once() -> None:
    listed = [entry["file"] for part in TOC["parts"] for entry in part["chapters"]]
    pages = [path.relative_to(BOOK).with_suffix("").as_posix() for path in PAGES]
    assert sorted([TOC["root"], *listed]) == sorted(pages)


def test_the_glossary_has_every_term_of_the_chapter() -> None:
    text = (BOOK / "glossary.md").read_text(encoding="utf-8").split("{glossary}\n")[1]
    terms = re.findall(r"^(\S.*[^`\n]|`\w+`)$", text, re.MULTILINE)
    wanted = [term.strip() for term in TERMS.replace("\n", " ").split("|")]
    assert not set(wanted) - set(terms)
    assert len(terms) == len(set(terms))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_name_that_a_page_links_to_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\{py:\w+\}`(?:[^`<]*<)?~?([\w.]+)>?`", text):
        parts = target.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for name in parts[cut:]:
                found = getattr(found, name)
            break


def test_every_room_is_in_the_reference() -> None:
    reference = "".join(path.read_text() for path in (BOOK / "api").glob("*.md"))
    rooms = {p.stem for p in (ROOT / "radixlab").glob("*.py") if not p.stem.startswith("_")}
    rooms.remove("cli")  # a command: `radixlab --help`
    documented = set(re.findall(r"automodule:: radixlab\.([\w.]+)", reference))
    assert documented >= rooms
    import radixlab.viz

    assert documented >= {f"viz.{room}" for room in radixlab.viz._ROOMS}


def test_every_section_and_figure_of_the_chapter_has_its_place() -> None:
    text = (BOOK / "chapter-to-code.md").read_text(encoding="utf-8")
    for section in ("1", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "5"):
        assert re.search(rf"^\| {re.escape(section)} [A-Z]", text, re.MULTILINE), section
    figures = text.split("## Figures")[1].split("##")[0]
    assert re.findall(r"^\| (\d) ", figures, re.MULTILINE) == list("12345")


def test_the_build_is_strict_and_asks_no_other_host() -> None:
    assert CONFIG["execute"]["execute_notebooks"] == "cache"
    extensions = CONFIG["sphinx"]["config"]["extensions"]
    assert not {"sphinx_thebe", "sphinx.ext.intersphinx"} & set(extensions)
    assert "http" not in json.dumps(CONFIG)
    (line,) = re.findall(r"jupyter-book.*build.*", (ROOT / "Makefile").read_text())
    assert "-W --keep-going -n" in line


def test_24_a_cell_that_fails_fails_the_build() -> None:
    """The book was built all the same (jupyter-book/jupyter-book#781); that it fails is tried by
    `test_a_failing_cell_fails_the_build_and_colab_is_offered_with_an_address`."""
    execute = CONFIG["execute"]
    assert (execute["raise_on_error"], execute["stderr_output"]) == (True, "error")
    assert re.findall(r"jupyter-book.*build.*-W ", (ROOT / "Makefile").read_text())


def test_24_what_shows_widgets_comes_with_the_site() -> None:
    """Widgets were missing from static pages (jupyter-book/jupyter-book#1991): their scripts are
    our own files, in the order in which they need one another."""
    assert list(CONFIG["sphinx"]["config"]["nb_ipywidgets_js"]) == ["widgets.js"]
    loader = (BOOK / "assets/widgets.js").read_text()
    assert '["require.js", "embed-amd.js"]' in loader and "script.async = false" in loader
    packages = json.loads((BOOK / "npm/package.json").read_text())["dependencies"]
    assert {"requirejs", "@jupyter-widgets/html-manager"} <= set(packages)


def test_what_comes_from_npm_is_locked() -> None:
    packages = json.loads((BOOK / "npm/package.json").read_text())["dependencies"]
    locked = json.loads((BOOK / "npm/package-lock.json").read_text())["packages"]
    assert all(re.fullmatch(r"[\d.]+", version) for version in packages.values())
    assert all("integrity" in each for name, each in locked.items() if name)
    assert {n: locked[f"node_modules/{n}"]["version"] for n in packages} == packages


def test_the_address_of_the_site_follows_from_the_repository() -> None:
    from radixlab_site import LOCAL, site_address

    assert (
        site_address("https://github.com/Some/radixlab.git") == "https://some.github.io/radixlab/"
    )
    assert site_address("") == LOCAL


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("Whole pages on this page", ["pages"]),
        ("the arrow keys, and the key of a node", ["key", "node"]),
        ("a token slot, a slot", ["token slot", "slot"]),
        ("sglang#2442 says", []),
        ("Slots are matched", ["Slots"]),
    ],
)
def test_the_first_use_of_a_term_is_linked(text: str, linked: list[str]) -> None:
    from docutils import nodes
    from first_use import SPECIAL, link_in, pattern

    terms = ("token slot", "slot", "page", "key", "node", "SGLang")
    left = {t: re.compile(SPECIAL.get(t, pattern(t)), re.IGNORECASE) for t in terms}
    paragraph = nodes.paragraph("", text)
    link_in(paragraph[0], left, "page")
    assert paragraph.astext() == text
    shown = [n.astext() for n in paragraph.children if not isinstance(n, nodes.Text)]
    assert shown == linked


def test_the_workflow_publishes_only_what_was_checked() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text())
    steps = workflow["jobs"]["build"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make publish-check"]
    assert "RADIXLAB_REPOSITORY" in workflow["env"]
