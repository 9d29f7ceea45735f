"""Steps of optimisers by the kernels for the host."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .....kernels import host_arguments
from .....kernels.constants import OPTIM_LENGTH
from ....core.optim import parts_of
from ....helpers.threads import get_threads
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, StorageOrBuffer
from ...array_backend.ops.optim import paired
from ..kernels import address_of_array
from .native import contiguous
from .native_copy import Written

if TYPE_CHECKING:
    from ..kernels import HostKernels


def sgd_step(
    build: ProgramBuilder,
    kernels: HostKernels,
    first: Operand,
    velocities: StorageOrBuffer,
    numbers: StorageOrBuffer,
    is_nesterov: bool,
    *others: Operand,
) -> Written:
    """As `optim.sgd_step`; None where NumPy does it."""
    rule = "momentum" if velocities.length else "sgd"
    return _step(build, kernels, rule, first, velocities, numbers, is_nesterov, others)


def adam_step(
    build: ProgramBuilder,
    kernels: HostKernels,
    first: Operand,
    moments: StorageOrBuffer,
    numbers: StorageOrBuffer,
    is_decoupled: bool,
    *others: Operand,
) -> Written:
    """As `optim.adam_step`; None where NumPy does it."""
    return _step(build, kernels, "adam", first, moments, numbers, is_decoupled, others)


def _step(
    build: ProgramBuilder,
    kernels: HostKernels,
    rule: str,
    first: Operand,
    state: Buffer,
    numbers: Buffer,
    choice: bool,
    others: Sequence[Operand],
) -> Written:
    name = f"{rule}_{first.dtype.value}"
    if not kernels.has("host_optim", name):
        return None
    parameters, gradients = paired(first, others)
    count = len(parameters)
    sizes = [parameter.layout.elem_count for parameter in parameters]
    starts = parts_of(sizes)
    *begins, parts = itertools.accumulate((-(-size // OPTIM_LENGTH) for size in sizes), initial=0)
    tables = [np.array(each, np.uint64) for each in (sizes, starts[:-1], begins)]
    counts, offsets, first_parts = map(address_of_array, tables)
    # fmt: off
    pack = partial(
        host_arguments.optim_step, counts=counts, offsets=offsets, first_parts=first_parts,
        run_parts=kernels.address("span", "run_parts"), state_stride=starts[-1], parts=parts,
        tensors=count, choice=choice,
    )
    # fmt: on
    kernel = kernels.kernel("host_optim", name)

    def step(state: int, numbers: int, *addresses: int, _: object = tables) -> None:
        of_each = np.array(addresses, np.uint64)
        at = address_of_array(of_each)
        kernel(pack(
            parameters=at, gradients=at + count * of_each.itemsize, state=state, numbers=numbers, threads=get_threads()
        ).packed())  # fmt: skip

    read = [contiguous(build, gradient) for gradient in gradients]
    build.call(step, state.address, numbers.address, *[each.address for each in (*parameters, *read)])
    return ()
