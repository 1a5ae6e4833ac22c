"""What people have sent: traces and prompts from files, and workloads as traces.

A `Trace` is what is left of real traffic when nobody may read it: the hashes of the prompts'
blocks. Sizes are in tokens, times in seconds. Everything here is the standard library.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from radixlab.errors import InvalidArgument, InvalidPageSize
from radixlab.tokens import TOKEN_BYTES, TokenIds, encode
from radixlab.workloads import Job


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """A request of a trace: lengths in tokens, arrival in seconds, one id per block of its prompt.

    Equal ids stand for an equal prefix up to the end of the block. The last block may be partial.
    """

    arrival: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival, as ids of blocks of `block_size` tokens."""

    name: str
    block_size: int
    requests: tuple[BlockRequest, ...]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(request.input_length for request in self.requests)

    @property
    def prompt_blocks(self) -> int:
        """Blocks of all prompts."""
        return sum(len(request.hash_ids) for request in self.requests)

    @cached_property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits that tell this trace from another of the same name."""
        parts = (f"{r.input_length} {r.hash_ids}" for r in self.requests)
        return f"{zlib.crc32(repr([self.block_size, *parts]).encode()):08x}"


def read_trace(path: str | Path, block_size: int = 512) -> Trace:
    """A published block-hash trace, such as those of the Mooncake paper (FAST 2025).

    One JSON object a line: `timestamp` (milliseconds), `input_length`, `output_length` (tokens),
    `hash_ids` (one for each started block of the prompt). Ids are renumbered from 0, and requests
    sorted by time. Raises `InvalidArgument`, with the line, for anything that is not such a trace,
    also where one id follows two different prefixes.
    """
    if type(block_size) is not int or block_size < 1:
        raise InvalidArgument("block_size", block_size, "an integer from 1")
    path, numbers, parents = Path(path), dict[object, int](), dict[int, int]()
    requests = []
    for where, row in _json_lines(path):
        length, found = _count_of(row, "input_length", where, 1), row.get("hash_ids")
        blocks = -(-length // block_size)
        if not isinstance(found, list) or len(found) != blocks:
            got = len(found) if isinstance(found, list) else found
            needed = f"{blocks} ids for {length} tokens in blocks of {block_size}"
            raise InvalidArgument(f"{where}: hash_ids", got, needed)
        ids = tuple(numbers.setdefault(i, len(numbers)) for i in map(str, found))
        for before, block in zip((-1, *ids), ids, strict=False):
            if parents.setdefault(block, before) != before:
                allowed = "ids that each stand for one prefix"
                raise InvalidArgument(f"{where}: hash_ids", found[ids.index(block)], allowed)
        output = _count_of(row, "output_length", where, 0)
        requests.append(BlockRequest(_seconds(row, where), length, output, ids))
    if not requests:
        raise InvalidArgument("trace", str(path), "a file with at least one request")
    requests.sort(key=lambda request: request.arrival)
    return Trace(path.stem, block_size, tuple(requests))


def to_trace(jobs: Sequence[Job], page_size: int = 16, name: str = "workload") -> Trace:
    """The prompts of jobs as a trace: an id for each whole page, because only those are shared.

    Raises `InvalidPageSize`.
    """
    if type(page_size) is not int or page_size < 1:
        raise InvalidPageSize(page_size)
    numbers: dict[tuple[int, bytes], int] = {}
    requests = []
    for job in jobs:
        ids, before = [], -1
        for page in _pages(job.prompt, page_size):
            before = numbers.setdefault((before, page), len(numbers))
            ids.append(before)
        requests.append(BlockRequest(job.arrival, job.prompt_len, job.output_len, tuple(ids)))
    return Trace(name, page_size, tuple(requests))


def read_prompts(path: str | Path, tokenize: Callable[[str], TokenIds] | None = None) -> list[Job]:
    """Your own prompts, one JSON object a line, in order of arrival.

    `prompt` is a list of token ids, or a text if there is something to `tokenize` it with;
    `output_length` (tokens, 1), `timestamp` (milliseconds, 0) and `session` (one of its own, below
    0) may be left out. Answers are unknown, so each is token 0, again and again. Raises
    `InvalidArgument` with the line, and what `encode` raises.
    """
    jobs: list[Job] = []
    for where, row in _json_lines(Path(path)):
        prompt: Any = row.get("prompt")
        if isinstance(prompt, str) and tokenize is not None:
            prompt = tokenize(prompt)
        if isinstance(prompt, str) or not prompt:
            allowed = "token ids" if tokenize is None else "token ids or a text"
            raise InvalidArgument(f"{where}: prompt", prompt, f"{allowed}, at least one")
        output = bytes(
            _count_of({"output_length": 1, **row}, "output_length", where, 1) * TOKEN_BYTES
        )
        session = _count_of(row, "session", where, 0) if "session" in row else -1 - len(jobs)
        arrival = _seconds({"timestamp": 0, **row}, where)
        jobs.append(Job(encode(prompt), output, session, arrival))
    return sorted(jobs, key=lambda job: job.arrival)


def _pages(prompt: bytes, page_size: int) -> Iterator[bytes]:
    step = page_size * TOKEN_BYTES
    return (prompt[end - step : end] for end in range(step, len(prompt) + 1, step))


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{path.name}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise InvalidArgument(where, line.strip()[:60], "a JSON object")
            yield where, row


def _count_of(row: dict[str, Any], name: str, where: str, least: int) -> int:
    value = row.get(name)
    if type(value) is not int or value < least:
        raise InvalidArgument(f"{where}: {name}", value, f"an integer from {least}")
    return value


def _seconds(row: dict[str, Any], where: str) -> float:
    value: Any = row.get("timestamp")
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        raise InvalidArgument(f"{where}: timestamp", value, "milliseconds from 0, within a float")
    return float(value) / 1000
