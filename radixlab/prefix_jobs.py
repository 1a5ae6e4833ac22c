"""Requests with few prefixes, for the serving benchmark: seeded, or from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radixlab.errors import InvalidArgument


@dataclass(frozen=True)
class PrefixJob:
    """One request: its prompt, and how many tokens to write.

    `prefix` names what its first `prefix_len` ids are: a way to share prefixes that finds none by
    itself has to be told.
    """

    prompt: Sequence[int]
    max_new: int
    prefix: int
    prefix_len: int


def make_jobs(vocab: int, *, requests: int = 64, seed: int = 0) -> list[PrefixJob]:
    """Four prefixes of 400 to 680 tokens, rests of 20 to 60, 8 to 16 tokens to write; seeded."""
    rng = random.Random(seed)
    prefixes = [rng.choices(range(vocab), k=rng.randint(400, 680)) for _ in range(4)]
    jobs = []
    for _ in range(requests):
        which = rng.randrange(len(prefixes))
        rest = rng.choices(range(vocab), k=rng.randint(20, 60))
        prompt = [*prefixes[which], *rest]
        jobs.append(PrefixJob(prompt, rng.randint(8, 16), which, len(prefixes[which])))
    return jobs


def read_jobs(path: Path) -> list[PrefixJob]:
    """Read JSON with `requests`, each with the fields of `PrefixJob`.

    Raises `InvalidArgument`, with the request (they count from 0) and the field, for anything else.
    """
    try:
        requests = json.loads(path.read_text(encoding="utf-8"))["requests"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        allowed = f"a JSON file with 'requests' ({error!r})"
        raise InvalidArgument("workload", str(path), allowed) from error
    if not isinstance(requests, list) or not requests:
        raise InvalidArgument(f"{path.name}: requests", requests, "a list of at least one request")
    return [_job(f"{path.name}: requests[{i}]", request) for i, request in enumerate(requests)]


def _job(where: str, request: Any) -> PrefixJob:
    if not isinstance(request, dict):
        raise InvalidArgument(where, request, "an object with prompt, max_new, prefix, prefix_len")
    prompt = request.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        raise InvalidArgument(f"{where}.prompt", prompt, "a list of at least one token id")
    for i, token_id in enumerate(prompt):
        _integer(f"{where}.prompt[{i}]", token_id, 0)
    max_new = _integer(f"{where}.max_new", request.get("max_new"), 1)
    if type(prefix := request.get("prefix")) is not int:
        raise InvalidArgument(f"{where}.prefix", prefix, "an integer")
    prefix_len = _integer(f"{where}.prefix_len", request.get("prefix_len"), 0)
    if prefix_len >= len(prompt):
        allowed = f"below the prompt's length of {len(prompt)}"
        raise InvalidArgument(f"{where}.prefix_len", prefix_len, allowed)
    return PrefixJob(prompt, max_new, prefix, prefix_len)


def _integer(name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise InvalidArgument(name, value, f"an integer from {least}")
    return value
