"""The benchmarks: right counts, right columns, and a GPU check that runs here too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("typer")

# Only now: without torch and transformers this file is skipped, not broken.
from rich.console import Console  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from radixlab.bench import _prefill_table, _serve_table  # noqa: E402
from radixlab.benchmarks import (  # noqa: E402
    PrefillReport,
    PrefillRow,
    ServeReport,
    ServeRow,
    bench_prefill,
    bench_serve,
    prefill_flops,
)
from radixlab.cli import app  # noqa: E402
from radixlab.errors import InvalidArgument  # noqa: E402
from radixlab.gpt2 import GPT2, GPT2Config  # noqa: E402
from radixlab.hf import PrefixCopies, hf_model  # noqa: E402
from radixlab.prefix_jobs import PrefixJob, make_jobs  # noqa: E402
from tests import cuda_check  # noqa: E402

SMALL = GPT2Config(layers=2, heads=2, width=32, context=160, vocab=97, inner=64)


@pytest.fixture(scope="module")
def small() -> GPT2:
    return GPT2.random(SMALL)


def small_jobs() -> list[PrefixJob]:
    shared = list(range(60))
    return [PrefixJob([*shared, 61 + i, 62 + i], 3, 0, 60) for i in range(6)]


@pytest.mark.parametrize(("new", "cached"), [(64, 0), (20, 44), (1, 63)])
def test_the_formula_counts_what_torch_counts(small: GPT2, new: int, cached: int) -> None:
    """Counted on plain transformers; torch leaves out the fused attention, so without it."""
    ids = [i % SMALL.vocab for i in range(64)]
    copies = PrefixCopies(hf_model(small), ids[:cached])
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        copies.generate(ids[cached:], 1)
    assert counter.get_total_flops() == prefill_flops(SMALL, new, cached)


def test_the_formula_is_the_one_of_the_124m_shape() -> None:
    d, layers, vocab, q, c = 768, 12, 50257, 100, 900
    expected = layers * (24 * d * d * q + 4 * d * q * (c + q)) + 2 * d * vocab
    assert prefill_flops(GPT2Config(), q, c) == expected


def test_prefill_rows_have_the_ideal_and_the_bytes(small: GPT2) -> None:
    report = bench_prefill(
        small, tokens=(100,), hits=(0, 0.5, 0.97), batch_size=3, page_size=4, rounds=1
    )
    per_token = 2 * SMALL.layers * SMALL.width * 4
    assert [row.cached for row in report.rows] == [0, 48, 96]
    for row in report.rows:
        new = 100 - row.cached
        ideal = prefill_flops(SMALL, new, row.cached) / prefill_flops(SMALL, 100)
        assert row.flop_ratio == ideal
        assert row.kv_bytes == per_token * (row.cached + 3 * new)
        assert row.kv_bytes_copied == per_token * 300
        assert min(row.cold, row.warm, row.batch, row.full or 0, row.copied or 0) > 0
    assert json.loads(json.dumps(report.to_dict()))["rows"][0]["flop_ratio"] == 1


def test_what_a_batch_holds_is_whole_pages(small: GPT2) -> None:
    """100 tokens are 7 pages of 16, of which 3 are shared."""
    report = bench_prefill(
        small, tokens=(100,), hits=(0.5,), batch_size=3, page_size=16, rounds=1, compare=False
    )
    per_page = 16 * 2 * SMALL.layers * SMALL.width * 4
    assert report.rows[0].kv_bytes == per_page * (3 + 3 * 4)


def test_every_way_to_serve_writes_the_same(small: GPT2) -> None:
    report = bench_serve(small, workload=small_jobs(), rounds=1, exact=True)
    cached, plain, copied = report.rows
    assert all(row.same_tokens for row in report.rows)
    assert (cached.cached_tokens, plain.cached_tokens, copied.cached_tokens) == (300, 0, None)
    assert cached.computed_tokens == 6 * (62 + 2) - 300
    assert 0 < cached.tree_share < 1
    json.dumps(report.to_dict())


def test_a_workload_is_seeded_and_has_its_shape() -> None:
    jobs = make_jobs(2048)
    assert jobs == make_jobs(2048) != make_jobs(2048, seed=1)
    assert len(jobs) == 64 and len({job.prefix for job in jobs}) == 4
    for job in jobs:
        assert 400 <= job.prefix_len <= 680 and 8 <= job.max_new <= 16
        assert 20 <= len(job.prompt) - job.prefix_len <= 60
        assert job.prompt[: job.prefix_len] in [j.prompt[: j.prefix_len] for j in jobs]


def test_wrong_lengths_and_hits_are_refused(small: GPT2) -> None:
    with pytest.raises(InvalidArgument, match=r"hits must be .* got \[1.0\]"):
        bench_prefill(small, tokens=(50,), hits=(1.0,))
    with pytest.raises(InvalidArgument, match=r"tokens must be from 2 to 160, got \[161\]"):
        bench_prefill(small, tokens=(161,))


def test_pages_and_batches_that_nothing_could_fill_are_refused(small: GPT2) -> None:
    """Their pools were built slot by slot."""
    with pytest.raises(InvalidArgument, match=r"page_size must be at most 160, .* got 161"):
        bench_prefill(small, tokens=(50,), page_size=161)
    with pytest.raises(InvalidArgument, match=r"page_size must be at most 160, .* got 161"):
        bench_serve(small, page_size=161)
    for size in (0, 257, 10**9):
        with pytest.raises(InvalidArgument, match=f"batch_size must be from 1 to 256, .* {size}"):
            bench_prefill(small, tokens=(50,), batch_size=size)


def test_the_command_prints_tables_and_json_and_draws_charts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    jobs = [vars(job) for job in small_jobs()]
    workload = tmp_path / "jobs.json"
    workload.write_text(json.dumps({"requests": jobs}))
    prefill = ["bench", "prefill", "--model", "tiny", "--tokens", "64", "--hit", "0.5"]
    prefill += ["--hit", "0", "--rounds", "1", "--batch-size", "2", "--device", "cpu"]
    serving = ["bench", "serve", "--workload", str(workload), "--rounds", "1", "--device", "cpu"]
    for arguments, word in ((prefill, "ideal"), (serving, "requests/s")):
        chart = tmp_path / "chart.svg"
        answer = CliRunner().invoke(app, [*arguments, "--chart", str(chart)])
        assert answer.exit_code == 0, answer.output
        assert word in answer.output
        assert "<svg" in chart.read_text()
        answer = CliRunner().invoke(app, [*arguments, "--json", "--no-compare"])
        assert json.loads(answer.stdout)["environment"]["threads"] == 1


@pytest.mark.parametrize("command", ["prefill", "serve"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--model", "/no/such/folder", "folder"),
        ("--device", "no-such-device", "device"),
        ("--page-size", "0", "page_size must be a positive integer"),
        ("--chart", "/no/such/folder/x.svg", "chart must be a file in a folder that exists"),
        ("--chart", "x.foo", "chart must be a file that ends in .svg, .png, .pdf, got 'x.foo'"),
    ],
)
def test_what_is_refused_is_refused_in_one_line_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, command: str, option: str, value: str, message: str
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr("radixlab.benchmarks._stopwatch", never)
    answer = CliRunner().invoke(app, ["bench", command, "--model", "tiny", option, value])
    assert answer.exit_code == 2
    assert message in answer.output and len(answer.output.splitlines()) == 1


@pytest.mark.parametrize("command", ["prefill", "serve"])
def test_more_threads_than_torch_can_count_are_refused(command: str) -> None:
    answer = CliRunner().invoke(app, ["bench", command, "--threads", "100000000000"])
    assert answer.exit_code == 2
    assert "--threads" in answer.output and "1024" in answer.output


@pytest.mark.parametrize(("missing", "extra"), [("torch", "model"), ("matplotlib", "sweep")])
def test_what_is_not_installed_is_named_with_its_extra(missing: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from radixlab.cli import app; app()"
    options = ["--model", "tiny", "--tokens", "64", "--rounds", "1", "--chart", "x.svg"]
    command = [sys.executable, "-c", code, "bench", "prefill", *options]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2 and answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert missing in line and line.endswith(f"pip install 'radixlab[{extra}]'")


@pytest.mark.parametrize("form", ["--json", ""])
def test_a_chart_that_fails_all_the_same_loses_no_measurement(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("the disk is full")

    monkeypatch.setattr("radixlab.bench.plot_prefill", fail)
    options = ["--tokens", "64", "--hit", "0.5", "--rounds", "1", "--chart", "x.svg", *form.split()]
    answer = CliRunner().invoke(app, ["bench", "prefill", "--model", "tiny", *options])
    assert answer.exit_code == 2 and "the disk is full" in answer.stderr
    assert ('"warm_ratio"' if form else "ideal") in answer.stdout


def test_tables_fit_a_screen_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    times = PrefillRow(1000, 970, 0.03, 9.8765, 9.8765, 98.765, 9.8765, 9.8765, 10**9, 10**9)
    way = ServeRow("transformers, copied prefix", 1.0, 1234.5, True, 123456, 123456, 12.345)
    where = {"model": "GPT2(12 layers, 12 heads, width 768)"}
    console = Console(width=80)
    console.print(_prefill_table(PrefillReport(where, 16, 1, [times])))
    console.print(_serve_table(ServeReport(where, 64, 123456, 1, False, [way])))
    shown = capsys.readouterr().out
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    for cell in ("98765.0", "formers", "1000.0", "copied prefix", "1234.5", "12345 ms"):
        assert cell in shown


@pytest.mark.filterwarnings("ignore:Please use the new API:UserWarning")  # torch 2.9, CUDA build
def test_the_gpu_check_runs_on_a_cpu_too(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--small", "--out", str(tmp_path)]
    assert cuda_check.main(arguments) == 0
    (written,) = tmp_path.glob("cuda-check-*.json")
    result = json.loads(written.read_text())
    assert result["exact_is_identical"] and not result["skipped"]
    assert result["environment"]["torch"] == torch.__version__
    settings = {(each["dtype"], each["tf32"], each["exact"]) for each in result["identity"]}
    assert len(settings) == 6
    assert {each["batch"] for each in result["prefill"]} == {1, 2}
    assert all(each["result"]["tokens_per_second"] > 0 for each in result["decode"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_gpu_check_says_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cuda_check.main([]) == 1
    assert "No CUDA device here" in capsys.readouterr().err
