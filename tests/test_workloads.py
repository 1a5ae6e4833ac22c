"""Workloads from seeds, arrivals, and what is read from files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from radixlab.errors import InvalidArgument
from radixlab.simulate import replay
from radixlab.tokens import decode, encode
from radixlab.traces import Trace, read_prompts, read_trace, to_trace
from radixlab.workloads import (
    WORKLOADS,
    Job,
    adversarial,
    agents,
    batch,
    chat,
    closed_loop,
    few_shot,
    poisson,
    rag,
    tree_of_thought,
)


def unlimited(jobs: list[Job]) -> float:
    return replay(to_trace(jobs, 1)).token_hit_rate


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_makes_the_same_workload_every_time_and_another_seed_another(name: str) -> None:
    make = WORKLOADS[name]
    assert make(3) == make(3) != make(4)
    assert all(job.prompt_len and job.output_len for job in make(3))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("few-shot", 0.90, 0.93),  # 800 of 860 tokens, but for the first of each task
        ("chat", 0.70, 0.85),
        ("tree-of-thought", 0.85, 0.98),
        ("agents", 0.70, 0.90),
        ("rag", 0.20, 0.60),
        ("no-sharing", 0.0, 0.001),
        ("adversarial", 0.90, 0.90),  # 20 prompts, 10 rounds
    ],
)
def test_what_an_unlimited_cache_would_find(name: str, least: float, most: float) -> None:
    assert least <= unlimited(WORKLOADS[name](0)) <= most


def test_each_turn_of_a_chat_continues_the_turn_before_it() -> None:
    sessions: dict[int, list[Job]] = {}
    for job in chat(0, sessions=5, turns=4):
        sessions.setdefault(job.session, []).append(job)
    for jobs in sessions.values():
        assert len(jobs) == 4
        for before, after in pairwise(jobs):
            assert after.prompt.startswith(before.prompt + before.output)


def test_every_thought_is_continued() -> None:
    jobs = tree_of_thought(0, problems=1, depth=3, branching=2)
    assert len(jobs) == 2 + 4 + 8
    states = {job.prompt + job.output for job in jobs[:6]}
    assert {job.prompt for job in jobs[2:]} == states


def test_an_agents_thinking_is_not_in_its_next_prompt() -> None:
    jobs = agents(0, runs=1, thinking=10, action=5)
    for before, after in pairwise(jobs):
        action = before.output[-5 * 4 :]
        assert after.prompt.startswith(before.prompt + action)
        assert not after.prompt.startswith(before.prompt + before.output[:4])


def test_documents_in_one_order_share_more_than_shuffled_ones() -> None:
    assert unlimited(rag(0, shuffled=False)) > unlimited(rag(0)) + 0.02


def test_a_batch_is_there_at_once() -> None:
    jobs = batch(poisson(few_shot(0), rate=2))
    assert {(job.arrival, job.after) for job in jobs} == {(0.0, None)}


def test_poisson_arrivals_come_in_order_at_their_rate_and_repeat_with_their_seed() -> None:
    jobs = few_shot(0, requests=2000)
    timed = poisson(jobs, rate=4.0, seed=1)
    times = [job.arrival for job in timed]
    assert times == sorted(times) and times[0] > 0
    assert times[-1] == pytest.approx(500, rel=0.1)
    assert timed == poisson(jobs, rate=4.0, seed=1) != poisson(jobs, rate=4.0, seed=2)
    assert [job.prompt for job in timed] == [job.prompt for job in jobs]


def test_in_a_closed_loop_each_client_waits_for_its_own_answer() -> None:
    jobs = closed_loop(chat(0, sessions=6, turns=3), clients=2, think_time=1.5)
    assert [job.after for job in jobs].count(None) == 2
    assert {job.arrival for job in jobs} == {0.0, 1.5}
    successors = [job.after for job in jobs if job.after is not None]
    assert len(set(successors)) == len(successors), "two requests wait for one answer"
    for i, job in enumerate(jobs):
        seen = [jobs[j].session for j in chain(jobs, i)]
        runs = [s for s, after in zip(seen, [*seen[1:], None], strict=True) if s != after]
        assert len(set(runs)) == len(runs), "a client mixes its sessions"
        assert job.after is None or job.arrival == 1.5


def test_clients_beyond_the_sessions_cost_nothing() -> None:
    """Each was counted through: 10**11 of them never came to an end."""
    jobs = chat(0, sessions=6, turns=3)
    assert closed_loop(jobs, clients=10**11) == closed_loop(jobs, clients=6)
    assert closed_loop([], clients=10**11) == []


def chain(jobs: list[Job], i: int) -> list[int]:
    links = [i]
    while (before := jobs[links[-1]].after) is not None:
        links.append(before)
    return links


@pytest.mark.parametrize(
    "call",
    [
        lambda: poisson([], rate=0),
        lambda: poisson([], -1),
        lambda: poisson([], float("nan")),
        lambda: closed_loop([], clients=0),
        lambda: closed_loop([], 1, think_time=-5.0),
        lambda: closed_loop([], 1, think_time=float("nan")),
        lambda: closed_loop([], 1, think_time=float("inf")),
    ],
)
def test_impossible_arrivals_are_refused(call: Any) -> None:
    with pytest.raises(InvalidArgument):
        call()


@pytest.mark.parametrize(
    ("make", "size"), [(few_shot, "tasks"), (agents, "kinds"), (adversarial, "prompts")]
)
@pytest.mark.parametrize("number", [0, -1])
def test_a_workload_of_nothing_to_choose_from_is_refused(make: Any, size: str, number: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{size} must be 1 or more, got {number}"):
        make(0, **{size: number})


# --- files ------------------------------------------------------------------------------------
ROWS: list[dict[str, Any]] = [
    {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [46, 7, 9]},
    {"timestamp": 27, "input_length": 512, "output_length": 0, "hash_ids": [46]},
    {"timestamp": 2500, "input_length": 1024, "output_length": 90, "hash_ids": [46, 8]},
]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_a_trace_in_the_published_format(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "made.jsonl", ROWS))
    assert (trace.name, trace.block_size) == ("made", 512)
    assert (trace.prompt_tokens, trace.prompt_blocks) == (3036, 6)
    assert [r.hash_ids for r in trace.requests] == [(0, 1, 2), (0,), (0, 3)]
    assert [r.arrival for r in trace.requests] == [0, 0.027, 2.5]
    assert [r.output_length for r in trace.requests] == [5, 0, 90]


def test_requests_are_sorted_by_time_and_empty_lines_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "made.jsonl", ROWS[::-1])
    path.write_text("\n" + path.read_text() + "\n\n")
    assert [r.arrival for r in read_trace(path).requests] == [0, 0.027, 2.5]


def test_large_or_textual_hashes_are_renumbered(tmp_path: Path) -> None:
    rows = [{**ROWS[1], "hash_ids": [2**63]}, {**ROWS[1], "hash_ids": ["af03"]}]
    trace = read_trace(write(tmp_path / "made.jsonl", rows))
    assert [r.hash_ids for r in trace.requests] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash_ids": [1, 2]}, r"line 2: hash_ids must be 1 ids for 512 tokens in blocks of 512"),
        ({"hash_ids": None}, "hash_ids must be 1 ids"),
        ({"input_length": 0}, "input_length must be an integer from 1, got 0"),
        ({"input_length": "512"}, "input_length must be an integer"),
        ({"output_length": -1}, "output_length must be an integer from 0"),
        ({"timestamp": -3}, "timestamp must be milliseconds"),
        ({"timestamp": float("nan")}, "timestamp must be milliseconds"),
        ({"hash_ids": [7]}, "hash_ids must be ids that each stand for one prefix, got 7"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "made.jsonl", [ROWS[0], {**ROWS[1], **change}])
    with pytest.raises(InvalidArgument, match=message) as refusal:
        read_trace(path)
    assert "made.jsonl, line 2" in str(refusal.value)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "7", "Once upon a time"])
def test_lines_that_are_no_objects_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="line 1 must be a JSON object"):
        read_trace(path)


def test_an_empty_file_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="at least one request"):
        read_trace(write(tmp_path / "made.jsonl", []))


def test_only_whole_pages_of_a_job_are_in_its_trace() -> None:
    jobs = [Job(encode(ids), encode([0])) for ids in ([1, 2, 3, 4, 5], [1, 2, 9, 4], [3, 4])]
    trace = to_trace(jobs, 2)
    assert [r.hash_ids for r in trace.requests] == [(0, 1), (0, 2), (3,)]
    assert [r.input_length for r in trace.requests] == [5, 4, 2]


def test_a_trace_is_told_from_another_of_the_same_name() -> None:
    jobs = few_shot(0, requests=10)
    one, same, other = to_trace(jobs), to_trace(jobs), to_trace(jobs[1:])
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.fingerprint != Trace(one.name, 17, one.requests).fingerprint


def test_your_own_prompts_as_ids_or_as_text(tmp_path: Path) -> None:
    rows = [
        {"prompt": "ba", "timestamp": 2000, "output_length": 3, "session": 4},
        {"prompt": [5, 6, 7]},
    ]
    path = write(tmp_path / "prompts.jsonl", rows)
    first, second = read_prompts(path, tokenize=lambda text: [ord(letter) for letter in text])
    assert decode(first.prompt) == [5, 6, 7] and (first.output_len, first.session) == (1, -2)
    assert decode(second.prompt) == [98, 97]
    assert (second.arrival, second.output_len, second.session) == (2.0, 3, 4)


def test_a_prompt_without_a_session_joins_nobody_s_conversation(tmp_path: Path) -> None:
    """Not even where the sessions of others are numbers of lines."""
    rows = [{"prompt": [1], "session": 1}, {"prompt": [2]}, {"prompt": [3], "session": 0}]
    path = write(tmp_path / "prompts.jsonl", [*rows, {"prompt": [4]}])
    path.write_text("\n" + path.read_text())
    sessions = [job.session for job in read_prompts(path)]
    assert len(set(sessions)) == 4 and (sessions[0], sessions[2]) == (1, 0)
    with pytest.raises(InvalidArgument, match="session must be an integer from 0, got -1"):
        read_prompts(write(path, [{"prompt": [1], "session": -1}]))


@pytest.mark.parametrize("row", [{"prompt": "text"}, {"prompt": []}, {}, {"prompt": None}])
def test_prompts_that_cannot_be_used_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write(tmp_path / "prompts.jsonl", [row])
    with pytest.raises(InvalidArgument, match=r"prompts.jsonl, line 1: prompt must be token ids"):
        read_prompts(path)
