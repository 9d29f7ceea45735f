"""Where the state of an optimiser has its parts: one for each parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ROOM: Final = 16
"""Parts have whole multiples of so many elements, since kernels read and write whole packs."""


def parts_of(counts: Iterable[int]) -> list[int]:
    """Where the part of each parameter begins, by how many elements it has, and where the last one ends."""
    places = [0]
    for count in counts:
        places.append(places[-1] + -(-count // ROOM) * ROOM)
    return places
