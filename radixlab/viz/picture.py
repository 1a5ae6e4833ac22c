"""A picture that a notebook shows: SVG that follows the page's theme, and text for all others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radixlab.viz.theme import style_sheet

PHONE = 250
"""Pixels that a picture surely has."""
SMALLEST = 0.75
"""A wide picture shrinks to this, then it scrolls: its smallest text stays 9 pixels high."""


def scroll_box(svg: str) -> str:
    """A drawing that shrinks on a narrow page; one that may have to scroll there has the keys."""
    size = re.search(r'width="([\d.]+)(pt)?"', svg)
    assert size is not None
    least = float(size[1]) * (4 / 3 if size[2] else 1) * SMALLEST
    keys = ' tabindex="0" role="group" aria-label="Picture"' if least > PHONE else ""
    return f'<div class="rl-scroll" style="--least:{least:.0f}px"{keys}>{svg}</div>'


@dataclass(frozen=True)
class Picture:
    """What `draw_tree` and `draw_pool` give.

    `svg` is the drawing ("" if it could not be drawn), `text` says the same in words, `note` is one
    sentence on what to install where a program is missing, `source` is DOT and `legend` HTML, where
    there is any; `slim` is the drawing for a phone, where `svg` would be too wide for one.
    """

    svg: str
    text: str
    note: str = ""
    source: str = ""
    legend: str = ""
    slim: str = ""

    @property
    def html(self) -> str:
        """The SVG with its style sheet, for any page."""
        style = f"<style>{style_sheet()}</style>"
        return f'<div class="radixlab rl-figure">{style}{self.legend}{self.box}</div>'

    @property
    def box(self) -> str:
        """The drawing in its box, without legend and style sheet."""
        return "".join(map(scroll_box, filter(None, [self.svg, self.slim])))

    def save(self, path: str | Path) -> Path:
        """Write the SVG, with its style inside, to a file, and return its path."""
        if not self.svg:
            raise RuntimeError(self.note)
        head, _, body = self.svg.partition(">")
        head = head.replace('class="', 'class="radixlab ', 1)
        if "xmlns=" not in head:  # a page doesn't need it, a file does
            head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
        path = Path(path)
        path.write_text(f"{head}><style>{style_sheet()}</style>{body}\n", encoding="utf-8")
        return path

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle = {"text/plain": str(self)}
        if self.svg:
            bundle["text/html"] = self.html
        return bundle

    def __str__(self) -> str:
        return f"{self.text}\n{self.note}" if self.note else self.text
