"""The radix tree by itself: edges, splits and where a walk ends."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixlab.cache import RadixCache
from radixlab.errors import InvalidArgument, InvalidPageSize, LengthMismatch
from radixlab.tokens import Namespace, encode
from radixlab.tree import RadixTree, RadixTreeNode

IDS = st.lists(st.integers(0, 1), max_size=12)


def leaf_below_root(ids: list[int], page_size: int = 1) -> tuple[RadixTree, RadixTreeNode]:
    tree = RadixTree(page_size)
    slots = array("i", range(100, 100 + len(ids)))
    return tree, tree.add_leaf(tree.root, encode(ids), slots, None)


def agreement(one: list[int], other: list[int]) -> int:
    """The oracle of `get_match_len`: one token after the other."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@given(IDS.filter(len), IDS, IDS)
def test_get_match_len_is_the_common_prefix(
    edge: list[int], before: list[int], ids: list[int]
) -> None:
    _, node = leaf_below_root(edge)
    key = encode(before + ids)
    assert node.get_match_len(key, 4 * len(before)) == agreement(edge, ids)
    for end in range(len(ids) + 1):
        stop = 4 * (len(before) + end)
        assert node.get_match_len(key, 4 * len(before), stop) == agreement(edge, ids[:end])


@given(st.integers(0, 300), st.integers(0, 300))
def test_get_match_len_finds_the_first_difference_on_long_edges(length: int, place: int) -> None:
    ids = list(range(1, length + 2))
    _, node = leaf_below_root(ids)
    other = [*ids[:place], 0, *ids[place + 1 :]]
    assert node.get_match_len(encode(other)) == min(place, len(ids))


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n + 1), st.integers(1, n))))
def test_a_split_keeps_every_token_at_its_slot_and_the_lower_node_s_identity(
    lengths: tuple[int, int],
) -> None:
    length, position = lengths
    ids = list(range(length))
    tree, node = leaf_below_root(ids)
    child = tree.add_leaf(node, encode([77]), array("i", [7]), None)
    node.ref_count, node.timestamp, uuid = 3, 5, node.uuid

    upper = node.split_at(position)

    assert upper.key.tolist() + node.key.tolist() == ids
    assert upper.value.tolist() + node.value.tolist() == list(range(100, 100 + length))
    assert upper.length == len(upper.key) == len(upper.value) == position
    assert (upper.ref_count, upper.timestamp) == (node.ref_count, node.timestamp) == (3, 5)
    assert node.uuid == uuid != upper.uuid
    assert child.path() == [upper, node, child] and child.parent is node
    assert [upper.path_len, node.path_len, child.path_len] == [position, length, length + 1]
    assert list(tree.nodes()) == [tree.root, upper, node, child]


@pytest.mark.parametrize("position", [-1, 0, 3, 4])
def test_a_split_leaves_something_on_both_sides(position: int) -> None:
    tree, node = leaf_below_root([1, 2, 3])
    with pytest.raises(InvalidArgument):
        node.split_at(position)
    assert list(tree.nodes()) == [tree.root, node]


def test_a_node_has_the_chapter_s_members() -> None:
    tree, node = leaf_below_root([1, 2, 3])
    assert tree.root.is_root() and not node.is_root()
    assert node.is_leaf() and not tree.root.is_leaf()
    assert node.parent is tree.root and tree.root.children == {node.key_fn(encode([1])): node}
    assert node.uuid == tree.root.uuid + 1
    assert (node.length, node.ref_count) == (3, 0)


def test_the_key_is_a_view_and_not_a_copy() -> None:
    _, node = leaf_below_root([1, 2, 3])
    assert node.key.obj is node._key and node.key.format == "i"


def test_key_and_value_have_one_length() -> None:
    _, node = leaf_below_root([1, 2, 3])
    with pytest.raises(LengthMismatch) as refusal:
        node.set_key_value(encode([1, 2]), array("i", [0, 1, 2]))
    assert (refusal.value.tokens, refusal.value.slots) == (2, 3)
    assert node.key.tolist() == [1, 2, 3]


@given(st.sampled_from([1, 2, 4]), IDS)
def test_children_hang_under_their_first_page(page_size: int, ids: list[int]) -> None:
    ids = [0] * page_size + ids[: len(ids) // page_size * page_size]
    tree, node = leaf_below_root(ids, page_size)
    assert tree.root.children[encode(ids[:page_size])] is node


def test_namespaces_are_told_apart_below_the_root_only() -> None:
    tree = RadixTree()
    space = Namespace(tenant="t")
    slots = array("i", [0, 1])
    open_leaf = tree.add_leaf(tree.root, encode([1, 2]), slots, None)
    own_leaf = tree.add_leaf(tree.root, encode([1, 2]), slots, space)
    below = tree.add_leaf(own_leaf, encode([3]), array("i", [5]), space)
    assert (open_leaf.namespace, own_leaf.namespace, below.namespace) == (None, space, space)
    assert own_leaf.split_at(1).namespace == own_leaf.namespace == below.namespace == space
    assert tree.root.namespace is None


@pytest.mark.parametrize("page_size", [0, -1, 1.0, "1", None])
def test_a_page_holds_at_least_one_token(page_size: int) -> None:
    with pytest.raises(InvalidPageSize):
        RadixTree(page_size)


def test_a_tree_is_drawn_as_text() -> None:
    tree, node = leaf_below_root([1, 2])
    tree.add_leaf(node, encode([3]), array("i", [9]), None)
    node.ref_count = 2
    tree.add_leaf(tree.root, encode(range(20)), array("i", range(20)), Namespace(salt="s"))
    assert str(tree) == (
        "root\n"
        "├── [1, 2] -> [p100, p101]  ref_count 2\n"
        "│   └── [3] -> [p9]\n"
        "└── [0, 1, 2, 3, ... 20 in all ..., 18, 19] -> "
        "[p0, p1, p2, p3, ... 20 in all ..., p18, p19]"
        "  namespace Namespace(adapter=None, salt='s', tenant=None)"
    )


def test_a_chat_of_many_turns_can_be_printed() -> None:
    """Each turn is a node below the one before: deeper than Python's recursion goes."""
    cache = RadixCache()
    for turn in range(1, 1500):
        cache.insert_prefix(range(turn), array("i", range(turn)))
    assert str(cache).count("└── ") == 1499
