"""Trees as DOT: the chapter's examples are compared with committed text.

To write tests/golden/*.dot anew, after a change that is meant, and look at the difference:

    RADIXLAB_GOLDEN=write python -m pytest tests/test_viz_dot.py && git diff tests/golden
"""

from __future__ import annotations

import os
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from viz_world import long_life, sentence_steps

from radixlab.cache import RadixCache
from radixlab.lifecycle import Recorder, Step
from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.scenarios import chapter_scenario
from radixlab.snapshot import NodeSnapshot, Snapshot, take_snapshot
from radixlab.tokens import Namespace
from radixlab.viz import dot, palette
from radixlab.viz.dot import BORDERS, NO_DOT, draw_tree, render, tree_dot
from radixlab.viz.fold import fold
from radixlab.viz.frames import make_frames
from radixlab.viz.marks import mark_nodes, with_removed

GOLDEN = Path(__file__).parent / "golden"


def chapter_pictures() -> dict[str, tuple[Step, Snapshot | None]]:
    """Figures 2 to 4 of section 3.3, and what match, lock, insert, unlock and evict do in 4.2."""
    growing, living = sentence_steps(), list(chapter_scenario().steps())
    shown = [("grow", growing, i) for i, s in enumerate(growing) if s.name in ("match", "insert")]
    names = ("lock", "insert", "unlock", "evict")
    shown += [("life", living, i) for i, s in enumerate(living) if s.name in names]
    return {
        f"{story}-{i + 1:02}-{steps[i].name}": (steps[i], steps[i - 1].snapshot if i else None)
        for story, steps, i in shown
    }


PICTURES = chapter_pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_the_dot_source_is_the_committed_text(name: str) -> None:
    step, before = PICTURES[name]
    source = tree_dot(step, before=before).source
    path = GOLDEN / f"{name}.dot"
    if os.environ.get("RADIXLAB_GOLDEN") == "write":
        path.write_text(source, encoding="utf-8")
    assert source == path.read_text(encoding="utf-8"), "see the top of this file"


def test_no_committed_picture_is_forgotten() -> None:
    assert {path.stem for path in GOLDEN.glob("*.dot")} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_23_what_happened_is_told_by_colour_border_and_word(name: str) -> None:
    step, before = PICTURES[name]
    source = tree_dot(step, before=before).source
    for uuid, mark in mark_nodes(step).items():
        (line,) = (each for each in source.splitlines() if each.startswith(f"\tn{uuid} ["))
        look = palette.EVENTS[mark.event]
        assert look.line in line and look.light in line
        assert BORDERS[mark.event]["style"] in line
        assert mark.words.replace("->", "-&gt;") in line


def test_each_event_has_a_border_of_its_own() -> None:
    borders = [tuple(border.items()) for border in BORDERS.values()]
    assert len(set(borders)) == len(BORDERS)


def test_a_tree_a_cache_a_manager_and_a_snapshot_draw_the_same() -> None:
    manager = chapter_scenario().manager
    sources = [
        tree_dot(each).source
        for each in (manager.cache.tree, manager.cache, manager, take_snapshot(manager))
    ]
    assert len(set(sources)) == 1


def test_a_node_tells_token_ids_slots_ref_count_recency_and_namespace() -> None:
    manager = CacheManager(8, checked=True)
    request = Request([5, 6, 7], request_id="N", namespace=Namespace(adapter="law"))
    manager.admit(request)
    manager.allocate(request, 3)
    request.computed_len = 3
    manager.cache_request(request)
    source = tree_dot(manager).source
    node = next(iter(manager.cache.tree.root.children.values()))
    for word in ("[5, 6, 7]", "[p0, p1, p2]", "ref_count 1", f"used at {node.timestamp}", "law"):
        assert word in source


def test_tokens_may_be_shown_as_text_and_hostile_text_is_no_markup() -> None:
    cache = one_edge(3)
    source = tree_dot(cache, decode=lambda token: f"<b>&{token}\n\\").source
    assert "‘&lt;b&gt;&amp;1↵\\\\’" in source or "‘&lt;b&gt;&amp;1↵\\’" in source
    assert ET.fromstring(draw_tree(cache, decode=lambda token: f"<b>&{token}\n\\").svg) is not None


def test_what_graphviz_would_replace_in_a_label_stands_as_it_is() -> None:
    piece = r"\N\G\L\n\\\x"
    drawn = ET.fromstring(draw_tree(one_edge(1), decode=lambda token: piece).svg)
    assert f"[‘{piece}’]" in [text.text for text in drawn.iter() if text.tag.endswith("text")]


NO_XML = "\x00\x0b\x0c\x1b\ufffe\uffff\ud800"


def test_what_xml_forbids_is_shown_as_a_sign(tmp_path: Path) -> None:
    picture = draw_tree(one_edge(1), decode=lambda token: f"a{NO_XML}b\tc😀")
    words = "".join(ET.parse(picture.save(tmp_path / "tree.svg")).getroot().itertext())
    assert f"a{len(NO_XML) * chr(0xFFFD)}b" in words and "c😀" in words


def test_a_long_edge_is_shortened_in_the_middle_and_tells_its_length() -> None:
    source = tree_dot(one_edge(40)).source
    assert "[1, 2, 3, …, 39, 40] 40 tokens" in source
    assert "[p0, p1, p2, …, p38, p39]" in source


def one_edge(length: int) -> RadixCache:
    from array import array

    cache = RadixCache()
    cache.insert_prefix(range(1, length + 1), array("i", range(length)))
    return cache


def healing() -> tuple[Snapshot, Step]:
    """[1, 2] with [3, 4] and [5, 6] below it; [5, 6] is evicted, and two edges become one."""
    manager = CacheManager(8, checked=True)
    recorder = Recorder(manager)
    for prompt in ([1, 2, 3, 4], [1, 2, 5, 6]):
        request = Request(prompt)
        manager.admit(request)
        manager.allocate(request, 4)
        request.computed_len = 4
        manager.cache_request(request)
        manager.release(request)
    manager.match(Request([1, 2, 3, 4, 9]))
    before = recorder.record(5, manager.cache.insert_prefix, "two prompts").snapshot
    manager.evict(1)
    return before, recorder.record(7, manager.cache.evict, "one goes")


def test_an_edge_that_heals_is_marked_and_the_ghost_tells_what_it_hung_below() -> None:
    before, step = healing()
    ((_, lower),) = step.changes.healed
    marks = mark_nodes(step, before)
    assert marks[lower].words == "healed, two edges are one again"
    assert [mark.words for mark in marks.values() if mark.event == palette.EVICTED] == [
        "evicted, was below [1, 2]"
    ]
    for told in (tree_dot(step, before=before).source, str(draw_tree(step, before=before))):
        assert "healed, two edges are one again" in told and "was below [1, 2]" in told
    (frame,) = make_frames([step], start=before)["frames"]
    assert "healed, two edges are one again" in frame["told"] and frame["event"] == palette.EVICTED


# --- large trees ---------------------------------------------------------------------------------


def bushy(number: int = 300) -> list[NodeSnapshot]:
    nodes = [NodeSnapshot(0, None, (), (), 0, 0, None)]
    for uuid in range(1, number + 1):
        nodes.append(NodeSnapshot(uuid, (uuid - 1) // 3, (uuid, uuid), (uuid, uuid), 0, uuid, None))
    return nodes


@pytest.mark.parametrize("marked", [[], [300], [299, 150, 7]])
def test_hundreds_of_nodes_are_folded_into_stubs_that_count_them(marked: list[int]) -> None:
    nodes = bushy()
    branches = fold(nodes, marked, 20).walk()
    shown = {branch.node.uuid for branch in branches}
    stubs = [branch.stub for branch in branches if branch.stub]
    assert len(shown) <= 20 + len(stubs)
    assert len(shown) + sum(stub.nodes for stub in stubs) == len(nodes)
    assert sum(len(nodes[u].key) for u in shown) + sum(s.tokens for s in stubs) == 600
    for uuid in marked:
        path = uuid
        while path:
            assert path in shown
            path = (path - 1) // 3


def test_marked_nodes_that_do_not_fit_are_counted_in_their_stub() -> None:
    root = fold(bushy(), list(range(1, 301)), 20)
    stubs = [branch.stub for branch in root.walk() if branch.stub]
    shown = len(root.walk()) - 1
    assert shown + sum(stub.marked for stub in stubs) == 300
    assert "of them marked" in str(stubs[0])


def test_nothing_is_folded_in_a_small_tree() -> None:
    assert all(branch.stub is None for branch in fold(bushy(12), (), 24).walk())


def test_a_picture_of_hundreds_of_nodes_stays_small() -> None:
    source = tree_dot(Snapshot(1, 600, 600, 0, 0, (), tuple(bushy()), ())).source
    assert source.count("[label=") < 60 and "+ " in source


# --- with dot, with the packaged renderer, with neither ------------------------------------------


@pytest.mark.parametrize("program", ["dot", "graphviz-pure"])
def test_24_the_program_dot_need_not_be_installed(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures failed where `dot` was missing (szagoruyko/pytorchviz#1): a package of pip's draws
    them too."""
    if program == "dot" and shutil.which("dot") is None:
        pytest.skip("no dot here; .ci/run installs it")
    if program == "graphviz-pure":
        hide(monkeypatch, "dot")
        assert dot._packaged_dot(), "the extra lab installs it"
    step, before = PICTURES["life-12-evict"]
    picture = draw_tree(step, before=before)
    drawn = ET.fromstring(picture.svg)
    assert drawn.get("role") == "img" and drawn.get("aria-label")
    words = "".join(drawn.itertext())
    assert "[900, 10, 11, 12]" in words and "evicted" in words
    assert " id=" not in picture.svg, "two pictures on a page would share it"


def test_without_graphviz_there_is_the_tree_as_text_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "dot", "graphviz-pure")
    monkeypatch.setenv("PATH", "")
    picture = draw_tree(PICTURES["life-12-evict"][0])
    assert not picture.svg and picture.note == NO_DOT
    assert "[900, 10, 11, 12] -> [p0, p1, p2, p3]" in str(picture)
    assert set(picture._repr_mimebundle_()) == {"text/plain"}
    with pytest.raises(RuntimeError, match="install Graphviz"):
        picture.save("nowhere.svg")


def test_without_the_python_package_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert draw_tree(one_edge(3)).note == NO_DOT


def hide(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    which = shutil.which
    monkeypatch.setattr(
        dot.shutil, "which", lambda name, **more: None if name in programs else which(name, **more)
    )


def test_a_saved_picture_is_a_file_of_its_own_with_both_themes(tmp_path: Path) -> None:
    text = draw_tree(one_edge(3)).save(tmp_path / "tree.svg").read_text()
    ET.fromstring(text)
    assert "light-dark(" in text and "http" not in text.replace("http://www.w3.org/", "")


def test_any_step_of_a_long_life_can_be_drawn() -> None:
    steps = long_life(60)
    for before, step in zip(steps[::6], steps[1::6], strict=False):
        nodes = with_removed(step, before.snapshot)
        assert {n.uuid for n in step.snapshot.nodes} <= {n.uuid for n in nodes}
        assert render(tree_dot(step, before=before.snapshot).source)
