"""`radixlab sweep`: sizes as one writes them, the table, the curve, the picture, the command."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from radixlab.cli import app
from radixlab.errors import InvalidArgument
from radixlab.policies import POLICIES
from radixlab.simulate import Replay, sweep
from radixlab.strategies import STRATEGIES
from radixlab.sweep import (
    draw_curve,
    draw_runs,
    parse_arrivals,
    parse_capacities,
    parse_cost,
    rows,
    size_name,
    text_curve,
)
from radixlab.traces import Trace, to_trace
from radixlab.virtual import CostModel
from radixlab.virtual import sweep as sweep_engine
from radixlab.viz.palette import CYCLE, GREY
from radixlab.viz.style import rc
from radixlab.workloads import WORKLOADS, batch, closed_loop, poisson


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1M,3M,unlimited", [1_000_000, 3_000_000, None]),
        ("unlimited, 2.5k,512", [512, 2500, None]),
        ("1G,1000M", [1_000_000_000]),
    ],
)
def test_capacities_as_one_writes_them(text: str, sizes: list[int | None]) -> None:
    assert parse_capacities(text) == sizes


@pytest.mark.parametrize("text", ["", "1M,", "-1k", "0", "many", "infM", "nan", "1T", "M"])
def test_what_is_no_capacity_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"capacity must be tokens such as 4096, 500k"):
        parse_capacities(text)


@pytest.mark.parametrize("name", ["512", "1k", "2.5M", "3G", "unlimited"])
def test_a_size_is_named_as_it_was_written(name: str) -> None:
    assert size_name(parse_capacities(name)[0]) == name


def results() -> tuple[Trace, list[Replay]]:
    trace = to_trace(WORKLOADS["chat"](0), 16, "chat")
    return trace, sweep([trace], [4000, 16_000, None], ["lru", "belady"])


def test_the_table_has_a_row_for_each_capacity() -> None:
    _, found = results()
    header, table = rows(found)
    assert header == ["tokens", "lru", "belady"]
    assert [row[0] for row in table] == ["4k", "16k", "unlimited"]
    best = f"{100 * found[-1].block_hit_rate:.1f} / {100 * found[-1].token_hit_rate:.1f}"
    assert table[-1][1:] == [best, best]


def test_the_curve_in_text_marks_each_rate_at_its_place() -> None:
    lines = text_curve(results()[1], width=40).splitlines()
    assert len(lines) == 5
    assert lines[1].index("a") < lines[1].index("b")
    assert lines[3].endswith("+"), "both find the same without a limit, the most of all"
    assert lines[4].split() == ["a", "lru", "b", "belady"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_curve_as_a_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"curve.{suffix}"
    draw_curve(results()[1], path)
    assert path.stat().st_size > 5000


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sweep", *map(str, arguments)])
    return result.exit_code, result.output


def made_trace(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    requests = to_trace(WORKLOADS["few-shot"](0)[:40], 20).requests
    with path.open("w") as file:
        for r in requests:
            row = {"timestamp": r.arrival, "input_length": r.input_length}
            row |= {"output_length": r.output_length, "hash_ids": r.hash_ids}
            file.write(json.dumps(row) + "\n")
    return path


def test_the_command_prints_the_rates_and_writes_what_it_is_asked_for(tmp_path: Path) -> None:
    csv, chart = tmp_path / "runs.csv", tmp_path / "curve.svg"
    options = ("--block-size", 20, "--capacity", "2k,unlimited", "--eviction", "lru,lfu,belady")
    trace = made_trace(tmp_path)
    code, output = run("--trace", trace, *options, "--csv", csv, "--chart", chart)
    assert code == 0, output
    assert "40 requests, 34400 prompt tokens" in output
    assert "unlimited  83." in output or "unlimited  8" in output
    assert chart.exists()
    assert len(csv.read_text().splitlines()) == 7
    assert run("--trace", trace, *options, "--csv", csv) == (0, output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--eviction", "clock"], "eviction must be one of lru"),
        (["--capacity", "lots"], "capacity must be tokens such as"),
        (["--block-size", "512"], "made.jsonl, line 1: hash_ids must be"),
        (["--eviction", "priority"], "eviction must be one of lru"),
        (["--policy", "lpm"], "--policy must be left out beside --trace"),
        (["--page-size", "16"], "--page-size must be left out beside --trace"),
        (["--arrivals", "batch"], "--arrivals must be left out beside --trace"),
        (["--cost", "1,2"], "--cost must be left out beside --trace"),
        (["--max-running", "8"], "--max-running must be left out beside --trace"),
        (["--seed", "0"], "--seed must be left out beside --trace"),
        (["--workload", "rag"], "a --trace or a --workload"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], message: str) -> None:
    code, output = run("--trace", made_trace(tmp_path), "--block-size", "20", *options)
    assert code == 2 and len(output.splitlines()) == 1
    assert message in output


@pytest.mark.parametrize("kind", ["--trace made.jsonl --block-size 20", "--workload rag"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--chart", "no/such/folder/x.svg", "chart must be a file in a folder that exists"),
        ("--chart", ".", "chart must be a file in a folder that exists"),
        ("--chart", "x.foo", "chart must be a file that ends in .svg, .png, .pdf, got 'x.foo'"),
        ("--chart", "x", "chart must be a file that ends in"),
        ("--csv", "no/such/folder/x.csv", "csv must be a file in a folder that exists"),
        (
            "--csv",
            "dangling.csv",
            "csv must be a file in a folder that exists, got 'dangling.csv -",
        ),
        ("--csv", "folder/../x.svg --chart x.svg", "chart must be another file than csv"),
        ("--capacity", "", "capacity must be tokens such as"),
        ("--eviction", "", "eviction must be one of lru"),
        ("--jobs", "0", "jobs must be 1 or more, or -1 for each core, got 0"),
    ],
)
def test_what_would_fail_in_the_end_is_refused_in_one_line_before_anything_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    option: str,
    value: str,
    message: str,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it ran")

    made_trace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("radixlab.grid._parallel", never)
    (tmp_path / "dangling.csv").symlink_to("no/such/folder/x.csv")
    (tmp_path / "folder").mkdir()
    code, output = run(*kind.split(), option, *(value.split() or [""]))
    assert code == 2 and message in output
    assert "Traceback" not in output and len(output.splitlines()) == 1


def test_a_chart_that_fails_all_the_same_comes_after_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("the disk is full")

    monkeypatch.setattr("radixlab.cli.draw_runs", fail)
    code, output = run("--workload", "rag", "--policy", "fcfs", "--chart", "x.svg")
    assert code == 2
    table, refused = output.split("PermissionError")
    assert "rag" in table and "the disk is full" in refused


def test_a_trace_whose_name_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    trace = made_trace(tmp_path).rename(tmp_path / os.fsdecode(b"\xe9.jsonl"))
    options = ["--block-size", 20, "--capacity", "2k", "--eviction", "lru"]
    code, output = run("--trace", trace, *options, "--csv", tmp_path / "runs.csv")
    assert code == 2 and "UnicodeEncodeError" in output and len(output.splitlines()) == 1


def test_results_may_be_kept_through_a_link(tmp_path: Path) -> None:
    (link := tmp_path / "link.csv").symlink_to(tmp_path / "runs.csv")
    options = ["--workload", "rag", "--policy", "fcfs", "--capacity", "8k"]
    assert run(*options, "--csv", link)[0] == 0
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 2


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    """Matplotlib took what stands between two for mathematics."""
    name = r"$\nothing{$"
    draw_curve([replace(each, trace=name) for each in results()[1]], tmp_path / "curve.svg")
    runs = sweep_engine({name: WORKLOADS["rag"](0)[:10]})
    draw_runs(runs, tmp_path / "runs.svg")
    for path in tmp_path.iterdir():
        assert f"<!-- {name} -->" in path.read_text()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, output = run("--trace", tmp_path / "none.jsonl")
    assert code == 2 and "FileNotFoundError" in output


# --- workloads through the engine ---------------------------------------------------------------
def test_the_command_serves_workloads_on_a_virtual_clock_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    csv, chart = tmp_path / "runs.csv", tmp_path / "runs.svg"
    options = ["--workload", "few-shot,rag", "--policy", "fcfs,hrrn", "--eviction", "lru,slru"]
    options += ["--capacity", "4k,unlimited", "--arrivals", "closed:8", "--csv", str(csv)]
    code, output = run(*options, "--chart", chart)
    assert code == 0, output
    lines = [line.split() for line in output.splitlines() if line.startswith(("few-shot", "rag"))]
    assert len(lines) == 16
    assert lines[0][:5] == ["few-shot", "fcfs", "lru", "4k", "16"]
    assert chart.stat().st_size > 5000
    assert len(csv.read_text().splitlines()) == 17
    assert run(*options) == (0, output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a --trace or a --workload"),
        (["--workload", "chats"], "workload must be one of few-shot, chat"),
        (["--workload", "rag", "--block-size", "16"], "--block-size must be left out beside"),
        (["--workload", "rag", "--policy", "priority-lof"], "policy must be one of fcfs, lpm"),
        (["--workload", "rag", "--eviction", "priority"], "eviction must be one of lru"),
        (["--workload", "rag", "--policy", "lifo"], "policy must be one of fcfs, lpm"),
        (["--workload", "rag", "--eviction", "belady"], "eviction must be one of lru"),
        (["--workload", "rag", "--page-size", "many"], 'page_size must be tokens such as "1,16"'),
        (["--workload", "rag", "--arrivals", "soon"], 'arrivals must be "batch", "poisson:RATE"'),
        (
            ["--workload", "rag", "--capacity", "unlimited", "--page-size", "1,100000000000"],
            "page_size must be at most 950, the tokens of the longest job, got 100000000000",
        ),
        (["--workload", "rag", "--cost", "nothing.json"], "FileNotFoundError"),
        (["--workload", "rag", "--cost", "1,2,3"], "cost must be two numbers of seconds"),
        (["--workload", "rag", "--cost", "5"], "cost must be two numbers of seconds"),
        (["--workload", "rag", "--cost", "-1,2"], "per_token must be seconds, 0 or more"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_simulation(options: list[str], message: str) -> None:
    code, output = run(*options)
    assert code == 2 and len(output.splitlines()) == 1
    assert message in output


def test_all_can_be_swept_but_what_goes_by_a_priority_that_no_job_has() -> None:
    left_out = {"priority", "priority-lof"}
    policies, evictions = sorted(set(POLICIES) - left_out), sorted(set(STRATEGIES) - left_out)
    options = ["--capacity", "unlimited", "--policy", ",".join(policies)]
    code, output = run("--workload", "adversarial", *options, "--eviction", ",".join(evictions))
    assert code == 0, output
    table = [line.split() for line in output.splitlines() if line.startswith("adversarial")]
    assert {tuple(row[1:3]) for row in table} == {(p, e) for p in policies for e in evictions}


def test_arrivals_as_one_writes_them() -> None:
    jobs = WORKLOADS["rag"](0)[:6]
    assert parse_arrivals("batch")(jobs) == batch(jobs)
    assert parse_arrivals("poisson:2.5", 4)(jobs) == poisson(jobs, 2.5, 4)
    assert parse_arrivals("closed:2")(jobs) == closed_loop(jobs, 2)
    assert parse_arrivals("closed:2:0.5")(jobs) == closed_loop(jobs, 2, 0.5)
    for text in ("", "batch:1", "poisson", "poisson:often", "closed:x", "closed", "closed:1:2:3"):
        with pytest.raises(InvalidArgument, match="arrivals must be"):
            parse_arrivals(text)


def test_costs_as_one_writes_them(tmp_path: Path) -> None:
    assert parse_cost("1e-3, 0.5") == CostModel(0.001, 0.5)
    path = tmp_path / "bench.json"
    rows = [{"tokens": 10, "cached": c, "warm": 1.0 + (10 - c)} for c in (0, 5)]
    path.write_text(json.dumps({"rows": rows}))
    assert parse_cost(str(path)) == CostModel(1.0, 1.0)


def test_fourteen_lines_of_a_chart_are_told_apart_even_without_colour() -> None:
    looks = list(rc()["axes.prop_cycle"])
    assert len({(look["marker"], look["linestyle"]) for look in looks}) == len(looks) == 14
    assert len({(look["color"], look["marker"]) for look in looks}) == 14


def test_charts_wear_the_house_palette(tmp_path: Path) -> None:
    draw_curve(results()[1], path := tmp_path / "curve.svg")
    used = set(re.findall(r"stroke: (#\w+)", path.read_text()))
    assert {colour.lower() for colour in (*CYCLE[:2], GREY)} <= used


def test_a_picture_over_page_sizes_where_there_is_one_capacity(tmp_path: Path) -> None:
    runs = sweep_engine({"rag": WORKLOADS["rag"](0)[:10]}, page_sizes=[1, 16])
    draw_runs(runs, tmp_path / "pages.png")
    assert (tmp_path / "pages.png").stat().st_size > 5000
