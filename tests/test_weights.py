"""Loading a GPT-2: what is found where, and what a missing or strange checkpoint is told."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Only now: without torch and transformers this file is skipped, not broken.
from radixlab import weights  # noqa: E402
from radixlab.errors import InvalidArgument  # noqa: E402
from radixlab.gpt2 import (  # noqa: E402
    GPT2,
    GPT2Config,
    ModelNotFound,
    NoTokenizer,
    Span,
    UnsupportedModel,
    load_gpt2,
    pick_device,
)
from radixlab.kv import KVPool  # noqa: E402

SMALL = GPT2Config(layers=2, heads=2, width=32, context=64, vocab=50, inner=128)


def logits_of(model: GPT2, ids: torch.Tensor) -> torch.Tensor:
    pool = KVPool.for_model(model, len(ids))
    return model.forward(ids, [Span(torch.arange(len(ids)), 0, len(ids))], pool, logits="all")


def test_the_embedded_model_reads_and_writes_text():
    tiny = load_gpt2(device="cpu")
    text = "It is a truth — universally \n acknowledged 🙂"
    ids = tiny.encode(text)
    assert all(0 <= i < tiny.config.vocab for i in ids)
    assert tiny.decode(ids) == text
    assert tiny.config == GPT2Config(
        layers=4, heads=3, width=192, context=1024, vocab=2048, inner=768
    )
    assert repr(tiny) == "GPT2(4 layers, 3 heads of 64, torch.float32, cpu)"


def test_weights_load_without_transformers():
    code = (
        "import sys, radixlab.gpt2 as g; g.load_gpt2(device='cpu');"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_weights_are_floating_point_numbers_in_a_shape_that_exists():
    with pytest.raises(InvalidArgument, match=r"floating-point type, got torch\.int64"):
        load_gpt2(dtype=torch.long, device="cpu")
    with pytest.raises(InvalidArgument, match=r"torch\.bfloat16 or another .*, got 'float16'"):
        load_gpt2(dtype="float16", device="cpu")  # type: ignore[arg-type]  # on purpose
    for layers in (0, 2.0, "2", None, True):
        with pytest.raises(InvalidArgument, match="layers must be an integer, at least 1, got"):
            GPT2Config(layers=layers)  # type: ignore[arg-type]  # on purpose
    for eps in ("x", None, -1e-5, float("nan"), 10**400):
        with pytest.raises(InvalidArgument, match="eps must be a number from 0 to 1, got"):
            GPT2Config(eps=eps)  # type: ignore[arg-type]  # on purpose


def test_random_models_of_one_seed_are_equal():
    one, same, other = (
        logits_of(GPT2.random(SMALL, seed=seed), torch.arange(5)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_checkpoint_saved_by_transformers_loads(tmp_path: Path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=32, vocab_size=64, n_positions=40)
    hf = transformers.GPT2LMHeadModel(config).eval()
    hf.save_pretrained(tmp_path)
    ids = torch.arange(40)
    for model in (
        load_gpt2(tmp_path, device="cpu"),
        GPT2(hf.state_dict(), GPT2Config.from_hf(config.to_dict())),  # names with transformer.
    ):
        # gelu_new is composed of five operations in transformers, and fused here.
        with torch.inference_mode():
            expected = hf(ids[None]).logits[0]
        assert torch.allclose(logits_of(model, ids), expected, atol=1e-5)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the embedded checkpoint that a test may damage."""
    return Path(shutil.copytree(weights.EMBEDDED, tmp_path / "model"))


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "relu"},
        {"model_type": "llama"},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
        {"add_cross_attention": True},
        {"quantization_config": {"bits": 4}},
    ],
)
def test_a_gpt2_of_another_kind_is_refused(checkpoint: Path, changes: dict[str, object]):
    edit_config(checkpoint, **changes)
    with pytest.raises(UnsupportedModel, match=rf"radixlab computes {next(iter(changes))} = "):
        load_gpt2(checkpoint)


def test_weights_that_do_not_fit_the_configuration_are_refused(checkpoint: Path):
    edit_config(checkpoint, n_layer=5)
    with pytest.raises(UnsupportedModel, match=r"has no h\.4\."):
        load_gpt2(checkpoint)
    edit_config(checkpoint, n_layer=4, vocab_size=2047)
    with pytest.raises(UnsupportedModel, match=r"shape \[2047, 192\], and has \[2048, 192\]"):
        load_gpt2(checkpoint)
    edit_config(checkpoint, vocab_size=2048, n_head=5)
    with pytest.raises(UnsupportedModel, match="n_embd must be a multiple of the 5 heads, got 192"):
        load_gpt2(checkpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": "2"}, "n_layer must be an integer, at least 1, got '2'"),
        ({"n_layer": None}, "n_layer must be an integer, at least 1, got None"),
        ({"n_layer": 2.0}, "n_layer must be an integer, at least 1, got 2.0"),
        ({"n_head": 0}, "n_head must be an integer, at least 1, got 0"),
        ({"n_embd": None}, "n_embd must be an integer, at least 1, got None"),
        ({"n_positions": []}, "n_positions must be an integer, at least 1, got []"),
        ({"vocab_size": -1}, "vocab_size must be an integer, at least 1, got -1"),
        ({"n_inner": "768"}, "n_inner must be an integer, at least 1, got '768'"),
        ({"layer_norm_epsilon": "x"}, "layer_norm_epsilon must be a number from 0 to 1, got 'x'"),
        ({"layer_norm_epsilon": None}, "layer_norm_epsilon must be a number from 0 to 1, got None"),
    ],
)
def test_a_configuration_of_the_wrong_kind_is_refused_by_its_name(
    checkpoint: Path, changes: dict[str, object], message: str
):
    edit_config(checkpoint, **changes)
    with pytest.raises(UnsupportedModel) as refusal:
        load_gpt2(checkpoint)
    assert str(refusal.value) == message


@pytest.mark.parametrize("text", ["[]", "null", "5", '"gpt2"'])
def test_a_configuration_that_is_no_object_is_refused(checkpoint: Path, text: str):
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(UnsupportedModel, match=r"config\.json must be an object of settings, not"):
        load_gpt2(checkpoint)


def test_a_configuration_nested_too_deeply_cannot_be_read(checkpoint: Path):
    (checkpoint / "config.json").write_text("[" * 200_000)
    with pytest.raises(UnsupportedModel, match=r"cannot read the checkpoint in .*recursion"):
        load_gpt2(checkpoint)


def test_what_a_configuration_leaves_out_is_gpt2_s():
    assert GPT2Config.from_hf({"model_type": "gpt2"}) == GPT2Config()
    small = GPT2Config.from_hf({"model_type": "gpt2", "n_embd": 24, "n_inner": None})
    assert (small.width, small.inner) == (24, 96)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_without_a_checkpoint_is_named(checkpoint: Path, name: str):
    (checkpoint / name).write_bytes(b"\0 damaged")
    with pytest.raises(UnsupportedModel, match=r"cannot read the checkpoint in .*model"):
        load_gpt2(checkpoint)
    (checkpoint / name).unlink()
    with pytest.raises(ModelNotFound, match=rf"the folder has no {name}; load_gpt2"):
        load_gpt2(str(checkpoint))


def test_a_checkpoint_without_a_tokenizer_still_computes(checkpoint: Path):
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    model = load_gpt2(checkpoint, device="cpu")
    assert logits_of(model, torch.arange(3)).isfinite().all()
    with pytest.raises(NoTokenizer, match="came without one and takes token ids only; load_gpt2"):
        model.encode("text")
    (checkpoint / "tokenizer.json").write_text("damaged")
    with pytest.raises(NoTokenizer, match="cannot load the one in"):
        model.encode("text")


@pytest.fixture
def empty_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with nothing in it, and a hub out of reach."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(weights, "_hub_answers", lambda endpoint: False)
    return tmp_path / "hub"


@pytest.mark.usefixtures("empty_hub")
def test_a_missing_model_is_one_sentence_with_the_ways_out(monkeypatch: pytest.MonkeyPatch):
    ways_out = 'load_gpt2("tiny") is always there'
    with pytest.raises(ModelNotFound, match=r"'gpt2' not found: .* is out of reach") as caught:
        load_gpt2("gpt2")
    assert ways_out in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ModelNotFound, match="neither a folder nor a name"):
        load_gpt2("no such model!")
    with pytest.raises(ModelNotFound, match="there is no such folder"):
        load_gpt2("/no/such/folder")
    with pytest.raises(ModelNotFound, match="there is no such folder"):
        load_gpt2(Path("./nowhere"))
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE is set"):
        load_gpt2("somebody/something")


@pytest.mark.parametrize("hub_name", ["openai-community/gpt2", "gpt2"])
def test_gpt2_is_found_in_the_hub_s_cache_under_either_name(empty_hub: Path, hub_name: str):
    repo = empty_hub / f"models--{hub_name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    shutil.copytree(weights.EMBEDDED, repo / "snapshots" / "abc")
    assert load_gpt2("gpt2", device="cpu").decode([1021, 364]) == "It is"


@pytest.mark.usefixtures("empty_hub")
def test_a_hub_that_says_no_is_quoted(monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub

    def no(*args: object, **kwargs: object) -> str:
        raise OSError("404 no such repository\nwith much more to say")

    monkeypatch.setattr(weights, "_hub_answers", lambda endpoint: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no)
    with pytest.raises(ModelNotFound, match="hub says: 404 no such repository; load_gpt2"):
        load_gpt2("somebody/something")


def test_a_hub_that_never_answers_costs_no_more_than_the_timeout(monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub

    def hang(*args: object, **kwargs: object) -> None:
        time.sleep(1.0)
        raise OSError

    monkeypatch.setattr(weights, "HUB_TIMEOUT", 0.05)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=hang))
    start = time.monotonic()
    assert not weights._hub_answers("https://hub")
    assert time.monotonic() - start < 0.8
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=len))
    assert not weights._hub_answers("https://hub"), "an exception is no answer"


def test_pick_device_prefers_a_gpu(monkeypatch: pytest.MonkeyPatch):
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(InvalidArgument, match=r"device must be a device .*, got 'gpu'"):
        pick_device("gpu")
    with pytest.raises(InvalidArgument, match="a device that torch finds here"):
        pick_device("meta")
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda answer=available: answer)
        assert pick_device(None) == torch.device(device)
