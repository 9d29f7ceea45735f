"""Pooling by the kernels for the host: what its launches need."""

from __future__ import annotations

from .....kernels import host_arguments
from ....core.pool import ParamsPool
from ....core.pool import volumes_of as volumes_of
from ....program.values import Operand


def strides_of(x: Operand) -> tuple[int, ...]:
    """The strides of volumes (b, c, d, h, w)."""
    strides = x.layout.strides
    return *strides[:2], *(0,) * (5 - len(strides)), *strides[2:]


def fields(params: ParamsPool) -> host_arguments.Pool:
    """The numbers of a pool of volumes."""
    return host_arguments.Pool(*params.numbers)
