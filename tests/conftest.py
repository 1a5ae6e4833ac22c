"""How hypothesis searches: always the same examples in `make test`, more in `make test-long`."""

import os

from hypothesis import settings

REDUCED = os.environ.get("RADIXLAB_LONG") == "small"

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "long", derandomize=REDUCED, deadline=None, max_examples=400 if REDUCED else 10_000
)
settings.load_profile("ci")
