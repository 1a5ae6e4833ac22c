"""The step player from Python's side, the pool strip, and what a notebook shows by itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from viz_world import lives, long_life, sentence_steps

import radixlab
from radixlab.errors import InvalidArgument
from radixlab.lifecycle import Step
from radixlab.scenarios import SCENARIOS, chapter_scenario
from radixlab.snapshot import Snapshot
from radixlab.viz import StepPlayer, draw_pool, draw_tree, play
from radixlab.viz.frames import QUESTIONS, make_frames, picture
from radixlab.viz.marks import main_event, slot_states
from radixlab.viz.palette import EVENTS, STATES
from radixlab.viz.poolsvg import Grid, draw_strip, pool_title
from radixlab.viz.source import FOUND, KEY_LINES, executed, read_source
from radixlab.viz.theme import read_static, style_sheet
from radixlab.viz.words import escape

ROOT = Path(__file__).parents[1]
ALL_STEPS = [step for make in SCENARIOS.values() for step in make().steps()]


# --- source lines --------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "piece"), [*KEY_LINES.items(), *FOUND.items()])
def test_each_key_line_stands_in_its_function_exactly_once(function: str, piece: str) -> None:
    listing = read_source(function)
    assert listing is not None
    assert len(listing.find(piece)) == 1


@pytest.mark.parametrize("function", KEY_LINES)
def test_a_listing_is_the_real_source_with_its_line_numbers_and_no_docstring(function: str) -> None:
    listing = read_source(function)
    assert listing is not None
    lines = (ROOT / listing.file).read_text().splitlines()
    for number, text in listing.lines:
        assert lines[number - 1].strip() == text.strip()
    assert '"""' not in "".join(text for _, text in listing.lines)


@pytest.mark.parametrize("step", ALL_STEPS, ids=lambda step: f"{step.number}-{step.name}")
def test_23_each_step_marks_the_line_that_ran_in_the_colour_of_what_it_touched(step: Step) -> None:
    """Which line did that? The one in the colour of the object."""
    shown = executed(step)
    assert shown and all(marked.line is not None for marked in shown)
    assert main_event(step) in {marked.event for marked in shown}


def test_a_split_shows_the_line_that_cut_the_edge() -> None:
    cuts = [step for step in sentence_steps() if step.changes.split]
    assert len(cuts) == 2
    for step in cuts:
        match, walk = executed(step)
        assert (match.event, walk.event) == ("matched", "split")
        assert walk.listing.name == "RadixTree.walk"


@pytest.mark.parametrize("function", ["nowhere.at_all", "radixlab.nothing", "builtins.len"])
def test_a_function_without_source_shows_none(function: str) -> None:
    assert read_source(function) is None


# --- frames --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(lives())
def test_any_lifecycle_makes_frames_of_well_formed_pictures(
    life: tuple[Snapshot, list[Step]],
) -> None:
    start, steps = life
    if not steps:
        return
    story = make_frames(steps, start=start)
    assert len(story["frames"]) == len(steps)
    for number in range(len(story["pictures"])):
        drawn = ET.fromstring(picture(story, number))
        assert drawn.get("role") == "img" and drawn.find("title") is not None
    for frame, step in zip(story["frames"], steps, strict=True):
        assert sum(frame["sizes"]) == step.snapshot.total_size
        assert frame["caption"] == step.caption
    json.dumps(story)


@settings(max_examples=30)
@given(lives())
def test_every_slot_has_the_state_that_the_sizes_count(life: tuple[Snapshot, list[Step]]) -> None:
    for step in life[1]:
        states = list(slot_states(step.snapshot).values())
        counted = [states.count(state) for state in STATES]
        s = step.snapshot
        assert counted == [s.free_size, s.evictable_size, s.protected_size, s.private_size]


def test_all_frames_of_a_story_have_one_size_so_that_nothing_jumps() -> None:
    story = play("chapter").story
    for shown in (lambda f: [f["tree"]], lambda f: f["pools"]):
        for numbers in zip(*map(shown, story["frames"]), strict=True):
            heights = {ET.fromstring(picture(story, n)).get("height") for n in numbers}
            assert len(heights) == 1


def described(svg: str) -> tuple[str, str]:
    """Name and description of a picture, as a browser tells them."""
    drawn = ET.fromstring(svg.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
    return drawn.findtext("title", ""), drawn.findtext("desc", "")


def test_a_tree_s_description_tells_its_nodes_and_is_not_read_out_at_each_step() -> None:
    story, steps = play("chapter").story, list(chapter_scenario().steps())
    for frame, step in zip(story["frames"], steps, strict=True):
        name, told = described(picture(story, frame["tree"]))
        nodes = len(step.snapshot.nodes) - 1
        assert name == f"Radix tree, {nodes} node{'s' * (nodes != 1)} below the root"
        for node in step.snapshot.nodes[1:]:
            slots = ", ".join(f"p{slot}" for slot in node.value)
            words = f"{list(node.key)} -> [{slots}]; ref_count {node.ref_count}"
            assert f"{words}, used at {node.timestamp}" in told
        assert "ref_count" not in frame["caption"] or step.name in ("lock", "unlock")
    below = described(picture(story, story["frames"][6]["tree"]))[1]
    assert re.findall(r"Level (\d)", below) == ["1", "2"]
    still = described(draw_tree(steps[6]).svg)
    assert still == (name_of(steps[6]), below), "both kinds of picture say the same"


def name_of(step: Step) -> str:
    return f"Radix tree, {len(step.snapshot.nodes) - 1} nodes below the root"


def test_both_kinds_of_picture_have_one_word_for_the_time_of_last_use() -> None:
    step = list(chapter_scenario().steps())[6]
    for svg in (picture(play("chapter").story, play("chapter").story["frames"][6]["tree"]),
                draw_tree(step).svg):  # fmt: skip
        assert re.search(r">[^<]*used at \d+<", svg) and not re.search(r"used \d", svg)


def test_a_strip_too_wide_for_a_phone_has_a_slim_one_of_eight_to_a_row() -> None:
    for pages, page_size, sizes in ((8, 1, [8]), (12, 1, [12, 8]), (2, 16, [16, 8])):
        manager = radixlab.CacheManager(pages, page_size)
        drawn = draw_pool(manager)
        grids = [Grid.of(radixlab.take_snapshot(manager), slim) for slim in (False, True)]
        assert [grid.columns for grid in grids][: len(sizes)] == sizes
        for svg in filter(None, [drawn.svg, drawn.slim]):
            names = [text.text for text in ET.fromstring(svg).iter("text")]
            assert [n for n in names if n and n.isdigit()] == [
                str(slot) for slot in range(pages * page_size)
            ]
        assert bool(drawn.slim) == (len(sizes) == 2)
        if drawn.slim:
            assert float(ET.fromstring(drawn.slim).get("width", "")) <= 250
            assert drawn.slim in drawn.html


def test_without_a_widget_there_are_the_steps_as_a_list() -> None:
    player = play("chapter", title="R1 & R2")
    bundle, _ = player._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"].count("<li>") == 16 and "R1 &amp; R2" in bundle["text/html"]
    assert "<b>match</b>. " in bundle["text/html"]
    assert all(escape(step.caption) in bundle["text/html"] for step in player.steps)


def test_questions_come_from_the_house_or_from_the_teacher() -> None:
    def asked(**options: object) -> list[str]:
        return [frame["question"] for frame in play("chapter", **options).story["frames"]]

    assert not any(asked())
    assert asked(predict=True)[0] == f"R1: {QUESTIONS['match']}"
    own = asked(predict={1: "What is found?", "evict": "Who goes?"})
    assert own[0] == "What is found?" and own[11] == "Who goes?" and not any(own[1:11])
    names = {step.name for step in ALL_STEPS}
    assert names <= set(QUESTIONS)


def test_tokens_may_be_shown_as_text() -> None:
    player = StepPlayer(sentence_steps(), decode=lambda token: f"w{token}")
    assert any("‘w101’" in part for part in player.story["parts"])


def test_23_one_can_step_back_and_jump_and_keys_do_not_scroll_the_page() -> None:
    """People ask to step back (algoscope-hq/AlgoScope#839), and for keys that leave the page where
    it is (pythontutor-dev/pythontutor#70). A browser tries it in
    `test_every_control_works_on_a_static_page`."""
    source = read_static("player.js")
    for label in ("First step", "Back one step", "Next step", "Last step", "Jump to step"):
        assert f'"{label}"' in source
    body = source.split("function key(event)")[1].split("\n  }")[0]
    keys = re.findall(r"(\w+): (?:forward|\(\) => go)", body)
    assert keys == ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End"]
    assert body.index("!moves[event.key]) return") < body.index("event.preventDefault()")


def test_23_every_step_has_words_to_be_announced() -> None:
    """A picture alone says nothing to a screen reader."""
    assert '"aria-live": "polite"' in read_static("player.js")
    for name in SCENARIOS:
        frames = play(name).story["frames"]
        assert all(frame["caption"] and frame["name"] for frame in frames)
        assert all(frame["told"] for frame in frames if frame["event"] not in ("", "matched"))


def test_24_all_pictures_are_in_the_widget_s_state() -> None:
    """A static page has nobody to ask for more (jupyter-book/jupyter-book#1991)."""
    state = json.loads(json.dumps(play("chapter").get_state()))
    story = state["story"]
    assert len(story["frames"]) == 16
    for frame in story["frames"]:
        for number in (frame["tree"], *frame["pools"]):
            ET.fromstring(picture(story, number))
    assert not re.search(r"model\.send|fetch\(|XMLHttpRequest|import ", read_static("player.js"))


# --- the widget ----------------------------------------------------------------------------------


def test_the_index_can_be_set_and_stays_within_the_steps() -> None:
    player = play("chapter")
    assert player.step.name == "match"
    player.index = 11
    assert player.step.name == "evict"
    player.index = 99
    assert player.index == 15
    player.index = -3
    assert player.index == 0


def test_play_takes_a_name_a_scenario_a_recorder_and_steps() -> None:
    captions = [step.caption for step in chapter_scenario().steps()]
    sources = ["chapter", chapter_scenario(), list(chapter_scenario().steps())]
    for source in sources:
        assert [step.caption for step in play(source).steps] == captions
    sandbox = radixlab.viz.Sandbox()
    sandbox.insert("a b c")
    assert play(sandbox.recorder).steps == sandbox.steps
    assert radixlab.play is play


def test_an_unknown_scenario_and_no_steps_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidArgument, match="one of chapter, race, evict-and-free"):
        play("life")
    with pytest.raises(InvalidArgument, match="at least one step"):
        StepPlayer([])


def test_the_text_of_a_player_is_the_transcript_of_all_its_steps() -> None:
    player = play("chapter")
    lines = str(player).splitlines()
    assert len(lines) == 1 + 16 and "evicted" in lines[12]
    for step, line in zip(player.steps, lines[1:], strict=True):
        assert step.caption in line


def test_three_hundred_steps_stay_under_two_megabytes() -> None:
    for pages, page_size in ((40, 2), (32, 1), (16, 4), (128, 1)):
        player = StepPlayer(long_life(300, pages, page_size))
        assert len(player.steps) == 300
        assert len(json.dumps(player.get_state()).encode()) < 2_000_000


def test_the_code_in_the_browser_is_a_few_kilobytes() -> None:
    assert len(read_static("player.js")) < 12_000
    assert len(style_sheet(player=True)) < 13_000


def test_a_saved_player_is_one_file_that_names_no_other_host(tmp_path: Path) -> None:
    text = play("chapter", title="R1 </script> & R2").save(tmp_path / "a.html").read_text()
    hosts = set(re.findall(r"https?://[\w.]+|//[\w]+\.[\w.]+", text))
    assert hosts <= {"http://www.w3.org"}, hosts
    assert "default-src 'none'" in text
    assert text.count("</script>") == 2
    assert "<b>match</b>. R1: 4 of 6 tokens are cached" in text, "without JavaScript: the text"


def test_a_title_may_have_braces(tmp_path: Path) -> None:
    """The style sheet was pasted into it."""
    title = "a{{css}}b{{title}}{{data}}"
    text = play("chapter", title=title).save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"<title>{title}</title>" in text and f'"title": "{title}"' in text


def test_a_saved_picture_or_player_holds_nothing_that_a_browser_can_t_read(tmp_path: Path) -> None:
    manager = radixlab.CacheManager(4)
    request = radixlab.Request([1, 2], request_id="a\x0cb\ud800")
    manager.admit(request)
    manager.allocate(request, 2)
    drawn = ET.parse(draw_pool(manager).save(tmp_path / "pool.svg"))
    assert "a\ufffdb\ufffd" in "".join(drawn.getroot().itertext())
    player = play("chapter", title="a\ud800", decode=lambda token: "b\x1b\ud800")
    text = player.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<title>a\ufffd</title>" in text and "‘b\ufffd\ufffd’" in text


def test_each_state_and_event_has_its_colours_in_the_style_sheet() -> None:
    css = style_sheet()
    for name, look in (STATES | EVENTS).items():
        assert f"--rl-{name}-fill:light-dark({look.light},{look.dark})" in css
        assert f"--rl-{name}-line:{look.line}" in css


# --- the pool strip ------------------------------------------------------------------------------


def test_a_pool_picture_says_in_words_what_it_shows() -> None:
    steps = list(chapter_scenario().steps())
    drawing = draw_pool(steps[4])
    assert drawing.text.splitlines()[0] == (
        "Pool of 8 slots: 2 free, 0 cached and evictable, 4 cached and protected, 2 private"
    )
    assert "Page table of R1: [p0, p1, p2, p3, p6, p7]" in drawing.text
    assert "[p6, p7]: free → R1" in drawing.text
    drawn = ET.fromstring(drawing.svg)
    assert drawn.findtext("title") == pool_title(steps[4].snapshot)
    assert [t.text for t in drawn.iter("text")][-6:] == ["p0", "p1", "p2", "p3", "p6", "p7"]


def test_each_state_of_a_slot_has_a_mark_of_its_own() -> None:
    marks = [
        (css.split()[0], re.sub(r"[\d.]+ [\d.]+", "", d))
        for css, d in re.findall(r'<path class="(\S+ (?:evictable|protected|private))" d="([^"]*)"',
                                 draw_pool(list(SCENARIOS["race"]().steps())[8]).svg)
    ]  # fmt: skip
    assert len(set(marks)) >= 2


@pytest.mark.parametrize("pages", [1, 3, 8, 16, 64, 128, 1000, 40_000])
@pytest.mark.parametrize("page_size", [1, 2, 5, 16])
def test_a_strip_of_any_size_shows_each_slot_and_stays_small(pages: int, page_size: int) -> None:
    manager = radixlab.CacheManager(pages, page_size)
    snapshot = radixlab.take_snapshot(manager)
    grid = Grid.of(snapshot)
    assert grid.total * grid.unit == pages * page_size
    canvas = draw_strip(snapshot)
    assert canvas.width <= 700
    if page_size * pages <= 2048:
        assert len(canvas.svg("")) < 60_000


# --- in a notebook -------------------------------------------------------------------------------

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import radixlab
from radixlab.scenarios import chapter_scenario
assert "radixlab.viz" not in sys.modules, "nothing is drawn yet"
scenario = chapter_scenario()
manager = scenario.manager
shown = [manager.cache.tree, manager.cache, manager, radixlab.take_snapshot(manager)]
shown += [list(scenario.steps())[0]]
for each in shown:
    bundle, _ = shell.display_formatter.format(each)
    print(type(each).__name__, sorted(bundle), bundle["text/html"].count("<svg"))
    assert "[p0, p1, p2, p3]" in bundle["text/plain"]
"""


def run(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_in_a_notebook_trees_caches_managers_and_steps_show_themselves() -> None:
    lines = [line.split(" ", 1) for line in run(SHELL).splitlines()]
    mime = "['text/html', 'text/plain']"
    assert lines == [
        ["RadixTree", f"{mime} 1"],
        ["RadixCache", f"{mime} 1"],
        ["CacheManager", f"{mime} 2"],
        ["Snapshot", f"{mime} 2"],
        ["Step", f"{mime} 2"],
    ]


def test_outside_a_notebook_nothing_of_ipython_or_the_pictures_is_loaded() -> None:
    run(
        "import radixlab, sys; radixlab.RadixTree\n"
        "assert not {'IPython', 'radixlab._display', 'radixlab.viz', 'graphviz', 'anywidget'} "
        "& set(sys.modules)"
    )


def test_what_is_missing_is_named_with_the_way_to_get_it() -> None:
    code = "import sys; sys.modules['anywidget'] = None\nimport radixlab\nradixlab.play"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "radixlab.play needs anywidget: pip install 'radixlab[lab]'" in answer.stderr
