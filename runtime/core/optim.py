"""Where the state of an optimiser has its parts: one for each parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ALIGNMENT: Final = 16
"""Parts begin at multiples of this many elements, since kernels read and write aligned vectors."""


def parts_of(counts: Iterable[int]) -> list[int]:
    """Where the part of each parameter begins, by how many elements it has, and where the last one ends."""
    offsets = [0]
    for count in counts:
        offsets.append(offsets[-1] + -(-count // ALIGNMENT) * ALIGNMENT)
    return offsets
