"""What a step did to each node and each slot, as an event and a word for the picture.

Taken from the step's data alone: its path, its changes and its snapshots.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from radixlab.lifecycle import Step
from radixlab.snapshot import CACHED, FREE, NodeSnapshot, Snapshot
from radixlab.viz import palette
from radixlab.viz.palette import CREATED, EVICTED, LOCKED, MATCHED, SPLIT, UNLOCKED
from radixlab.viz.words import show_tokens

_FIRST = (EVICTED, CREATED, SPLIT, LOCKED, UNLOCKED, MATCHED)
_FOUND_BY = ("match", "insert", "match_prefix", "insert_prefix")


class Mark(NamedTuple):
    """The event that gives a node its colour and border, and the words that say what happened."""

    event: str
    words: str


def mark_nodes(step: Step, before: Snapshot | None = None) -> dict[int, Mark]:
    """A mark for each node, by uuid, that the step changed or found.

    With the state `before`, an evicted node whose parent is gone too tells what it hung below.
    """
    found: dict[int, list[tuple[str, str]]] = {}

    def note(uuid: int, event: str, words: str) -> None:
        found.setdefault(uuid, []).append((event, words))

    changes = step.changes
    uppers = {upper for upper, _ in changes.split}
    for upper, lower in changes.split:
        note(upper, SPLIT, "split: upper part")
        note(lower, SPLIT, "split: lower part")
    for lower in dict.fromkeys(lower for _, lower in changes.healed):
        note(lower, SPLIT, "healed, two edges are one again")
    for uuid in changes.created:
        if uuid not in uppers:
            note(uuid, CREATED, "created")
    for uuid, was, now in changes.ref_counts:
        if uuid not in uppers:
            event = LOCKED if now > was else UNLOCKED
            note(uuid, event, f"{event} {was} → {now}")
    absorbed = _absorbed(step, before)
    for uuid in changes.removed:
        note(uuid, EVICTED, f"evicted{absorbed.get(uuid, '')}")
    if step.name in _FOUND_BY:
        new = set(changes.created) - (uppers if step.name.startswith("match") else set())
        for uuid in step.nodes:
            if uuid not in new:
                note(uuid, MATCHED, "matched")
    return {
        uuid: Mark(min((e for e, _ in notes), key=_FIRST.index), ", ".join(w for _, w in notes))
        for uuid, notes in found.items()
    }


def main_event(step: Step) -> str:
    """The one event whose colour the step's source line gets: what its node or slots became."""
    marks = mark_nodes(step)
    events = {mark.event for mark in marks.values()}
    for event in _FIRST:
        if event in events:
            return event
    states = {slot_state(move.after) for move in step.changes.slots}
    if palette.PRIVATE in states:
        return palette.ALLOCATED
    return palette.FREED if palette.FREE in states else MATCHED


def slot_state(owner: str) -> str:
    """Free or private for an owner that is not the cache; for the cache, evictable at least."""
    if owner == FREE:
        return palette.FREE
    return palette.EVICTABLE if owner == CACHED else palette.PRIVATE


def slot_states(snapshot: Snapshot) -> dict[int, str]:
    """Each slot's state: free, evictable, protected or private."""
    states = {slot: slot_state(owner) for slot, owner in snapshot.owners().items()}
    for node in snapshot.nodes:
        if node.ref_count:
            states |= dict.fromkeys(node.value, palette.PROTECTED)
    return states


def node_state(node: NodeSnapshot) -> str:
    """Whether eviction may take the node's tokens."""
    return palette.PROTECTED if node.ref_count else palette.EVICTABLE


def with_removed(step: Step, before: Snapshot | None) -> tuple[NodeSnapshot, ...]:
    """The nodes after the step, and, where they are known, those that it evicted, as ghosts.

    A ghost whose parent has been absorbed (`Changes.healed`) hangs where the parent hung.
    """
    after = step.snapshot.nodes
    if before is None or not step.changes.removed:
        return after
    gone, lifted = set(step.changes.removed), _lifted(step, before)
    there = {node.uuid for node in after} | gone
    ghosts = (
        replace(node, parent=lifted[node.uuid][0]) if node.uuid in lifted else node
        for node in before.nodes
        if node.uuid in gone
    )
    return (*after, *(ghost for ghost in ghosts if ghost.parent in there))


def _absorbed(step: Step, before: Snapshot | None) -> dict[int, str]:
    """For each ghost whose parent has been absorbed, the words that say what it hung below."""
    if before is None:
        return {}
    return {u: f", was below {show_tokens(key)}" for u, (_, key) in _lifted(step, before).items()}


def _lifted(step: Step, before: Snapshot) -> dict[int, tuple[int | None, tuple[int, ...]]]:
    """Where each ghost hangs whose parent has been absorbed, and the tokens in between."""
    healed = {upper for upper, _ in step.changes.healed}
    old = {node.uuid: node for node in before.nodes}
    lifted: dict[int, tuple[int | None, tuple[int, ...]]] = {}
    for uuid in step.changes.removed:
        parent, key = old[uuid].parent, tuple[int, ...]()
        while parent is not None and parent in healed:
            upper = old[parent]
            parent, key = upper.parent, upper.key + key
        if key:
            lifted[uuid] = parent, key
    return lifted
