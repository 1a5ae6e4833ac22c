"""The playground: buttons around a `Sandbox`. The tree changes before your eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets

from radixlab.errors import InvalidArgument, RadixLabError
from radixlab.viz.fold import fold
from radixlab.viz.marks import mark_nodes, with_removed
from radixlab.viz.picture import scroll_box
from radixlab.viz.player import StepPlayer
from radixlab.viz.poolsvg import draw_strips, legend, pool_text, pool_title
from radixlab.viz.sandbox import Sandbox, Tokenizer, say
from radixlab.viz.theme import style_sheet
from radixlab.viz.treesvg import draw_branches
from radixlab.viz.treetext import tree_title
from radixlab.viz.words import count, escape

HINT = "Type a prompt, then match, lock or insert it. Each word is a token."
GONE = "The kernel has gone, and this cache with it: run the cell again."
STILL = (
    "A still of the playground, a cache to try prompts on. It needs Python behind it: "
    "run this cell in a notebook to play."
)
LABEL = {"description_width": "initial"}
MAX_NODES = 16


class Playground(widgets.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A small cache to try things on: `sandbox` holds its state, `player()` replays it all."""

    def __init__(
        self,
        num_pages: int = 12,
        page_size: int = 1,
        tokenizer: Tokenizer | None = None,
        prompts: Iterable[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.sandbox = Sandbox(num_pages, page_size, tokenizer)
        for prompt in prompts:
            self.sandbox.insert(prompt)
        self.prompt = widgets.Text(
            value="the cat sat on the mat",
            description="Prompt",
            layout={"width": "auto", "flex": "1 1 14rem"},
            style=LABEL,
        )
        self.running = widgets.Dropdown(
            description="Request", layout={"width": "8rem"}, style=LABEL
        )
        self.count = _number("Slots", 1, 4096, 1, "6.5rem")
        self.page_size = _number("Page size", 1, 64, page_size, "7.5rem")
        self.num_pages = _number("Pages", 1, 1024, num_pages, "6.5rem")
        self.message = widgets.HTML()
        self.picture = widgets.HTML()
        self.buttons = self._buttons()
        super().__init__([*self._rows(), self.message, self.picture])
        self._show(HINT)

    def player(self, **options: Any) -> StepPlayer:
        """All that was done so far, in the step player; `options` are those of `StepPlayer`."""
        options.setdefault("title", "What you did")
        options.setdefault("decode", self.sandbox.decode_one)
        return StepPlayer(self.sandbox.recorder, **options)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, and for a page without a kernel a still that says what it is."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        return bundle | {"text/html": still_html(self.sandbox)}

    def _buttons(self) -> dict[str, widgets.Button]:
        acts: dict[str, tuple[str, Callable[[], str]]] = {
            "match": ("How much of the prompt is cached?", lambda: self._type(Sandbox.match)),
            "lock": ("Start a request: match and lock.", lambda: self._type(Sandbox.lock)),
            "insert": ("Compute what is missing, insert it.", lambda: self._type(Sandbox.insert)),
            "unlock": ("End the request.", lambda: self._end(Sandbox.unlock)),
            "abort": ("End the request at whatever point.", lambda: self._end(Sandbox.abort)),
            "evict": ("Make slots free.", lambda: self.sandbox.evict(self.count.value)),
            "undo": ("Take the last action back.", lambda: self.sandbox.undo()),
            "new pool": ("Start again with these sizes.", self._reset),
        }
        buttons = {}
        for name, (tooltip, act) in acts.items():
            button = widgets.Button(
                description=name.capitalize(), tooltip=tooltip, layout={"width": "auto"}
            )
            button.on_click(lambda _, act=act: self._try(act))
            buttons[name] = button
        return buttons

    def _rows(self) -> list[widgets.Widget]:
        """Two rows on a laptop; where there is less room, what belongs together stays so."""
        pick = self.buttons.__getitem__
        groups = [
            [self.running, *map(pick, ("unlock", "abort"))],
            [self.count, pick("evict")],
            [pick("undo")],
            [self.page_size, self.num_pages, pick("new pool")],
        ]
        return [
            _row([self.prompt, _row([*map(pick, ("match", "lock", "insert"))])]),
            _row([_row(group) for group in groups], grid_gap="0 0.6rem"),
        ]

    def _type(self, act: Callable[[Sandbox, str], str]) -> str:
        return act(self.sandbox, self.prompt.value)

    def _end(self, act: Callable[[Sandbox, str], str]) -> str:
        return act(self.sandbox, self.running.value or "")

    def _reset(self) -> str:
        self.sandbox = Sandbox(self.num_pages.value, self.page_size.value, self.tokenizer)
        return f"A new pool: {count(self.sandbox.state.total_size, 'slot')}, all of them free."

    def _try(self, act: Callable[[], str]) -> None:
        """Do it and show the result; a refusal is shown as a sentence, and nothing changes."""
        try:
            said = act()
        except RadixLabError as error:
            self._show(say(error), refused=True)
        else:
            self._show(said)

    def _show(self, message: str, refused: bool = False) -> None:
        sign = "<b>Refused.</b> " if refused else ""
        css = "rl-message rl-refused" if refused else "rl-message"
        words = f'<p class="{css}" role="status">{sign}{escape(message)}</p>'
        gone = f'<p class="rl-message rl-refused rl-gone">{GONE}</p>'
        self.message.value = f'<div class="radixlab rl-said">{gone}{words}</div>'
        if not refused:
            self.picture.value = picture_html(self.sandbox)
        running, chosen = self.sandbox.running, self.running.value
        self.running.options = running
        if running:
            self.running.value = chosen if chosen in running else running[-1]
        self.buttons["undo"].disabled = not self.sandbox.history


def picture_html(sandbox: Sandbox) -> str:
    """Tree, pool and page tables, with what the last action did to them marked."""
    state, step = sandbox.state, sandbox.done
    moves = step.changes.slots if step else ()
    marks = mark_nodes(step, sandbox.before) if step else {}
    nodes = with_removed(step, sandbox.before) if step else state.nodes
    tree = draw_branches(fold(nodes, marks, MAX_NODES), marks, sandbox.decode_one)
    tree_svg = tree.svg(tree_title(state.nodes))
    title, text = pool_title(state), pool_text(state, moves)
    pools = "".join(scroll_box(strip.svg(title, text)) for strip in draw_strips(state, moves))
    stage = f'<div class="rl-stage">{scroll_box(tree_svg)}<div class="rl-pool">{pools}</div></div>'
    style = f"<style>{style_sheet(player=True)}</style>"
    return f'<div class="radixlab rl-playground">{style}{legend(state)}{stage}</div>'


def still_html(sandbox: Sandbox) -> str:
    """The picture without its buttons: nothing on it looks as if it could be pressed."""
    note = f'<p class="rl-message">{STILL}</p>'
    return f'<div class="radixlab rl-said">{note}{picture_html(sandbox)}</div>'


def playground(
    num_pages: int = 12,
    page_size: int = 1,
    tokenizer: Tokenizer | str | None = None,
    prompts: Iterable[str] = (),
) -> Playground:
    """Buttons around a pool of `num_pages` pages of `page_size` tokens and a tree.

    `tokenizer` is None (each word is a token), anything with `encode` and `decode`, or the name of
    a model for `radixlab.load_gpt2`: "tiny" is the embedded GPT-2. `prompts` are in the tree from
    the start. Raises `InvalidPageSize`, and `RequestTooLong` for a prompt larger than the pool.
    """
    if isinstance(prompts, str):
        raise InvalidArgument("prompts", prompts, "a list of prompts")
    if isinstance(tokenizer, str):
        from radixlab.gpt2 import load_gpt2

        tokenizer = load_gpt2(tokenizer)
    return Playground(num_pages, page_size, tokenizer, prompts)


def _number(label: str, low: int, high: int, value: int, width: str) -> widgets.BoundedIntText:
    return widgets.BoundedIntText(
        value=value,
        min=low,
        max=max(high, value),
        description=label,
        layout={"width": width},
        style=LABEL,
    )


def _row(children: list[widgets.Widget], **layout: str) -> widgets.HBox:
    layout |= {"flex_flow": "row wrap", "align_items": "center"}
    return widgets.HBox(children, layout=layout)
