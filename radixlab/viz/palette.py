"""One palette for every picture: Okabe-Ito, told apart without red against green.

A colour never stands alone: each state has a mark in its cells, each event a border and a word. An
event wears the colour of the state that it leads to; what is new, cut or found has its own.
"""

from __future__ import annotations

from typing import NamedTuple

BLACK = "#000000"
ORANGE, SKY_BLUE, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"

CYCLE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY_BLUE, BLACK)
"""The order in which a chart takes its colours."""


class Look(NamedTuple):
    """How a state or an event is drawn: line, and fill on a light and on a dark page."""

    line: str
    light: str
    dark: str


FREE, EVICTABLE, PROTECTED, PRIVATE = "free", "evictable", "protected", "private"
STATES = {
    FREE: Look(GREY, "#ffffff", "#1c2025"),
    EVICTABLE: Look(GREEN, "#dcf2ea", "#123c30"),
    PROTECTED: Look(SKY_BLUE, "#dceffb", "#163a50"),
    PRIVATE: Look(VERMILION, "#fbe4d8", "#4d2711"),
}
"""What may be said of a token slot: who owns it, and whether eviction may take it."""

MATCHED, CREATED, SPLIT, LOCKED = "matched", "created", "split", "locked"
UNLOCKED, EVICTED, ALLOCATED, FREED = "unlocked", "evicted", "allocated", "freed"
EVENTS = {
    MATCHED: Look(BLUE, "#d8e9f6", "#0f3552"),
    CREATED: Look(ORANGE, "#fcedcb", "#4a3609"),
    SPLIT: Look(PURPLE, "#f7e4ee", "#472c3c"),
    LOCKED: STATES[PROTECTED],
    UNLOCKED: STATES[EVICTABLE],
    EVICTED: Look(GREY, "#e3e6ea", "#30363d"),
    ALLOCATED: STATES[PRIVATE],
    FREED: Look(GREY, "#e3e6ea", "#30363d"),
}
"""What a step may do to a node or to a slot."""
