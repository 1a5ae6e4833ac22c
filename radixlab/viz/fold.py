"""Which nodes of a large tree are drawn; the others become stubs that say how many they are.

What the step touched comes first, with its ancestors; then the most recently used branches, from
the root down, while there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from radixlab.snapshot import NodeSnapshot
from radixlab.viz.words import count


@dataclass(slots=True)
class Stub:
    """Nodes that are not drawn below one that is: whole subtrees, counted."""

    nodes: int = 0
    tokens: int = 0
    marked: int = 0

    def __str__(self) -> str:
        words = f"+ {count(self.nodes, 'node')}, {count(self.tokens, 'token')}"
        return f"{words}, {self.marked} of them marked" if self.marked else words


@dataclass(slots=True)
class Branch:
    """A node that is drawn, the branches below it, and the stub of what is left out there."""

    node: NodeSnapshot
    children: list[Branch] = field(default_factory=list)
    stub: Stub | None = None

    def walk(self) -> list[Branch]:
        """This branch and all below it, each before its children."""
        order, stack = [], [self]
        while stack:
            branch = stack.pop()
            order.append(branch)
            stack.extend(reversed(branch.children))
        return order


def fold(
    nodes: Sequence[NodeSnapshot], marked: Collection[int] = (), max_nodes: int = 24
) -> Branch:
    """The tree of at most about `max_nodes` nodes to be drawn; `marked` uuids are kept first.

    A single node is never replaced by a stub: that would take as much room.
    """
    by_uuid = {node.uuid: node for node in nodes}
    children: dict[int, list[NodeSnapshot]] = {node.uuid: [] for node in nodes}
    for node in nodes:
        if node.parent is not None:
            children[node.parent].append(node)
    (root,) = (node for node in nodes if node.parent is None)
    shown = _choose(
        root, by_uuid, children, [uuid for uuid in marked if uuid in by_uuid], max_nodes
    )
    branches = {uuid: Branch(by_uuid[uuid]) for uuid in shown}
    for uuid, branch in branches.items():
        hidden = [child for child in children[uuid] if child.uuid not in shown]
        branch.children = [branches[c.uuid] for c in children[uuid] if c.uuid in shown]
        if hidden:
            branch.stub = _count(hidden, children, set(marked))
            if branch.stub.nodes == 1:
                branch.children.append(Branch(hidden[0]))
                branch.stub = None
    return branches[root.uuid]


def _choose(
    root: NodeSnapshot,
    by_uuid: dict[int, NodeSnapshot],
    children: dict[int, list[NodeSnapshot]],
    marked: Sequence[int],
    max_nodes: int,
) -> set[int]:
    shown = {root.uuid}
    for uuid in marked:
        path = set()
        node: int | None = uuid
        while node is not None and node not in shown:
            path.add(node)
            node = by_uuid[node].parent
        if len(shown) + len(path) <= max_nodes:
            shown |= path
    queue = deque([root])
    while queue and len(shown) < max_nodes:
        for child in sorted(children[queue.popleft().uuid], key=lambda n: -n.timestamp):
            if len(shown) < max_nodes:
                shown.add(child.uuid)
            if child.uuid in shown:
                queue.append(child)
    return shown


def _count(
    hidden: Sequence[NodeSnapshot], children: dict[int, list[NodeSnapshot]], marked: set[int]
) -> Stub:
    stub, stack = Stub(), list(hidden)
    while stack:
        node = stack.pop()
        stub.nodes += 1
        stub.tokens += len(node.key)
        stub.marked += node.uuid in marked
        stack += children[node.uuid]
    return stub
