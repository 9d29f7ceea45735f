"""Steps of optimisers by the kernels for the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from .....kernels import host_arguments
from .....kernels.constants import OPTIM_LENGTH
from ....core.optim import parts_of
from ....helpers.threads import get_threads
from ....program.values import Address
from ...array_backend.ops.operand import Operand
from ...array_backend.ops.optim import paired
from ..kernels import table
from .native import by_plan
from .native_copy import Dense

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


@by_plan
def sgd_step(
    kernels: HostKernels,
    first: Operand,
    velocities: CpuStorage,
    _: CpuStorage,
    is_nesterov: bool,
    *rest: Operand,
) -> Callable[..., bool] | None:
    """As `optim.sgd_step`; None where NumPy does it."""
    return _plan("momentum" if velocities.length else "sgd", kernels, first, is_nesterov, rest)


@by_plan
def adam_step(
    kernels: HostKernels, first: Operand, _: CpuStorage, __: CpuStorage, is_decoupled: bool, *rest: Operand
) -> Callable[..., bool] | None:
    """As `optim.adam_step`; None where NumPy does it."""
    return _plan("adam", kernels, first, is_decoupled, rest)


def _plan(
    rule: str, kernels: HostKernels, first: Operand, choice: bool, rest: Sequence[Operand]
) -> Callable[..., bool] | None:
    kernel = kernels.kernel("host_optim", f"{rule}_{first.dtype.value}")
    if kernel is None:
        return None
    call = kernel
    parameters, gradients = paired(first, rest)
    count = len(parameters)
    sizes = [parameter.layout.elem_count for parameter in parameters]
    places = parts_of(sizes)
    *begins, parts = itertools.accumulate((-(-size // OPTIM_LENGTH) for size in sizes), initial=0)
    tables = [np.array(each, np.uint64) for each in (sizes, places[:-1], begins)]
    # fmt: off
    pack = partial(
        host_arguments.optim_step, counts=table(tables[0]), offsets=table(tables[1]), first_parts=table(tables[2]),
        run_parts=kernels.run_parts, apart=places[-1], parts=parts, tensors=count, choice=choice,
    )
    # fmt: on
    starts = [parameter.layout.start_offset * parameter.dtype.itemsize for parameter in parameters]
    dense = [Dense(kernels, gradient) for gradient in gradients]
    behind = [each.source(0).offset for each in dense]

    def step(own: CpuStorage, state: CpuStorage, numbers: CpuStorage, *others: CpuStorage, _: object = tables) -> bool:
        written = (own, *others[: count - 1])
        # Copies live until the call is made.
        read = [each.of(storage) for each, storage in zip(dense, others[count - 1 :], strict=True)]
        addresses = np.array(
            [
                [storage.address + start for storage, start in zip(written, starts, strict=True)],
                [storage.address + start for storage, start in zip(read, behind, strict=True)],
            ],
            np.uint64,
        )
        call(pack(
            parameters=table(addresses[0]), gradients=table(addresses[1]), state=cast("Address", state.address),
            numbers=cast("Address", numbers.address), threads=get_threads(),
        ))  # fmt: skip
        return True

    return step
