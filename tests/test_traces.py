"""Traces and prompts from files: what can't be read is refused, with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from radixlab.errors import InvalidArgument, InvalidPageSize
from radixlab.tokens import encode
from radixlab.traces import read_prompts, read_trace, to_trace
from radixlab.workloads import Job

LINE = '{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [1], "prompt": [1]}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "made.jsonl"
    file.write_text(LINE)
    return file


@pytest.mark.parametrize("size", [0, -16, 1.5, "16", None])
def test_a_block_or_page_of_no_tokens_is_refused(path: Path, size: int) -> None:
    with pytest.raises(InvalidArgument, match="block_size must be an integer from 1, got"):
        read_trace(path, size)
    with pytest.raises(InvalidPageSize, match="page_size must be a positive integer, got"):
        to_trace([Job(encode([1, 2]), encode([0]))], size)
    with pytest.raises(InvalidPageSize):
        to_trace([], size)


@pytest.mark.parametrize("read", [read_trace, read_prompts])
def test_a_time_beyond_all_floats_is_refused_with_its_line(
    path: Path, read: Callable[[Path], object]
) -> None:
    path.write_text(LINE + LINE.replace('"timestamp": 0', f'"timestamp": {10**400}'))
    message = r"line 2: timestamp must be milliseconds from 0, within a float, got 1000"
    with pytest.raises(InvalidArgument, match=message):
        read(path)


@pytest.mark.parametrize("read", [read_trace, read_prompts])
def test_a_line_nested_too_deeply_is_refused_with_its_line(
    path: Path, read: Callable[[Path], object]
) -> None:
    path.write_text(LINE + "[" * 200_000)
    with pytest.raises(InvalidArgument, match=r"made\.jsonl, line 2 must be a JSON object"):
        read(path)
