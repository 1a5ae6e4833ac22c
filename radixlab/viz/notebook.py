"""What a notebook shows for a tree, a cache, a manager, a snapshot or a step."""

from __future__ import annotations

from radixlab.lifecycle import Step
from radixlab.manager import CacheManager
from radixlab.snapshot import Snapshot
from radixlab.viz.dot import Drawable, draw_tree
from radixlab.viz.picture import Picture
from radixlab.viz.poolsvg import draw_pool
from radixlab.viz.theme import style_sheet
from radixlab.viz.words import escape


def mime_bundle(shown: Drawable) -> dict[str, str]:
    """Text always, and HTML with the pictures: the tree, and whatever has a pool the pool too."""
    pictures = [draw_tree(shown)]
    if isinstance(shown, CacheManager | Snapshot | Step):
        pictures.append(draw_pool(shown))
    caption = f"{shown.number} {shown.name}: {shown.caption}" if isinstance(shown, Step) else ""
    text = "\n".join(filter(None, [caption, *map(str, pictures)]))
    return {"text/plain": text, "text/html": _html(caption, pictures)}


def _html(caption: str, pictures: list[Picture]) -> str:
    parts = [f"<p>{escape(caption)}</p>"] if caption else []
    for picture in pictures:
        parts.append(picture.legend)
        parts.append(picture.box or f"<pre>{escape(picture.text)}</pre><p>{picture.note}.</p>")
    inside = "".join(f'<div class="rl-figure">{part}</div>' for part in parts if part)
    return f'<div class="radixlab"><style>{style_sheet()}</style>{inside}</div>'
