"""Requests with prefixes from a file: what is no such request is refused by number and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from radixlab.errors import InvalidArgument
from radixlab.prefix_jobs import PrefixJob, read_jobs

JOB: dict[str, Any] = {"prompt": [1, 2, 3], "max_new": 2, "prefix": 0, "prefix_len": 2, "id": 7}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.json"


def test_a_workload_is_read_and_further_fields_are_left_alone(path: Path) -> None:
    path.write_text(json.dumps({"requests": [JOB, {**JOB, "prefix": -1, "prefix_len": 0}]}))
    assert read_jobs(path) == [PrefixJob([1, 2, 3], 2, 0, 2), PrefixJob([1, 2, 3], 2, -1, 0)]


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="FileNotFoundError"):
        read_jobs(path)


@pytest.mark.parametrize("text", ["", "5", "null", "[]", "{}", "[" * 200_000])
def test_a_file_without_requests_is_no_workload(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="workload must be a JSON file with 'requests' "):
        read_jobs(path)


@pytest.mark.parametrize("requests", [[], {}, None, "abc", 5])
def test_a_workload_has_at_least_one_request(path: Path, requests: object) -> None:
    path.write_text(json.dumps({"requests": requests}))
    with pytest.raises(InvalidArgument, match=r"jobs\.json: requests must be a list of at least"):
        read_jobs(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": None}, ".prompt must be a list of at least one token id, got None"),
        ({"prompt": 5}, ".prompt must be a list of at least one token id, got 5"),
        ({"prompt": "text"}, ".prompt must be a list of at least one token id, got 'text'"),
        ({"prompt": []}, ".prompt must be a list of at least one token id, got []"),
        ({"prompt": [1, "2", 3]}, ".prompt[1] must be an integer from 0, got '2'"),
        ({"prompt": [1, 2, -3]}, ".prompt[2] must be an integer from 0, got -3"),
        ({"prompt": [True, 2, 3]}, ".prompt[0] must be an integer from 0, got True"),
        ({"max_new": "x"}, ".max_new must be an integer from 1, got 'x'"),
        ({"max_new": 0}, ".max_new must be an integer from 1, got 0"),
        ({"max_new": None}, ".max_new must be an integer from 1, got None"),
        ({"prefix": [0]}, ".prefix must be an integer, got [0]"),
        ({"prefix_len": "a"}, ".prefix_len must be an integer from 0, got 'a'"),
        ({"prefix_len": -1}, ".prefix_len must be an integer from 0, got -1"),
        ({"prefix_len": 3}, ".prefix_len must be below the prompt's length of 3, got 3"),
    ],
)
def test_a_wrong_field_is_named_with_its_request(
    path: Path, change: dict[str, object], message: str
) -> None:
    path.write_text(json.dumps({"requests": [JOB, {**JOB, **change}]}))
    with pytest.raises(InvalidArgument) as refusal:
        read_jobs(path)
    assert str(refusal.value) == f"jobs.json: requests[1]{message}"


@pytest.mark.parametrize("request_", [None, 7, [1, 2], "prompt"])
def test_a_request_is_an_object(path: Path, request_: object) -> None:
    path.write_text(json.dumps({"requests": [request_]}))
    with pytest.raises(InvalidArgument, match=r"requests\[0\] must be an object with prompt, max_"):
        read_jobs(path)


@pytest.mark.parametrize("missing", ["prompt", "max_new", "prefix", "prefix_len"])
def test_a_missing_field_is_named(path: Path, missing: str) -> None:
    path.write_text(json.dumps({"requests": [{n: v for n, v in JOB.items() if n != missing}]}))
    with pytest.raises(InvalidArgument, match=rf"requests\[0\]\.{missing} must be .*, got None"):
        read_jobs(path)
