# Right, in the style of classes: the work is done by an object.
from dataclasses import dataclass


@dataclass
class Cut:
    """One cut of one edge."""

    node: object
    position: int

    @property
    def upper_part(self):
        return self.node.key[: self.position], self.node.value[: self.position]

    def make_upper(self):
        upper = Node(*self.upper_part, self.node.parent)
        for name in ("ref_count", "timestamp"):
            setattr(upper, name, getattr(self.node, name))
        return upper

    def shorten(self):
        for name in ("key", "value"):
            setattr(self.node, name, getattr(self.node, name)[self.position :])

    def do(self):
        upper = self.make_upper()
        self.shorten()
        upper.children[self.node.key[0]] = self.node
        self.node.parent = upper
        return upper


def split_at(node, position):
    return Cut(node, position).do()
