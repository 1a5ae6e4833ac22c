"""An hour of the engine under everything at once: do the books balance, does memory stay flat?

    python tests/soak.py --minutes 60 --json book/data/soak.json
    python tests/soak.py --minutes 4 --first 37       from round 37 on, which has failed

Round after round a new engine serves seeded workloads out of a small pool, each round under another
policy, eviction strategy and page size. Meanwhile requests are aborted wherever they are, and the
runner fails (`tests/soak_round.py`). Each tenth round computes with the embedded GPT-2; the others
compute nothing.

Memory is measured at rest: after each round, when its engine is gone and what was freed has gone
back to the system. After `tests.soak_round.CYCLE` rounds come engines of the same sizes again, with
other traffic. From the third cycle on, what the process occupies is compared with the second.

oneDNN keeps what it has compiled for each shape of a matrix, up to 1,024 of them; here it must not,
so that nothing of ours can hide behind it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import re
import shlex
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
if __name__ == "__main__":  # as torch is loaded
    os.environ |= {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0", "LRU_CACHE_CAPACITY": "1"}

from radixlab.gpt2 import load_gpt2  # noqa: E402  # found by the path above, as all that follow
from radixlab.serving import few_threads  # noqa: E402
from tests.bench.__main__ import machine, versions  # noqa: E402
from tests.soak_round import CYCLE, Plan, Round, make_plan  # noqa: E402

ROUND_SECONDS = 20.0
ENDS = ("finished", "aborted", "failed")
COVERED = ("gpt2", "workload", "policy", "strategy", "page_size", "chunked")

# What memory may grow by once it is warm; `tests.soak_round` says it for a single engine.
RSS_GROWTH = 16 * 2**20  # bytes of the process: the median of the last cycle less the second's
OBJECT_GROWTH = 100  # objects of one type, from the end of the first cycle to the end


class Soak:
    """Rounds until the time is over, and what was seen of memory meanwhile.

    `rest` has the bytes of the process after each round. Objects are counted by type after each
    round, too; the counts to compare with are those after the first cycle.
    """

    def __init__(self, minutes: float, seed: int = 0, first: int = 0) -> None:
        self.seconds, self.seed, self.numbers = minutes * 60, seed, itertools.count(first)
        self.round_seconds = min(ROUND_SECONDS, self.seconds / 5)
        self.covered: dict[str, Counter[str]] = {name: Counter() for name in COVERED}
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.samples = [memory()["VmRSS"]]
        self.rest: list[int] = []
        self.most_blocks = 0
        self.types: Counter[str] = Counter()
        self.warm_types: Counter[str] = Counter()
        self.model = load_gpt2("tiny", device="cpu")
        self.started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def run(self) -> None:
        """All rounds; one that fails is noted, and the next begins."""
        with few_threads(self.model):
            while self.elapsed < self.seconds:
                self.plan = make_plan(next(self.numbers), self.seed)
                self.play(self.plan)
                for name, seen in self.covered.items():
                    seen[str(getattr(self.plan, name))] += 1
                self.look()
                self.rest.append(memory_at_rest())
                self.types = Counter(_type_name(each) for each in gc.get_objects())
                if len(self.rest) <= CYCLE:
                    self.warm_types = self.types
        self.seconds = self.elapsed

    def play(self, plan: Plan) -> None:
        end = min(self.elapsed + self.round_seconds, self.seconds)
        game = Round(plan, self.counts, self.model if plan.gpt2 else None)
        try:
            grown = game.run(lambda: self.look() < end)
        except Exception:
            self.failures.append(f"{plan}, step {game.steps}\n{traceback.format_exc()}")
            print(self.failures[-1], file=sys.stderr, flush=True)
        else:
            self.most_blocks = max(self.most_blocks, grown)

    def look(self) -> float:
        """Sample memory and print a line when it is time to; returns the seconds until now."""
        now = self.elapsed
        if now >= len(self.samples) * min(60.0, self.seconds / 60):
            self.samples.append(memory()["VmRSS"])
            counts, last = self.counts, self.samples[-1] / 2**20
            said = ", ".join(f"{sum_of(counts, how):,} {how}" for how in ENDS)
            print(f"{now / 60:6.2f} min  {said}, {last:.1f} MiB; {self.plan}", flush=True)
        return now

    def report(self) -> dict[str, Any]:
        """What there is to say, with the lists of what has failed or grown empty if all is well."""
        second = statistics.median(self.rest[CYCLE : 2 * CYCLE] or self.rest[-1:])
        last = statistics.median(self.rest[-CYCLE:] if len(self.rest) > 2 * CYCLE else [second])
        grown = {
            name: number - self.warm_types[name]
            for name, number in self.types.items()
            if number - self.warm_types[name] > OBJECT_GROWTH
        }
        counts = dict(sorted(self.counts.items()))
        return {
            "ok": not self.failures and not grown and last - second <= RSS_GROWTH,
            "seconds": round(self.seconds, 1),
            "seed": self.seed,
            "rounds": len(self.rest),
            "counts": counts,
            "hit_rate": self.counts["cached tokens"] / max(1, self.counts["prompt tokens"]),
            "resident_mib": {
                "start": _mib(self.samples[0]),
                "second_cycle": _mib(second),
                "last_cycle": _mib(last),
                "peak": _mib(memory()["VmHWM"]),
                "allowed_growth": _mib(RSS_GROWTH),
                "at_rest": [_mib(size) for size in self.rest],
                "each_minute": [_mib(size) for size in self.samples],
            },
            "types_grown": grown,
            "most_blocks_grown": self.most_blocks,
            "covered": self.covered,
            "failures": self.failures,
        }


def memory() -> dict[str, int]:
    """Bytes that the process occupies, VmRSS, and that it has occupied at most, VmHWM (Linux)."""
    status = Path("/proc/self/status")
    text = status.read_text(encoding="utf-8") if status.exists() else "VmRSS: 0 kB\nVmHWM: 0 kB"
    return {name: int(kb) * 1024 for name, kb in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text)}


def memory_at_rest() -> int:
    """Bytes that the process occupies when the C library gives back what was freed (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return memory()["VmRSS"]


def sum_of(counts: Counter[str], how: str) -> int:
    """All that ended in this way, wherever they were."""
    return sum(number for name, number in counts.items() if name.startswith(how))


def _mib(size: float) -> float:
    return round(size / 2**20, 1)


def _type_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the round to begin with")
    parser.add_argument("--json", type=Path, help="write the report into this file")
    options = parser.parse_args(arguments)
    said = sys.argv[1:] if arguments is None else arguments
    result: dict[str, Any] = {
        "command": shlex.join(["python", "tests/soak.py", *said]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
    }
    soak = Soak(options.minutes, options.seed, options.first)
    soak.run()
    result |= soak.report()
    text = json.dumps(result, indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
