"""The playground: every action, every refusal, undo; and the charts beside it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import radixlab
from radixlab.errors import PoolExhausted, RadixLabError
from radixlab.viz import (
    Playground,
    Sandbox,
    count_trees,
    draw_pool,
    draw_tree,
    plot_trees,
    shared_prompts,
)
from radixlab.viz.palette import CYCLE
from radixlab.viz.playground import picture_html, still_html
from radixlab.viz.sandbox import say
from radixlab.viz.style import rc

PROMPTS = st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["match", "lock", "insert"]), PROMPTS),
    st.tuples(st.sampled_from(["unlock", "abort"]), st.sampled_from(["R1", "R2", "R3", ""])),
    st.tuples(st.just("evict"), st.integers(0, 4)),
    st.tuples(st.just("undo")),
)


def state(sandbox: Sandbox) -> Any:
    return radixlab.take_snapshot(sandbox.manager, sandbox.requests)


def everything(sandbox: Sandbox) -> Any:
    """Tree, clock, pool and requests as the manager has them, the steps so far, and the picture."""
    told = [(step.name, step.caption, step.snapshot) for step in sandbox.steps]
    return state(sandbox), told, picture_html(sandbox)


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(1, 3), st.lists(ACTIONS, max_size=12))
@example(8, 1, [("insert", "a b c a b c"), ("lock", "a b c a b c"), ("insert", "a b b b b b b")])
def test_whatever_is_done_the_books_balance_and_a_refusal_changes_nothing(
    pages: int, page_size: int, actions: list[tuple[Any, ...]]
) -> None:
    sandbox = Sandbox(pages, page_size)
    for name, *arguments in actions:
        before, history = everything(sandbox), list(sandbox.history)
        try:
            getattr(sandbox, name)(*arguments)
        except RadixLabError as error:
            assert say(error)[0].isupper() and say(error).endswith(".")
            assert everything(sandbox) == before and sandbox.history == history
        sandbox.manager.check_integrity()


@settings(max_examples=40)
@given(st.lists(ACTIONS.filter(lambda a: a[0] != "undo"), max_size=8), ACTIONS)
def test_undo_restores_the_state_before(
    actions: list[tuple[Any, ...]], last: tuple[Any, ...]
) -> None:
    sandbox = Sandbox(6)
    for name, *arguments in actions:
        try:
            getattr(sandbox, name)(*arguments)
        except RadixLabError:
            continue
    before = state(sandbox)
    if last[0] == "undo":
        return
    try:
        getattr(sandbox, last[0])(*last[1:])
    except RadixLabError:
        return
    sandbox.undo()
    assert state(sandbox) == before


@pytest.mark.parametrize("refused", ["lock", "insert"])
def test_a_prompt_that_is_refused_for_want_of_room_cuts_no_edge(refused: str) -> None:
    sandbox = Sandbox(8)
    sandbox.insert("a b c d e f")
    sandbox.lock("a b c d e f")
    before, nodes = everything(sandbox), state(sandbox).nodes
    with pytest.raises(PoolExhausted):
        getattr(sandbox, refused)("a b x y z v w")
    assert state(sandbox).nodes == nodes and everything(sandbox) == before
    sandbox.match("q")
    assert not sandbox.done.changes.split, "it would be shown with another's split"


def click(playground: Playground, name: str, prompt: str | None = None) -> str:
    if prompt is not None:
        playground.prompt.value = prompt
    playground.buttons[name].click()
    return str(playground.message.value)


SAID = [
    ("match the cat sat on the mat", "Nothing of it is cached."),
    (
        "insert the cat sat on the mat",
        "R1: 0 of 6 tokens found, 6 computed into [p0, p1, p2, p3, p4, p5]. "
        "It has ended and holds nothing; what is cached of it stays.",
    ),
    ("undo", "Undone: insert ‘the cat sat on the mat’."),
    ("undo", "Undone: match ‘the cat sat on the mat’."),
    (
        "insert the cat sat",
        "R1: 0 of 3 tokens found, 3 computed into [p0, p1, p2]. "
        "It has ended and holds nothing; what is cached of it stays.",
    ),
    ("match the", "Its only token is its last, and the last is always computed."),
    (
        "match the cat ran",
        "2 of 3 tokens are cached, the last one left out. Found is not yet held.",
    ),
    (
        "insert the cat sat",
        "R2: 2 of 3 tokens found, 1 computed into [p3]. [p3] is freed at once: the tree has its "
        "token. It has ended and holds nothing; what is cached of it stays.",
    ),
    ("lock a b", "R3: nothing was found, so there is nothing to hold."),
    ("lock c d e f", "R4: nothing was found, so there is nothing to hold."),
    (
        "insert a b",
        "R3: 0 of 2 tokens found, 2 computed into [p3, p4]. "
        "It runs on, and holds what is cached of it until it is unlocked.",
    ),
    (
        "insert c d e f",
        "Unheld leaves go; [p2] is free again. R4: 0 of 4 tokens found, 4 computed into "
        "[p2, p5, p6, p7]. It runs on, and holds what is cached of it until it is unlocked.",
    ),
    ("unlock R3", "R3: its prefix stays cached. It has ended and holds nothing."),
    ("abort R4", "R4: aborted; its lock and 0 private slots are given back."),
]


def test_each_message_tells_of_the_button_that_was_pressed() -> None:
    sandbox = Sandbox(8)
    for action, said in SAID:
        name, _, argument = action.partition(" ")
        assert getattr(sandbox, name)(*[argument] * bool(argument)) == said, action


def test_pages_are_found_and_cached_as_a_whole() -> None:
    sandbox = Sandbox(8, page_size=4)
    assert "Only whole pages are cached: 4 tokens." in sandbox.insert("a b c d e f")
    assert sandbox.match("a b c d") == "No whole page before its last token is cached."


def test_an_insert_that_others_leave_no_room_for_is_refused_as_such() -> None:
    sandbox = Sandbox(8)
    sandbox.lock("a b c d e")
    sandbox.insert("a b c d e")
    with pytest.raises(PoolExhausted, match="asked for 5 slots; 3 are free and 0 evictable"):
        sandbox.insert("f g h i j")


def test_what_running_requests_were_promised_is_kept_for_them() -> None:
    sandbox = Sandbox(4)
    sandbox.lock("a b c")
    with pytest.raises(PoolExhausted, match="asked for 3 slots; 4 are free"):
        sandbox.lock("d e f")
    assert "computed into" in sandbox.insert("a b c")


def test_a_prompt_that_fills_no_page_leaves_nothing_and_is_said_to() -> None:
    sandbox = Sandbox(4, page_size=4)
    sandbox.insert("a b c")
    (said,) = (step.caption for step in sandbox.steps if step.name == "unlock")
    assert said == (
        "R1: it fills no page, so nothing stays cached. It has ended and holds nothing. "
        "[p0, p1, p2, p3] are free again."
    )
    assert sandbox.state.free_size == 16


ONE_AS_MANY = r"\b1 (nodes|tokens|slots|pages|steps|are)\b|\[p\d+\] (are|leave)\b| 1 of \d+ \w+ are"


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(1, 3), st.lists(ACTIONS, max_size=12))
def test_one_is_never_spoken_of_as_many(
    pages: int, page_size: int, actions: list[tuple[Any, ...]]
) -> None:
    sandbox, said = Sandbox(pages, page_size), [""]
    for name, *arguments in actions:
        try:
            said.append(getattr(sandbox, name)(*arguments))
        except RadixLabError as error:
            said.append(say(error))
    said += [step.caption for step in sandbox.steps]
    said += [picture_html(sandbox), draw_tree(sandbox.state).text, draw_pool(sandbox.state).text]
    assert not re.search(ONE_AS_MANY, "\n".join(said)), said


def test_the_picture_marks_what_the_button_did_and_nothing_once_it_is_undone() -> None:
    playground = radixlab.playground(12)
    click(playground, "insert", "the cat sat on the mat")
    assert ">created<" in playground.picture.value and "unlocked 1" not in playground.picture.value
    click(playground, "insert", "the cat sat on a hat")
    for mark in ("created", "split: upper part", "split: lower part"):
        assert f">{mark}<" in playground.picture.value
    click(playground, "undo")
    assert ">created<" not in playground.picture.value
    assert 'class="moved"' not in playground.picture.value
    assert "4 tokens" not in playground.picture.value, "the second prompt has left no trace"


def test_a_playground_begins_with_the_prompts_given() -> None:
    playground = radixlab.playground(12, prompts=["the cat sat on the mat"])
    assert "‘mat’" in playground.picture.value and "‘mat’" in still_html(playground.sandbox)
    assert "5 of 6 tokens are cached, the last one left out" in click(playground, "match")
    click(playground, "undo")
    click(playground, "undo")
    assert "‘mat’" not in playground.picture.value
    assert playground.buttons["undo"].disabled
    with pytest.raises(radixlab.errors.RequestTooLong):
        radixlab.playground(4, prompts=["the cat sat on the mat"])
    with pytest.raises(radixlab.errors.InvalidArgument, match="prompts must be a list"):
        radixlab.playground(prompts="the cat")


def test_the_fields_show_a_pool_larger_than_they_offer() -> None:
    playground = radixlab.playground(2000, 100)
    assert (playground.num_pages.value, playground.page_size.value) == (2000, 100)
    assert "A new pool: 200000 slots" in click(playground, "new pool")


def test_a_session_by_its_buttons() -> None:
    playground = radixlab.playground(12)
    assert ">created<" not in playground.picture.value
    click(playground, "insert", "the cat sat on the mat")
    assert "‘mat’" in playground.picture.value
    assert "4 of 6 tokens are cached" in click(playground, "match", "the cat sat on a hat")
    assert "split: upper part" in playground.picture.value
    click(playground, "lock")
    assert playground.running.options == ("R2",)
    assert "inserted first" in click(playground, "unlock")
    click(playground, "insert")
    click(playground, "unlock")
    assert playground.running.options == ()
    playground.count.value = 8
    assert "free again" in click(playground, "evict")
    assert ">evicted<" in playground.picture.value
    assert "Undone: evict 8." in click(playground, "undo")
    assert playground.player().steps == playground.sandbox.steps
    assert "A new pool: 12 slots" in click(playground, "new pool")
    assert playground.buttons["undo"].disabled


@pytest.mark.parametrize(
    ("name", "prompt", "sentence"),
    [
        ("match", "", "The prompt has no tokens; at least 1 is needed."),
        ("unlock", "a", "No request runs: lock a prompt first."),
        ("lock", "a b c d e f g h i j", "needs 10 slots; the pool has 4."),
        ("evict", "a", "Slots to evict must be from 1 to the 0 that are evictable, got 1."),
    ],
)
def test_errors_are_sentences_and_leave_the_picture(name: str, prompt: str, sentence: str) -> None:
    playground = radixlab.playground(4)
    picture = playground.picture.value
    message = click(playground, name, prompt)
    assert "Refused" in message and sentence in message and "Traceback" not in message
    assert playground.picture.value == picture


def test_without_a_kernel_there_is_a_still_that_says_so_first_and_has_no_field() -> None:
    playground = radixlab.playground(24)
    click(playground, "insert", "the cat sat on the mat")
    bundle = playground._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    still = bundle["text/html"]
    assert still.index("A still of the playground") < still.index("<svg")
    assert "‘mat’" in still and "rl-slim" in still
    assert not re.search(r"<(input|button|select)", still)


def test_the_tiny_gpt2_may_be_the_tokenizer() -> None:
    playground = radixlab.playground(40, tokenizer="tiny")
    click(playground, "insert", "Mr. Darcy looked at Elizabeth")
    first = playground.sandbox.tokenizer.encode("Mr. Darcy looked at Elizabeth")[0]
    assert f"‘{playground.sandbox.decode_one(first)}’" in playground.picture.value


# --- charts --------------------------------------------------------------------------------------


def test_a_radix_tree_has_as_many_nodes_as_branches_a_trie_as_many_as_tokens() -> None:
    few, many = (count_trees(shared_prompts(length)) for length in (16, 512))
    assert few.radix_nodes == many.radix_nodes
    assert many.trie_nodes == 32 * few.trie_nodes
    assert many.trie_lookups == 512 and many.radix_lookups == few.radix_lookups < 5
    assert many.radix_bytes < many.trie_bytes / 10


def test_the_trie_is_counted_like_a_set_of_prefixes() -> None:
    prompts = shared_prompts(12)
    prefixes = {tuple(p[:i]) for p in prompts for i in range(1, len(p) + 1)}
    assert count_trees(prompts).trie_nodes == len(prefixes)


def test_the_chart_shows_both_trees_in_the_house_style() -> None:
    figure = plot_trees([8, 64])
    axes = figure.get_axes()
    assert [each.get_title(loc="left") for each in axes] == [
        "nodes",
        "look-ups for one prompt",
        "bytes",
    ]
    for each in axes:
        trie, radix = each.get_lines()
        assert (trie.get_color(), radix.get_color()) == CYCLE[:2]
        assert trie.get_marker() != radix.get_marker()
        assert trie.get_linestyle() != radix.get_linestyle()


def test_the_style_is_made_of_settings_that_matplotlib_knows() -> None:
    import matplotlib

    assert set(rc()) <= set(matplotlib.rcParams)
