"""Steps of optimisers, each in as few launches as their arguments have room for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, OPTIM_PACKS, OPTIM_TENSORS
from ....core.optim import parts_of
from ....kernels.argument_struct import NOWHERE
from ...array_backend.ops.optim import paired
from ..utils import ceil_divide
from .copy import contiguous
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import GpuStorage

T = TypeVar("T")


def sgd_step(first: Operand, velocities: GpuStorage, numbers: GpuStorage, is_nesterov: bool, *rest: Operand) -> None:
    """Gradient descent: x -= rate * (g + momentum * v) with Nesterov's momentum, else x -= rate * v."""
    _step("momentum" if velocities.length else "sgd", first, velocities, numbers, is_nesterov, rest)


def adam_step(first: Operand, moments: GpuStorage, numbers: GpuStorage, is_decoupled: bool, *rest: Operand) -> None:
    """Adam, which counts the step first."""
    packed = arguments.optim_advance(numbers=numbers.memory.address)
    first.device.kernels.launch("optim", f"optim_advance_{numbers.dtype.value}", 1, packed)
    _step("adam", first, moments, numbers, is_decoupled, rest)


def _step(
    rule: str, first: Operand, state: GpuStorage, numbers: GpuStorage, choice: bool, rest: Sequence[Operand]
) -> None:
    parameters, gradients = paired(first, rest)
    places = parts_of(parameter.layout.elem_count for parameter in parameters)
    filled = [number for number, parameter in enumerate(parameters) if parameter.layout.elem_count]
    together = BLOCK_SIZE * OPTIM_PACKS * (ACCESS_BYTES // numbers.dtype.itemsize)
    for begin in range(0, len(filled), OPTIM_TENSORS):
        chosen = filled[begin : begin + OPTIM_TENSORS]
        # Copies live until the launch.
        given = [contiguous(gradients[number]) for number in chosen]
        counts = [parameters[number].layout.elem_count for number in chosen]
        first_blocks, blocks = _blocks(tuple(counts), together)
        packed = arguments.optim_step(
            parameters=_filled([parameters[number].address for number in chosen], NOWHERE),
            gradients=_filled([gradient.address for gradient in given], NOWHERE), counts=_filled(counts, 0),
            offsets=_filled([places[number] for number in chosen], 0), first_blocks=first_blocks,
            state=state.memory.address, numbers=numbers.memory.address, apart=places[-1], choice=choice,
        )  # fmt: skip
        first.device.kernels.launch("optim", f"optim_{rule}_{first.dtype.value}", blocks, packed)


@lru_cache(maxsize=1024)
def _blocks(counts: tuple[int, ...], together: int) -> tuple[tuple[int, ...], int]:
    """The first block of each tensor, and how many there are."""
    *begins, end = itertools.accumulate((ceil_divide(count, together) for count in counts), initial=0)
    return _filled(begins, (1 << 32) - 1), end


def _filled(values: Sequence[T], rest: T) -> tuple[T, ...]:
    return (*values, *(rest,) * (OPTIM_TENSORS - len(values)))
