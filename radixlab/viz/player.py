"""The step player: steps to walk through, in a notebook, on a static page, or in one file.

All pictures are made here, as SVG; the player in the browser is a page of plain JavaScript that
shows one after another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from radixlab.errors import InvalidArgument
from radixlab.lifecycle import Recorder, Step
from radixlab.scenarios import SCENARIOS, Scenario
from radixlab.snapshot import Snapshot
from radixlab.viz.frames import MAX_NODES, Predict, make_frames
from radixlab.viz.theme import read_static, style_sheet
from radixlab.viz.words import NO_XML, Decode, count, escape


class StepPlayer(anywidget.AnyWidget):
    """Shows steps one at a time: tree, page tables, pool, queue, caption and the code that ran.

    `steps` are those of `lifecycle` or of a `Recorder`. `predict` puts a question before steps (see
    `radixlab.viz.frames.Predict`); `decode` gives the text of a token id; `start` is the state
    before the first step; trees of more than `max_nodes` nodes are folded. `index` (0 is the first
    step) can be read, set and linked.
    """

    _esm = read_static("player.js")
    _css = style_sheet(player=True)
    index = traitlets.Int(0).tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    story = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        steps: Iterable[Step] | Recorder,
        *,
        title: str = "",
        predict: Predict = False,
        decode: Decode | None = None,
        start: Snapshot | None = None,
        max_nodes: int = MAX_NODES,
    ) -> None:
        if isinstance(steps, Recorder):
            start = steps.start
            steps = steps.steps
        self.steps = list(steps)
        if not self.steps:
            raise InvalidArgument("steps", "no step", "at least one step")
        options: dict[str, Any] = {"predict": predict, "decode": decode, "max_nodes": max_nodes}
        story = make_frames(self.steps, start=start, **options)
        super().__init__(story=story, title=title or count(len(self.steps), "step"))

    @property
    def step(self) -> Step:
        """The step that is shown."""
        return self.steps[self.index]

    @traitlets.validate("index")
    def _clip(self, proposal: Any) -> int:
        return min(max(int(proposal["value"]), 0), len(self.steps) - 1)

    def transcript(self) -> str:
        """All steps in words, one a line."""
        lines = enumerate(self.story["frames"], 1)
        return "\n".join(
            f"{i}. Step {f['number']}, {f['name']}. {f['caption']} {f['told']}".rstrip()
            for i, f in lines
        )

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and for whoever has none, or no JavaScript, its steps as a list."""
        data, more = super()._repr_mimebundle_(**options) or ({}, {})
        return data | {"text/html": as_list(self.title, self.story["frames"])}, more

    def save(self, path: str | Path) -> Path:
        """Write one HTML file that needs nothing else and no network; returns its path."""
        path = Path(path)
        path.write_text(self._page(), encoding="utf-8")
        return path

    def _page(self) -> str:
        state = {"index": self.index, "title": self.title, "story": self.story}
        data = NO_XML.sub("\ufffd", json.dumps(state, ensure_ascii=False)).replace("<", "\\u003c")
        script = read_static("player.js").replace("export default", "const player =")
        parts = {
            "title": escape(self.title),
            "plain": as_list(self.title, self.story["frames"]),
            "css": style_sheet(player=True),
            "js": script,
            "data": data,
        }  # in one pass: a title may have braces
        return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], read_static("page.html"))

    def __repr__(self) -> str:
        return f"{self.title}\n{self.transcript()}"


def as_list(title: str, frames: Iterable[dict[str, Any]]) -> str:
    """The steps of a player as HTML text: what stands in its place where it can't run."""
    items = "".join(
        f"<li><b>{escape(f['name'])}</b>. {escape(f['caption'])} {escape(f['told'])}</li>"
        for f in frames
    )
    return f'<div class="rl-words"><p><b>{escape(title)}</b></p><ol>{items}</ol></div>'


def play(what: str | Scenario | Recorder | Iterable[Step], **options: Any) -> StepPlayer:
    """A player for steps, a recorder, a scenario (which is used up), or a scenario's name.

    `options` are those of `StepPlayer`.
    """
    if isinstance(what, str):
        if what not in SCENARIOS:
            raise InvalidArgument("scenario", what, f"one of {', '.join(SCENARIOS)}")
        options.setdefault("title", what.replace("-", " ").capitalize())
        what = SCENARIOS[what]()
    if isinstance(what, Scenario):
        scenario = what
        recorder = Recorder(scenario.manager, scenario.requests)
        options.setdefault("start", recorder.start)
        what = scenario.steps()
    return StepPlayer(what, **options)
