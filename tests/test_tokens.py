"""Token ids in any form become the same int32 bytes, or are refused by name."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.errors import EmptyPrompt, InvalidArgument, InvalidTokenId
from radixlab.request import Request
from radixlab.tokens import TOKEN_BYTES, Namespace, brief, decode, encode

LARGEST = 2**31 - 1
TOKEN_ID = st.integers(0, LARGEST)


@given(st.lists(TOKEN_ID))
def test_decode_is_the_inverse_of_encode(ids: list[int]) -> None:
    assert decode(encode(ids)) == ids
    assert len(encode(ids)) == TOKEN_BYTES * len(ids)


@given(st.lists(TOKEN_ID), st.sampled_from("ilqIQ"))
def test_every_form_of_the_same_ids_gives_the_same_bytes(ids: list[int], typecode: str) -> None:
    key = encode(ids)
    for form in (tuple(ids), iter(ids), array(typecode, ids), memoryview(array("i", ids)), key):
        assert encode(form) == key


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
def test_numpy_and_torch_vectors_are_token_ids(dtype: str) -> None:
    numpy = pytest.importorskip("numpy", reason="the core works without it")
    torch = pytest.importorskip("torch", reason="the core works without it")
    ids = [0, 1, 65535]
    assert encode(numpy.array(ids, dtype)) == encode(ids)
    assert encode(torch.tensor(ids, dtype=getattr(torch, dtype))) == encode(ids)


@given(st.lists(TOKEN_ID, max_size=9), st.integers(), st.lists(st.integers(), max_size=3))
def test_the_first_id_out_of_range_is_named_with_its_position(
    good: list[int], wrong: int, rest: list[int]
) -> None:
    if 0 <= wrong <= LARGEST:
        wrong += LARGEST + 1
    with pytest.raises(InvalidTokenId) as refusal:
        encode([*good, wrong, *rest])
    assert (refusal.value.token_id, refusal.value.index) == (wrong, len(good))
    assert str(wrong) in str(refusal.value) and f"position {len(good)}" in str(refusal.value)


@pytest.mark.parametrize("wrong", [1.0, "1", None, [1], b"1", 2**31, -1, -(2**31), 2**70])
def test_what_is_no_token_id_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidTokenId) as refusal:
        encode([5, wrong, 7])
    assert (refusal.value.token_id, refusal.value.index) == (wrong, 1)


@pytest.mark.parametrize("wrong", [3, None, 1.5])
def test_what_is_no_sequence_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="a sequence of token ids, not one"):
        encode(wrong)


def test_text_is_not_token_ids() -> None:
    with pytest.raises(InvalidTokenId) as refusal:
        encode("hello")
    assert (refusal.value.token_id, refusal.value.index) == ("h", 0)


def test_a_matrix_is_not_token_ids() -> None:
    numpy = pytest.importorskip("numpy", reason="the core works without it")
    with pytest.raises(InvalidTokenId):
        encode(numpy.zeros((2, 2), "int32"))
    with pytest.raises(InvalidTokenId):
        encode(numpy.array([1.0, 2.0]))


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7])
def test_bytes_that_are_not_whole_tokens_are_refused(length: int) -> None:
    with pytest.raises(InvalidArgument, match=f"'{length} bytes'"):
        encode(bytes(length))


def test_int32_bytes_pass_as_they_are_without_a_copy() -> None:
    key = encode([1, 2, 3])
    assert encode(key) is key
    assert Request(key).prompt is key


def test_an_array_may_change_afterwards_without_changing_the_request() -> None:
    ids = array("i", [1, 2, 3])
    request = Request(ids)
    ids[0] = 99
    assert decode(request.prompt) == [1, 2, 3]


@pytest.mark.parametrize("empty", [lambda: [], lambda: b"", lambda: array("i"), lambda: iter(())])
def test_a_prompt_needs_a_token(empty: Callable[[], Any]) -> None:
    with pytest.raises(EmptyPrompt):
        Request(empty())


@given(st.lists(TOKEN_ID, min_size=1), st.lists(TOKEN_ID, max_size=5), st.integers(1, 9))
def test_the_lengths_of_a_request(prompt: list[int], output: list[int], new: int) -> None:
    """The last token is drawn and never computed: its K and V are not needed."""
    request = Request(prompt, new)
    request.output.extend(output)
    assert request.prompt_len == len(prompt)
    assert request.num_tokens == len(prompt) + len(output)
    assert request.max_len == len(prompt) + new - 1
    assert decode(request.tokens) == prompt + output
    assert request.is_done == (len(output) >= new)


PART = st.none() | st.sampled_from(["", "a", "b", "ab", "None"])


@given(*[PART] * 6)
def test_namespaces_are_equal_only_if_each_part_is(
    adapter: str | None,
    salt: str | None,
    tenant: str | None,
    adapter2: str | None,
    salt2: str | None,
    tenant2: str | None,
) -> None:
    one, other = Namespace(adapter, salt, tenant), Namespace(adapter2, salt2, tenant2)
    assert (one == other) == ((adapter, salt, tenant) == (adapter2, salt2, tenant2))
    assert (one == other) == (repr(one) == repr(other))


def test_a_long_list_is_shown_by_its_ends_and_its_length() -> None:
    assert brief([]) == "[]"
    assert brief(range(8)) == "[0, 1, 2, 3, 4, 5, 6, 7]"
    assert brief(range(9), "p") == "[p0, p1, p2, p3, ... 9 in all ..., p7, p8]"
