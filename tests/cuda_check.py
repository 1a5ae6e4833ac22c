"""What a GPU does with it: identity in both modes, prefill saved, decode throughput, in 3 minutes.

    python tests/cuda_check.py                       on a GPU (make cuda-check)
    python tests/cuda_check.py --device cpu --small  the same code on tiny shapes

Needs torch and this repository. Prints the result and writes it to book/data/, named by device.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402  # after the variable above

from radixlab.benchmarks import NO_LIMIT, bench_prefill, environment  # noqa: E402  # after the path above
from radixlab.gpt2 import GPT2, GPT2Config, Span  # noqa: E402  # the same
from radixlab.kv import KVPool  # noqa: E402
from radixlab.request import Request  # noqa: E402
from radixlab.serving import Server  # noqa: E402

SMALL = GPT2Config(layers=2, heads=2, width=32, context=160, vocab=97, inner=64)
SECONDS = 150  # no part begins later


def tokens(count: int, vocab: int, seed: int) -> torch.Tensor:
    return torch.tensor(random.Random(seed).choices(range(vocab), k=count))


class Paper:
    """Prompts of one model, computed in different ways; each returns the last token's logits."""

    def __init__(self, model: GPT2, length: int, exact: bool) -> None:
        self.model, self.exact = model, exact
        self.ids = tokens(length, model.config.vocab, 0)

    def pool(self) -> tuple[KVPool, torch.Tensor]:
        slots = 4 * self.model.config.context
        order = torch.randperm(slots, generator=torch.Generator().manual_seed(0))
        return KVPool.for_model(self.model, slots), order

    def run(self, pool: KVPool, ids: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        return self.model.forward(ids, spans, pool, exact=self.exact)

    def in_steps(self, ends: Sequence[int]) -> torch.Tensor:
        pool, slots = self.pool()
        for start, end in zip([0, *ends], [*ends, len(self.ids)], strict=False):
            logits = self.run(pool, self.ids[start:end], [Span(slots[:end], start, end)])
        return logits[0]

    def in_a_batch(self, hit: int) -> torch.Tensor:
        """Behind one other request and before another, with `hit` tokens cached."""
        pool, slots = self.pool()
        count = len(self.ids)
        if hit:
            self.run(pool, self.ids[:hit], [Span(slots[:hit], 0, hit)])
        others = [tokens(n, self.model.config.vocab, n) for n in (37, count // 2)]
        places = slots[count : count + 37], slots[count + 37 : count + 37 + count // 2]
        ids = torch.cat([others[0], self.ids[hit:], others[1]])
        first, last = (Span(p, 0, len(o)) for p, o in zip(places, others, strict=True))
        return self.run(pool, ids, [first, Span(slots[:count], hit, count), last])[1]

    def ways(self) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
        count = len(self.ids)
        for hit in (1, count // 3, count // 2, count - 1):
            yield f"{hit} of {count} cached", lambda hit=hit: self.in_steps([hit])
            yield f"{hit} of {count} cached, batched", lambda hit=hit: self.in_a_batch(hit)
        yield "alone in a batch", lambda: self.in_a_batch(0)
        yield "chunks of 23", lambda: self.in_steps(range(23, count, 23))
        yield "last 9 decoded", lambda: self.in_steps(range(count - 9, count))


def identity(model: GPT2, length: int, exact: bool) -> list[dict[str, Any]]:
    """Each way beside one cold pass: the same bits, how far apart, the same next token."""
    paper = Paper(model, length, exact)
    cold, rows = paper.in_steps([]), []
    for name, way in paper.ways():
        logits = way()
        rows.append(
            {
                "way": name,
                "equal": torch.equal(logits, cold),
                "max_difference": float((logits.float() - cold.float()).abs().max()),
                "same_token": bool(logits.argmax() == cold.argmax()),
            }
        )
    return rows


def decode_rate(model: GPT2, context: int, batch: int, new: int, exact: bool) -> dict[str, Any]:
    """Tokens per second of `batch` requests that share a prefix of `context` tokens."""
    vocab = model.config.vocab
    pool = context + batch * (new + 8)
    server = Server(model, pool_tokens=pool, exact=exact, settings=NO_LIMIT)
    prefix = tokens(context, vocab, 1).tolist()
    server.serve([prefix], 1)
    engine = server.new_engine()
    for i in range(batch):
        engine.add(Request([*prefix, *tokens(4, vocab, 100 + i).tolist()], new))
    engine.step()  # all prefills
    engine.step()  # and a decode pass to warm up
    before, start = engine.totals.output_tokens, time.perf_counter()
    list(engine.stream())
    seconds = time.perf_counter() - start
    rate = (engine.totals.output_tokens - before) / seconds
    return {"batch": batch, "context": context, "exact": exact, "tokens_per_second": rate}


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def check(device: str, small: bool) -> dict[str, Any]:
    config = SMALL if small else GPT2Config()
    length, context = (100, 64) if small else (700, 512)
    batches, hits, rounds = ((1, 2), (0.5,), 1) if small else ((1, 16, 64), (0.5, 0.75, 0.9), 5)
    if device == "cpu":
        torch.set_num_threads(1)  # small matrices take less time than threads to meet
    start = time.perf_counter()
    result: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    result |= {"identity": [], "prefill": [], "decode": [], "skipped": []}

    def part(name: str, work: Callable[[], Any], **setting: Any) -> None:
        if time.perf_counter() - start > SECONDS:
            result["skipped"].append({"part": name, **setting})
            return
        print(f"{time.perf_counter() - start:5.0f} s  {name} {setting}", file=sys.stderr)
        result[name].append({**setting, "result": work()})

    for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        model = GPT2.random(config, dtype=dtype, device=device)
        result.setdefault("environment", environment(model))
        setting = {"dtype": str(dtype), "tf32": tf32}
        with precision(tf32):
            for exact in (True, False):
                part("identity", lambda: identity(model, length, exact), exact=exact, **setting)  # noqa: B023  # called at once
            if tf32:
                continue
            for batch in batches:
                part(
                    "prefill",
                    lambda: bench_prefill(  # called at once
                        model,  # noqa: B023
                        tokens=(config.context - 24,),
                        hits=hits,
                        batch_size=batch,  # noqa: B023
                        rounds=rounds,
                        compare=False,
                    ).to_dict()["rows"],
                    batch=batch,
                    **setting,
                )
                new = 6 if small else 64
                for exact in (False, True):
                    part(
                        "decode",
                        lambda: decode_rate(model, context, batch, new, exact),  # noqa: B023
                        **setting,
                    )
    result["seconds"] = time.perf_counter() - start
    result["exact_is_identical"] = all(
        row["equal"] for each in result["identity"] if each["exact"] for row in each["result"]
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to test the script")
    parser.add_argument("--out", type=Path, default=ROOT / "book" / "data")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No CUDA device here; --device cpu --small tests the script.", file=sys.stderr)
        return 1
    result = check(options.device, options.small)
    name = re.sub(r"[^a-z0-9]+", "-", result["environment"]["device"].lower()).strip("-")
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"cuda-check-{name}.json"
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for each in result["identity"]:
        mode = "exact" if each["exact"] else "plain"
        equal = sum(row["equal"] for row in each["result"])
        worst = max(row["max_difference"] for row in each["result"])
        print(
            f"{each['dtype']} tf32={each['tf32']} {mode}: {equal} of {len(each['result'])}"
            f" equal, largest difference {worst:g}"
        )
    print(f"{result['seconds']:.0f} s, written to {target}")
    return 0 if result["exact_is_identical"] else 2


if __name__ == "__main__":
    sys.exit(main())
