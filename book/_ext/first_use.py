"""Each term of the glossary becomes a link where a page first uses it.

Done at build time, so that the notebooks, which show the same text, stay plain.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

GLOSSARY = "glossary"
CLOSED = (
    nodes.title,
    nodes.reference,
    nodes.literal_block,
    nodes.raw,
    nodes.math,
    nodes.math_block,
    nodes.caption,
    nodes.comment,
    addnodes.pending_xref,
    addnodes.download_reference,
    addnodes.desc_signature,
)
"""Within these nothing is linked."""

# Words that are terms only in some places.
SPECIAL = {
    "page": r"(?<=whole )pages?\b|\bpages?(?= of (?:two|four|several|\d))",
    "random": r"(?!)",  # the policy: as code only
}
EVERYDAY = re.compile(
    r"\b(?:(?:arrow|same)\s+keys?|that\s+handles?|frees?\s+to|never\s+free)\b",
    re.IGNORECASE,
)
"""Phrases in which a word is no term, though it looks like one. A page has another? Add it here."""

OTHERWISE = {
    "key": {"05-scheduling-and-eviction", "architecture", "exercises/08-paged-attention"},
    "value": {"06-gpt2-prefix-reuse"},
}
"""Pages on which a word has another sense: the key of a sort, of attention; a measured value."""

PLAIN = {GLOSSARY, "references", "licences", "citing", "changelog", "teach", "grading", "nbgrader"}
"""Pages without such links."""


def read_terms(app: Sphinx) -> None:
    """Read the terms from the glossary's source, and make a pattern for each."""
    text = (Path(app.srcdir) / f"{GLOSSARY}.md").read_text(encoding="utf-8")
    block = text.split("{glossary}\n", 1)[1]
    terms = re.findall(r"^([^\s:`].*|`.*)$", block, re.MULTILINE)
    app.radixlab_terms = {  # type: ignore[attr-defined]  # kept on the app
        term: re.compile(SPECIAL.get(term, pattern(term)), 0 if term.isupper() else re.IGNORECASE)
        for term in sorted(terms, key=len, reverse=True)
    }


def pattern(term: str) -> str:
    """The term as a word of its own, in the singular or the plural."""
    return rf"(?<![\w`-]){re.escape(term)}(?:s|es)?(?![\w`#/-])"


def link_first_uses(app: Sphinx, doctree: nodes.document) -> None:
    """Turn the first use of each term on this page into a link to the glossary."""
    env = app.env
    if env.docname in PLAIN:
        return
    env.note_dependency(str(Path(app.srcdir) / f"{GLOSSARY}.md"))
    left = {
        term: wanted
        for term, wanted in app.radixlab_terms.items()  # type: ignore[attr-defined]  # kept on the app
        if env.docname not in OTHERWISE.get(term, ())
    }
    for text in [t for t in doctree.findall(nodes.Text) if is_open(t)]:
        link_in(text, left, env.docname)


def is_open(text: nodes.Text) -> bool:
    """Whether a link may stand here."""
    node = text.parent
    while node is not None:
        classes = node.get("classes", ())
        if isinstance(node, CLOSED) or "cell" in classes or "sd-card" in classes:
            return False
        if node.get("design_component") == "dropdown":  # a hint
            return False
        node = node.parent
    return True


def link_in(text: nodes.Text, left: dict[str, re.Pattern[str]], page: str) -> None:
    """Link the terms in one piece of text, each once; `left` are those not yet linked."""
    if isinstance(text.parent, nodes.literal):
        term = text.astext()
        if left.pop(term, None) is not None:
            literal = text.parent
            literal.parent.replace(literal, link(term, literal.deepcopy(), page))
        return
    found: list[tuple[int, int, str]] = []
    closed = [phrase.span() for phrase in EVERYDAY.finditer(text)]
    for term, wanted in left.items():
        for hit in wanted.finditer(text):
            taken = [*closed, *((start, end) for start, end, _ in found)]
            if all(hit.end() <= start or hit.start() >= end for start, end in taken):
                found.append((hit.start(), hit.end(), term))
                break
    if not found:
        return
    parts: list[nodes.Node] = []
    at = 0
    for start, end, term in sorted(found):
        del left[term]
        parts += [nodes.Text(text[at:start]), link(term, nodes.inline("", text[start:end]), page)]
        at = end
    parts.append(nodes.Text(text[at:]))
    text.parent.replace(text, [part for part in parts if part.astext()])


def link(term: str, shown: nodes.Node, page: str) -> nodes.Node:
    """A link to a term, which Sphinx resolves, or reports."""
    reference = addnodes.pending_xref(
        "",
        refdomain="std",
        reftype="term",
        reftarget=term,
        refexplicit=True,
        refwarn=True,
        refdoc=page,
        classes=["rl-term"],
    )
    reference += shown
    return reference
