"""Size classes of memory: requests of nearly one size get pieces of one size, so that these serve each other."""

from __future__ import annotations

from typing import Final

_STEPS_PER_DOUBLING: Final = 8


def size_class(nbytes: int, min_step: int = 1) -> int:
    """How many bytes serve a request of `nbytes`: the next multiple of an eighth of the power of two below, or of
    `min_step` where that is more. Of large pieces at most one part in eight is unused.
    """
    step = max(min_step, (1 << (nbytes - 1).bit_length()) // (2 * _STEPS_PER_DOUBLING))
    return -(-nbytes // step) * step
