"""Steps of optimisers, each in as few launches as the capacity of their arguments allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, OPTIM_PACKS, OPTIM_TENSORS
from ....core.optim import ALIGNMENT, parts_of
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, KernelArguments, Operand, Pointer, StorageOrBuffer, filled
from ...array_backend.ops.optim import paired
from ..driver.grid import ceil_divide
from .copy import contiguous

# The elements of a piece of a tensor, of which there is one unless it has more.
_MAX_ELEMENTS: Final = 1 << 31


def sgd_step(
    build: ProgramBuilder, first: Operand, velocities: StorageOrBuffer, numbers: StorageOrBuffer, is_nesterov: bool,
    *others: Operand,
) -> None:  # fmt: skip
    """Gradient descent: x -= rate * (g + momentum * v) with Nesterov's momentum, else x -= rate * v."""
    _step(build, "momentum" if velocities.length else "sgd", first, velocities, numbers, is_nesterov, others)


def adam_step(
    build: ProgramBuilder, first: Operand, moments: StorageOrBuffer, numbers: StorageOrBuffer, is_decoupled: bool,
    *others: Operand,
) -> None:  # fmt: skip
    """Adam, which counts the step first."""
    packed = arguments.optim_advance(numbers=numbers.address)
    build.launch("optim", f"optim_advance_{numbers.dtype.value}", 1, packed)
    _step(build, "adam", first, moments, numbers, is_decoupled, others)


def _step(
    build: ProgramBuilder,
    rule: str,
    first: Operand,
    state: Buffer,
    numbers: Buffer,
    choice: bool,
    others: Sequence[Operand],
) -> None:
    parameters, gradients = paired(first, others)
    together = BLOCK_SIZE * OPTIM_PACKS * (ACCESS_BYTES // numbers.dtype.itemsize)
    launches, state_stride = _launches(tuple([parameter.layout.elem_count for parameter in parameters]), together)
    for launch in launches:
        dense_gradients = [contiguous(build, gradients[number]) for number in launch.tensors]
        packed = launch.pack(
            parameters=_addresses([parameters[number] for number in launch.tensors], launch.begins),
            gradients=_addresses(dense_gradients, launch.begins), state=state.address, numbers=numbers.address,
            state_stride=state_stride, choice=choice,
        )  # fmt: skip
        build.launch("optim", f"optim_{rule}_{first.dtype.value}", launch.blocks, packed)


class _Launch(NamedTuple):
    """One launch for pieces of tensors."""

    tensors: tuple[int, ...]
    """The number of the tensor of which each piece is a part."""
    begins: tuple[int, ...]
    """Where each piece begins in it."""
    blocks: int
    pack: Callable[..., KernelArguments]


@lru_cache(maxsize=1024)
def _launches(counts: tuple[int, ...], together: int) -> tuple[list[_Launch], int]:
    """Return the launches for tensors of these element counts, and the elements of a kind in the state."""
    *starts, state_stride = parts_of(counts)
    pieces = [
        (number, begin, min(count - begin, _MAX_ELEMENTS), (start + begin) // ALIGNMENT)
        for number, (count, start) in enumerate(zip(counts, starts, strict=True))
        for begin in range(0, count, _MAX_ELEMENTS)
    ]
    launches = []
    for begin in range(0, len(pieces), OPTIM_TENSORS):
        tensors, begins, sizes, offsets = zip(*pieces[begin : begin + OPTIM_TENSORS], strict=True)
        blocks = ceil_divide((offsets[-1] - offsets[0]) * ALIGNMENT + sizes[-1], together)
        pack = partial(
            arguments.optim_step,
            counts=filled(sizes, OPTIM_TENSORS, 0),
            offsets=filled(offsets, OPTIM_TENSORS, (1 << 32) - 1),
        )
        launches.append(_Launch(tensors, begins, blocks, pack))
    return launches, state_stride


def _addresses(operands: Sequence[Operand], begins: Sequence[int]) -> tuple[Pointer, ...]:
    """Where pieces begin."""
    addresses = [it.address + begin * it.itemsize for it, begin in zip(operands, begins, strict=True)]
    return filled(addresses, OPTIM_TENSORS, NULL)
