"""The few SVG elements that the hand-made pictures are written with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from radixlab.viz.words import escape

CHAR = 7.3
"""Width of a character of the 12 pixel monospace face, in pixels, rounded up."""


def number(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(slots=True)
class Canvas:
    """SVG elements, how far to the right and down they reach, and what they show in words."""

    width: float = 0
    height: float = 0
    parts: list[str] = field(default_factory=list)
    css: str = "rl-svg"
    desc: str = ""

    def reach(self, x: float, y: float) -> None:
        """Make room for the point (x, y)."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def rect(self, x: float, y: float, w: float, h: float, css: str, rx: float = 0) -> None:
        """A rectangle, with round corners of radius `rx`."""
        self.reach(x + w, y + h)
        corner = f' rx="{number(rx)}"' if rx else ""
        at = " ".join(f'{k}="{number(v)}"' for k, v in zip("xy", (x, y), strict=True))
        size = f'width="{number(w)}" height="{number(h)}"'
        self.parts.append(f'<rect class="{css}" {at} {size}{corner}/>')

    def path(self, d: str, css: str) -> None:
        """A path; it makes no room for itself."""
        if d:
            self.parts.append(f'<path class="{css}" d="{d}"/>')

    def text(self, x: float, y: float, words: str, css: str = "") -> None:
        """One line of text, at (x, y) of its base line."""
        more = f' class="{css}"' if css else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{more}>{escape(words)}</text>')

    def texts(self, places: Iterable[tuple[float, float, str]], css: str) -> None:
        """Many short texts that look the same."""
        words = (f'<text x="{number(x)}" y="{number(y)}">{escape(w)}</text>' for x, y, w in places)
        self.parts.append(f'<g class="{css}">{"".join(words)}</g>')

    def svg(self, title: str, desc: str = "") -> str:
        """The whole image, named and described."""
        return "".join(self.elements(title, desc))

    def elements(
        self,
        title: str,
        desc: str = "",
        size: tuple[float, float] | None = None,
    ) -> list[str]:
        """The image in pieces, to be joined; `size` gives several images one frame."""
        width, height = size or (self.width, self.height)
        w, h = number(width), number(height)
        box = f'viewBox="0 0 {w} {h}" width="{w}" height="{h}"'
        head = f'<svg class="{self.css}" role="img" {box}>'
        desc = desc or self.desc
        told = f"<desc>{escape(desc)}</desc>" if desc else ""
        return [head, f"<title>{escape(title)}</title>{told}", *self.parts, "</svg>"]
