"""Every figure in README, measured anew and written: `make figures`.

    python tests/figures.py measure [NAME ...]     run benchmarks, their JSON into book/data
    python tests/figures.py write [--check]        the tables of README from that JSON

Between `<!-- figures NAME -->` and `<!-- end -->` README is written by this file and by nobody
else. The figures in the book are measured when its pages are built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "book/data"
README = ROOT / "README.md"

SPEED = ["-m", "tests.bench", "--bars", "--only", "cache", "manager", "sglang", "sglang-rust"]
PREFILL = ["-m", "radixlab", "bench", "prefill", "--tokens", "1000", "--device", "cpu"]
HITS = ["--hit", "0.5", "--hit", "0.75", "--hit", "0.9", "--rounds", "5", "--json"]

TRACES = {
    "fewshot": "few-shot, shared examples",
    "chat": "chat, several turns",
    "tree": "tree of thought",
    "random": "nothing shared",
    "splits": "adversarial splits",
}
PROMISES = (
    "`cache`: 15 times SGLang, Python",
    "`cache`: 10 times SGLang, default (adversarial splits at page size 1 set aside)",
    "`cache`, adversarial splits, page size 1: 4 times SGLang, default",
    "the same: 8 times, the goal",
    "`manager`: 10 times SGLang, Python",
    "`cache`: evicting one of 100,000 leaves takes at most 3 times as long as one of 1,000",
    "`manager`: the same",
)

Json = Any


# --- measuring -----------------------------------------------------------------------------------


def run(*command: str, out: Path | None = None, **environment: str) -> None:
    """Run a Python command from the root, its output into a file if one is named.

    tests.bench ends with 1 when a bar does not hold, which is a result as well.
    """
    print("python", *command, flush=True)
    answer = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=None if out is None else subprocess.PIPE,
        check=False,
    )
    if answer.returncode > (1 if "tests.bench" in command else 0):
        raise SystemExit(answer.returncode)
    if out is not None:
        out.write_bytes(answer.stdout)


def measure_tree() -> None:
    """The core as it is, beside SGLang's two caches."""
    need_sglang()
    run(*SPEED, "--json", "book/data/bench-tree.json")


def measure_compiled() -> None:
    """The same after `make compiled`."""
    need_sglang()
    if not (ROOT / "build/compiled").is_dir():
        raise SystemExit("First `make compiled`.")
    options = [*SPEED, "--json", "book/data/bench-tree-compiled.json"]
    run("-P", *options, PYTHONPATH=f"build/compiled{os.pathsep}.")


def need_sglang() -> None:
    """Refuse to measure without the peers."""
    if not os.environ.get("SGLANG_DIR"):
        raise SystemExit("SGLANG_DIR must name an unpacked wheel: see tests/bench/sglang_peers.py.")


def measure_prefill() -> None:
    """GPT-2's prefill beside transformers."""
    run(*PREFILL, *HITS, out=DATA / "bench-prefill.json")


def measure_serve() -> None:
    """64 requests at once beside transformers."""
    options = ["--device", "cpu", "--rounds", "5", "--json"]
    run("-m", "radixlab", "bench", "serve", *options, out=DATA / "bench-serve.json")


def measure_classroom() -> None:
    """Honest submissions of two sheets, graded in the sandbox."""
    for sheet in ("02-split", "08-paged-attention"):
        out = DATA / f"bench-grading-{sheet}.json"
        run("tests/classroom_speed.py", sheet, "200", "--json", str(out))


MEASURES: dict[str, Callable[[], None]] = {
    "tree": measure_tree,
    "compiled": measure_compiled,
    "prefill": measure_prefill,
    "serve": measure_serve,
    "classroom": measure_classroom,
}


# --- writing -------------------------------------------------------------------------------------


def read(name: str) -> Json:
    """One committed result."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def table(*rows: list[str]) -> str:
    """Rows as a Markdown table, the first of them its head."""
    head, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def speed_table() -> str:
    """Requests a second and leads, interpreted and compiled."""
    runs = [by_case(read("bench-tree")), by_case(read("bench-tree-compiled"))]
    heads = ["trace", "page size"]
    for word in ("", "compiled "):
        heads += [f"{word}`cache`, requests/s", "times SGLang, Python", "times SGLang, default"]
        heads += [f"{word}`manager`, times SGLang, Python"]
    rows = []
    for trace, name in TRACES.items():
        for page in (1, 16):
            row = [name, str(page)]
            for timings in runs:
                cache, manager = (timings[trace, page, who] for who in ("cache", "manager"))
                row += [f"{cache['requests_per_s'] / 1000:.0f}k", f"{cache['times_sglang']:.1f}"]
                row += [f"{cache['times_sglang-rust']:.1f}", f"{manager['times_sglang']:.1f}"]
            rows.append(row)
    return table(heads, *rows)


def by_case(report: Json) -> dict[tuple[str, int, str], Json]:
    """Timings by trace, page size and implementation."""
    return {(t["trace"], t["page_size"], t["implementation"]): t for t in report["timings"]}


def bars_table() -> str:
    """What was promised, and the worst that was measured."""
    runs = [read("bench-tree")["bars"], read("bench-tree-compiled")["bars"]]
    rows = [
        [promise, *(verdict(bars[number]) for bars in runs)]
        for number, promise in enumerate(PROMISES)
    ]
    return table(["bar", "as it is", "compiled"], *rows)


def verdict(bar: Json) -> str:
    """The worst value, and whether it holds."""
    return f"{bar['measured']:.1f}" + (", holds" if bar["holds"] else ", **does not hold**")


def gpt2_table() -> str:
    """Prefill of the 124M shape."""
    report = read("bench-prefill")
    rows = [
        [
            f"{row['cached']} of {row['tokens']}",
            f"{row['warm_ratio']:.2f}",
            f"{row['over_ideal']:.2f}",
            f"{row['warm'] / row['copied']:.2f}",
            f"{row['batch'] / report['batch_size'] / row['copied']:.2f}",
        ]
        for row in report["rows"]
    ]
    heads = ["cached tokens", "time / our cold time", "the same / counted FLOPs"]
    heads += ["time / transformers, copied cache", "of eight packed, each / the same"]
    return table(heads, *rows)


def serve_table() -> str:
    """64 requests at once."""
    rows = [
        [row["name"], f"{row['requests_per_second']:.0f}", "yes" if row["same_tokens"] else "no"]
        for row in read("bench-serve")["rows"]
    ]
    return table(
        ["64 requests, four prefixes, the small model", "requests/s", "same tokens"], *rows
    )


def grading_table() -> str:
    """How long 200 submissions take."""
    rows = []
    for sheet in ("02-split", "08-paged-attention"):
        told = read(f"bench-grading-{sheet}")
        rows.append([f"`{sheet}`", str(told["submissions"]), f"{told['seconds'] / 60:.1f}"])
    return table(["sheet", "honest submissions", "minutes on 2 cores"], *rows)


TABLES: dict[str, Callable[[], str]] = {
    "speed": speed_table,
    "bars": bars_table,
    "gpt2": gpt2_table,
    "serve": serve_table,
    "grading": grading_table,
}


def written(text: str) -> str:
    """README with every table as the committed results have it."""
    for name, make in TABLES.items():
        block = re.compile(rf"(<!-- figures {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not block.search(text):
            raise SystemExit(f"README has no <!-- figures {name} --> ... <!-- end -->")
        text = block.sub(lambda found: f"{found[1]}\n{make()}\n\n{found[2]}", text)  # noqa: B023
    return text


def main() -> int:
    """Measure, or write; 1 if a check finds README out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("measure").add_argument("names", nargs="*", choices=[[], *MEASURES])
    parts.add_parser("write").add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.part == "measure":
        for name in options.names or MEASURES:
            MEASURES[name]()
        return 0
    before = README.read_text(encoding="utf-8")
    after = written(before)
    if options.check:
        return int(after != before)
    README.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
