"""Requests with few prefixes, for the serving benchmark: seeded, or from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    """Read JSON with `requests`, each with the fields of `PrefixJob`; else `InvalidArgument`."""
    names = ("prompt", "max_new", "prefix", "prefix_len")
    try:
        requests = json.loads(path.read_text(encoding="utf-8"))["requests"]
        return [PrefixJob(*(request[name] for name in names)) for request in requests]
    except (OSError, ValueError, KeyError, TypeError) as error:
        allowed = f"a JSON file with 'requests' that have {', '.join(names)} ({error!r})"
        raise InvalidArgument("workload", str(path), allowed) from error
