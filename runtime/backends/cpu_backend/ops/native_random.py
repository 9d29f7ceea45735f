"""Random numbers by the kernels for the host: what their launches need."""

from __future__ import annotations

from .....dtype import DType
from ....core.random import drawn_blocks
from ....core.random import uniform_range as uniform_range
from ....program.builder import ProgramBuilder
from ....program.values import Draw, Number, computed


def draw(build: ProgramBuilder, count: Number, dtype: DType) -> Draw:
    """Return the random blocks of `count` numbers."""
    return build.draw(computed(drawn_blocks, count, dtype))
