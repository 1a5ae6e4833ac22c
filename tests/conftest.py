"""How hypothesis searches, the small model that several files compute with, and a Dask cluster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

    from radixlab.gpt2 import GPT2

# Always the same examples in `make test`, more in `make test-long`.
REDUCED = os.environ.get("RADIXLAB_LONG") == "small"

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "long", derandomize=REDUCED, deadline=None, max_examples=400 if REDUCED else 10_000
)
settings.load_profile("ci")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes with one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny() -> GPT2:
    """The model that comes with radixlab."""
    from radixlab.gpt2 import load_gpt2

    return load_gpt2(device="cpu")


@pytest.fixture(scope="module")
def hf_tiny() -> GPT2LMHeadModel:
    """The same as transformers has it."""
    import torch
    import transformers

    from radixlab import weights

    folder = weights.EMBEDDED
    return transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture
def dask_cluster() -> Iterator[object]:
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
