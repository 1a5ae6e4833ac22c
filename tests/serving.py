"""A request's way through the manager, as short as an engine would write it."""

from __future__ import annotations

from collections.abc import Sequence

from radixlab.manager import CacheManager
from radixlab.request import Request
from radixlab.tokens import Namespace, TokenIds


def start(
    manager: CacheManager, prompt: TokenIds, new: int = 1, namespace: Namespace | None = None
) -> Request:
    """Admitted, with a slot for each token of its prompt, and nothing computed yet."""
    request = Request(prompt, new, namespace=namespace)
    assert manager.admit(request)
    manager.allocate(request, request.num_tokens)
    return request


def compute(request: Request, token: int) -> None:
    """One forward pass over all that has no K and V yet; it draws `token`."""
    request.computed_len = request.num_tokens
    request.output.append(token)


def decode_on(manager: CacheManager, request: Request, tokens: Sequence[int]) -> None:
    """One pass for each token: compute the one drawn last and draw the next."""
    for token in tokens:
        manager.allocate(request, request.num_tokens)
        compute(request, token)


def finish(manager: CacheManager, request: Request) -> None:
    manager.cache_request(request)
    manager.release(request)


def serve(
    manager: CacheManager,
    prompt: TokenIds,
    output: Sequence[int] = (0,),
    namespace: Namespace | None = None,
) -> Request:
    """From arrival to end; `output` is what the model draws."""
    request = start(manager, prompt, len(output), namespace)
    compute(request, output[0])
    manager.cache_request(request)
    decode_on(manager, request, output[1:])
    finish(manager, request)
    return request


def hit(manager: CacheManager, prompt: TokenIds, namespace: Namespace | None = None) -> int:
    """How many tokens a request with this prompt would find."""
    return manager.match(Request(prompt, namespace=namespace)).cached_len
