"""The demo: what it says on the screen, and what it says in JSON."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from radixlab import __version__
from radixlab.cli import app
from radixlab.demo import follow_requests, grow_tree, prove_reuse
from radixlab.errors import InvalidArgument, InvalidPageSize
from radixlab.policies import POLICIES
from radixlab.strategies import STRATEGIES


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["demo", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    code, output = run("--json")
    assert code == 0
    return dict(json.loads(output[output.index("{") :]))


def test_the_command_tells_its_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"radixlab {__version__}\n")


def test_in_exact_mode_the_logits_do_not_differ_at_all(report: dict[str, Any]) -> None:
    assert report["exact"] is True
    assert report["max_logit_difference"] == 0.0
    assert report["same_continuations"] is True


def test_the_control_would_show_a_wrong_slot(report: dict[str, Any]) -> None:
    assert report["control_difference"] > 0.01


def test_the_second_and_the_third_prompt_reuse_the_first(report: dict[str, Any]) -> None:
    first, *others = report["prompts"]
    assert first["reused_tokens"] == 0
    for prompt in others:
        assert prompt["reused_tokens"] > 200
        assert prompt["reused_tokens"] + prompt["computed_tokens"] == prompt["prompt_tokens"]
    assert report["reused_tokens"] == sum(p["reused_tokens"] for p in report["prompts"])
    assert report["computed_tokens"] == sum(p["computed_tokens"] for p in report["prompts"])
    assert report["kv_bytes"] < report["kv_bytes_unshared"]
    assert report["prefill_ratio"] > 0


@pytest.mark.parametrize("page_size", [1, 16, 50])
def test_shared_bytes_are_those_of_the_whole_pages_that_differ(page_size: int) -> None:
    report = prove_reuse(page_size=page_size, new_tokens=4, rounds=1)
    per_token = 4 * 2 * 3 * 64 * 4  # layers, K and V, heads, head_dim, bytes of a float32
    saved = (report.kv_bytes_unshared - report.kv_bytes) // per_token
    assert saved == report.reused_tokens
    assert all(p.reused_tokens % page_size == 0 for p in report.prompts)
    assert report.max_logit_difference == 0.0


def test_fast_mode_differs_by_rounding_at_most() -> None:
    report = prove_reuse(exact=False, new_tokens=4, rounds=1)
    assert report.max_logit_difference < 1e-4 < report.control_difference


def test_the_largest_page_is_what_the_prompts_share_and_a_larger_one_is_refused() -> None:
    report = prove_reuse(page_size=264, new_tokens=1, rounds=1)
    assert [prompt.reused_tokens for prompt in report.prompts] == [0, 264, 264]
    with pytest.raises(InvalidArgument, match=r"at most 264, the tokens that all .* got 265"):
        prove_reuse(page_size=265)
    with pytest.raises(InvalidPageSize):
        prove_reuse(page_size=0)


def test_the_tree_grows_as_in_the_chapter() -> None:
    *_, last = grow_tree()
    assert last.tree == (
        "root\n"
        "└── [101, 11] -> [p0, p1]\n"
        "    ├── [12] -> [p2]\n"
        "    │   ├── [21, 22] -> [p3, p4]\n"
        "    │   └── [31, 32] -> [p5, p6]\n"
        "    └── [99] -> [p7]"
    )


def test_the_screen_tells_all_three_parts_in_80_columns() -> None:
    code, output = run()
    assert code == 0
    assert max(map(len, output.splitlines())) <= 80
    for words in ("insert B", "7 evict", "[p6, p7, p4]", "p0 to p7", "528 of 822", "Mr. Darcy"):
        assert words in output
    assert sum(step.name == "evict" for step in follow_requests()) == 1


def test_one_part_can_be_shown_alone(tmp_path: Any) -> None:
    picture = tmp_path / "demo.svg"
    code, output = run("--part", "1", "--svg", str(picture))
    assert code == 0
    assert "insert A" in output and "R1" not in output
    svg = picture.read_text(encoding="utf-8")
    assert "insert" in svg and "url(" not in svg.replace("url(#", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "no-such-model"),
        ("--device", "no-such-device"),
        ("--page-size", "0"),
        ("--page-size", "270"),
        ("--svg", "/no/such/folder/demo.svg"),
        ("--svg", "/"),
    ],
)
def test_bad_arguments_get_one_line_and_no_traceback(arguments: tuple[str, str]) -> None:
    code, output = run("--part", "3", *arguments)
    assert code == 2
    assert len(output.splitlines()) == 1 and "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--svg", "f.svg"), "--svg must be left out beside --json"),
        (("--part", "1"), "--part must be left out beside --json"),
        (("--part", "1", "--part", "3"), "--part must be left out beside --json"),
    ],
)
def test_what_json_would_ignore_is_refused(arguments: tuple[str, ...], message: str) -> None:
    code, output = run("--json", *arguments)
    assert code == 2 and message in output and len(output.splitlines()) == 1


def test_a_reader_who_has_gone_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("radixlab.cli.prove_reuse", prove)
    assert run("--json") == (1, "")


def test_a_screen_without_the_signs_gets_one_line_and_no_traceback() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "radixlab", "demo", "--part", "1"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1
    assert "UnicodeEncodeError" in answer.stderr and "PYTHONIOENCODING" in answer.stderr


def test_where_the_picture_can_t_go_is_asked_first() -> None:
    code, output = run("--part", "1", "--svg", "/no/such/folder/demo.svg")
    assert code == 2 and "svg must be a file in a folder that exists" in output
    assert "insert A" not in output


def test_without_torch_the_third_part_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("radixlab.cli.prove_reuse", prove)
    code, output = run("--part", "3")
    assert code == 2
    assert "No module named 'torch': pip install 'radixlab[model]'" in output


def test_every_policy_and_strategy_can_be_named() -> None:
    for policy in POLICIES:
        code, output = run("--part", "2", "--policy", policy)
        assert code == 0 and "puts them in this order" in output
    for eviction in STRATEGIES:
        code, output = run("--part", "2", "--eviction", eviction)
        assert code == 0 and "the leaf [31, 32] goes" in output
    for option in ("--policy", "--eviction"):
        code, output = run("--part", "2", option, "clock")
        assert code == 2 and "must be one of" in output
