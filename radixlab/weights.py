"""Where a GPT-2 comes from: its configuration and its weights, by name, without transformers.

A checkpoint is a folder in Hugging Face's format: `config.json`, `model.safetensors` and the
tokenizer's files. transformers takes seconds to import and gives a missing model half a minute of
retries, so the folder is found here, and `model.safetensors` is read directly.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radixlab.errors import InvalidArgument, RadixLabError

EMBEDDED = Path(__file__).with_name("models") / "tiny-austen"
HUB_TIMEOUT = 3.0  # seconds to answer before the hub counts as out of reach
HUB_FILES = ["config.json", "model.safetensors", "tokenizer*", "vocab.json", "merges.txt"]
WAYS_OUT = (
    'load_gpt2("tiny") is always there, load_gpt2("gpt2-random") has GPT-2\'s shape without its '
    "weights, and load_gpt2(folder) reads a downloaded checkpoint"
)
# What `forward` computes; a checkpoint that says otherwise would be run wrongly.
EXPECTED = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (None,),
}
# The fields of `GPT2Config` by their names in config.json.
HF_NAMES = {
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_embd",
    "context": "n_positions",
    "vocab": "vocab_size",
    "inner": "n_inner",
    "eps": "layer_norm_epsilon",
}


class ModelNotFound(RadixLabError):
    """No checkpoint of the name `source`; the message ends with the ways out."""

    def __init__(self, source: str, reason: str) -> None:
        self.source, self.reason = source, reason
        super().__init__(f"model {source!r} not found: {reason}; {WAYS_OUT}")


class UnsupportedModel(RadixLabError, ValueError):
    """A checkpoint that is no GPT-2, or a GPT-2 of a kind that radixlab doesn't compute."""


class NoTokenizer(RadixLabError):
    """A model of token ids alone was asked to read or write text."""

    def __init__(self, reason: str) -> None:
        super().__init__(f'no tokenizer: {reason}; load_gpt2("tiny") has one')


@dataclass(frozen=True)
class GPT2Config:
    """The shape of a GPT-2: `width` is d, `inner` the MLP's, `context` in tokens.

    Raises `InvalidArgument`.
    """

    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocab: int = 50257
    inner: int = 3072
    eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "context", "vocab", "inner"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidArgument(name, value, "an integer, at least 1")
        if self.width % self.heads:
            raise InvalidArgument("width", self.width, f"a multiple of the {self.heads} heads")
        if type(self.eps) not in (int, float) or not 0 <= self.eps <= 1:
            raise InvalidArgument("eps", self.eps, "a number from 0 to 1")

    @property
    def head_dim(self) -> int:
        """Elements of one head's key."""
        return self.width // self.heads

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> GPT2Config:
        """Read a Hugging Face `config.json`; `UnsupportedModel` if it is none, or asks for more."""
        if not isinstance(config, Mapping):
            kind = type(config).__name__
            raise UnsupportedModel(f"config.json must be an object of settings, not a {kind}")
        defaults = {
            "activation_function": "gelu_new",  # transformers leaves out what is default
            "scale_attn_weights": True,
            "quantization_config": None,
        }
        for name, allowed in EXPECTED.items():
            value = config.get(name, defaults.get(name, False))
            if value not in allowed:
                wanted = " or ".join(map(repr, allowed))
                raise UnsupportedModel(f"radixlab computes {name} = {wanted}, not {value!r}")
        given = {name: config[theirs] for name, theirs in HF_NAMES.items() if theirs in config}
        inner = given.pop("inner", None)
        try:
            shape = cls(**given)
            return replace(shape, inner=4 * shape.width if inner is None else inner)
        except InvalidArgument as error:
            name = HF_NAMES[error.name]
            raise UnsupportedModel(f"{name} must be {error.allowed}, got {error.got!r}") from error

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint by its Hugging Face name; matrices are [in, out]."""
        d, inner = self.width, self.inner
        shapes: dict[str, tuple[int, ...]] = {
            "wte.weight": (self.vocab, d),
            "wpe.weight": (self.context, d),
        }
        for layer in range(self.layers):
            for name, (rows, columns) in {
                "attn.c_attn": (d, 3 * d),
                "attn.c_proj": (d, d),
                "mlp.c_fc": (d, inner),
                "mlp.c_proj": (inner, d),
            }.items():
                shapes[f"h.{layer}.{name}.weight"] = (rows, columns)
                shapes[f"h.{layer}.{name}.bias"] = (columns,)
        norms = [f"h.{layer}.{name}" for layer in range(self.layers) for name in ("ln_1", "ln_2")]
        for name in [*norms, "ln_f"]:
            shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (d,)
        return shapes


def checked_weights(
    state_dict: Mapping[str, Tensor],
    config: GPT2Config,
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    """Take the tensors that `config` asks for, moved; `UnsupportedModel` if one doesn't fit.

    A `transformer.` in front of a name is ignored, and so are the causal masks that old
    checkpoints store as `attn.bias`. Without `lm_head.weight` the head is the token embedding.
    """
    given = {name.removeprefix("transformer."): tensor for name, tensor in state_dict.items()}
    shapes = config.weight_shapes()
    if "lm_head.weight" in given:
        shapes["lm_head.weight"] = (config.vocab, config.width)
    for name, shape in shapes.items():
        if name not in given:
            raise UnsupportedModel(f"the checkpoint has no {name}")
        if tuple(given[name].shape) != shape:
            found = list(given[name].shape)
            raise UnsupportedModel(f"{name} must have shape {list(shape)}, and has {found}")
    return {name: given[name].detach().to(device, dtype) for name in shapes}


def random_weights(config: GPT2Config, seed: int) -> dict[str, Tensor]:
    """Draw untrained float32 weights: normal, deviation 0.02 as GPT-2 starts, norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in config.weight_shapes().items():
        weights[name] = torch.empty(shape).normal_(0.0, 0.02, generator=generator)
        if "ln_" in name and name.endswith("weight"):
            weights[name] += 1.0
    return weights


def read_checkpoint(folder: Path) -> tuple[GPT2Config, dict[str, Tensor]]:
    """Read `config.json` and `model.safetensors`, as stored, on the CPU."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelNotFound(str(folder), f"the folder has no {name}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = load_file(folder / "model.safetensors")
    except (ValueError, RecursionError, SafetensorError) as error:
        raise UnsupportedModel(f"cannot read the checkpoint in {folder}: {error}") from error
    return GPT2Config.from_hf(config), weights


def find_checkpoint(source: str | os.PathLike[str]) -> Path:
    """Find the folder of a checkpoint: embedded, local, in the hub's cache, or downloaded.

    `source` is "tiny", a folder, or a name on the Hugging Face hub ("gpt2" also means
    "openai-community/gpt2"); a path object is a folder. Raises `ModelNotFound`: at once when
    HF_HUB_OFFLINE is set, after `HUB_TIMEOUT` seconds at most when the hub doesn't answer.
    """
    if source == "tiny":
        return EMBEDDED
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if not isinstance(source, str) or folder.is_absolute() or source.startswith((".", "~")):
        raise ModelNotFound(str(source), "there is no such folder")
    names = ["openai-community/gpt2", "gpt2"] if source == "gpt2" else [source]
    return _cached(source, names) or _downloaded(source, names[0])


def _cached(source: str, names: list[str]) -> Path | None:
    """Find the hub's local copy, if both its configuration and its weights are there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for name in names:
        try:
            found = [try_to_load_from_cache(name, file) for file in HUB_FILES[:2]]
        except HFValidationError as error:
            reason = "it is neither a folder nor a name that the Hugging Face hub could have"
            raise ModelNotFound(source, reason) from error
        if all(isinstance(path, str) for path in found):
            return Path(str(found[0])).parent
    return None


def _downloaded(source: str, name: str) -> Path:
    """Download from the hub, unless it is out of reach."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        raise ModelNotFound(source, "it is not in the local cache, and HF_HUB_OFFLINE is set")
    if not _hub_answers(constants.ENDPOINT):
        raise ModelNotFound(
            source, f"it is not in the local cache, and {constants.ENDPOINT} is out of reach"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ModelNotFound(source, f"the Hugging Face hub says: {reason}") from error


def _hub_answers(endpoint: str) -> bool:
    """Ask whether the hub answers in `HUB_TIMEOUT` seconds, whatever it answers."""
    from huggingface_hub import get_session

    answers = []

    def ask() -> None:
        try:
            answers.append(get_session().head(endpoint, timeout=HUB_TIMEOUT))
        except Exception:  # refused, no route, no name, a proxy's no: all mean "not now"
            return

    # A thread, since no timeout covers looking up the host's name.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT)
    return bool(answers)
