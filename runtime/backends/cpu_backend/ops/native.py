"""Elementwise ops by the kernels for the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import MAX_OPERANDS
from .....limits import MAX_RANK
from .....op import BinaryGradientsOp, ElementwiseOp, MethodOp
from ....core.layout import collapse
from ....program.builder import ProgramBuilder
from ....program.dynamic import Repeated, dynamic
from ....program.values import NULL, Address, Buffer, Number, Operand, Parameter, Pointer, dense, filled
from ...numbers import element_bits
from ..kernels import HostKernels
from ..values import THREADS, Function

# No array of C++ is empty.
_PARAMETERS: Final = max(host_arguments.PARAMETERS.get("span", 0), 1)
_ZEROS: Final = (0,) * MAX_RANK
_LINE: Final = (1, *_ZEROS[1:])
_WORD_BYTES: Final = (2, 4, 8)
MOVE: Final = None
"""Instead of a kernel's name: the elements of the one operand are only moved."""


@partial(dynamic, repeated=Repeated.ALL)
def elementwise(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: ElementwiseOp,
    x: Operand,
    *others: Operand | float | Parameter,
    result: DType | None = None,
) -> Buffer | None:
    """As `elementwise.elementwise`, of other numbers too; None where NumPy does it."""
    operands, numbers = [x], []
    for other in others:
        if isinstance(other, Operand):
            operands.append(other)
        else:
            numbers.append(other)
    source, shape = operands[-1].dtype, x.shape
    kernel = MOVE
    if op is not MethodOp.TO_DTYPE or result is not source:
        kernel = op.kernel(source, x.dtype, result)
        if not kernels.has("span", kernel):
            return None
    if shape.elem_count == 0:
        return None
    count = build.count(shape.elem_count)
    output = build.empty(result or op.result_of(source), count)
    launch_map(build, kernel, [dense(output, shape)], operands, numbers, count=count)
    return output


@partial(dynamic, repeated=Repeated.ALL)
def binary_gradients(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: BinaryGradientsOp | MethodOp,
    *parts: Operand | float | Parameter,
) -> tuple[Buffer, ...] | None:
    """As `binary_gradients.binary_gradients`; None where NumPy computes it."""
    operands = [part for part in parts if isinstance(part, Operand)]
    numbers = [part for part in parts if not isinstance(part, Operand)]
    dtype, shape = operands[-1].dtype, operands[-1].shape
    kernel = op.kernel(dtype, operands[0].dtype)
    if not kernels.has("span", kernel) or shape.elem_count == 0:
        return None
    count = build.count(shape.elem_count)
    results = build.empty(dtype, count), build.empty(dtype, count)
    launch_map(build, kernel, [dense(each, shape) for each in results], operands, numbers, count=count)
    return results


def launch_map(
    build: ProgramBuilder,
    kernel: str | None,
    targets: Sequence[Operand],
    operands: Sequence[Operand],
    numbers: Sequence[complex | Parameter] = (),
    source: Pointer | None = None,
    count: Number | None = None,
) -> None:
    """Write to the targets what an elementwise kernel computes of operands and numbers.

    `count` is the number of elements, where a dynamic program has a value for it. `source` is the address of the last
    operand, where that is another one. Numbers are in the compute dtype of that operand, of complex numbers in that of
    their parts; without an operand they are elements.
    """
    first, every = targets[0], [*targets, *operands]
    layout, compute = first.layout, operands[-1].dtype.compute.real if operands else first.dtype
    addresses: list[Pointer] = []
    itemsizes: list[int] = []
    strides: list[int] = []
    for storage, own in every:
        itemsize = storage.dtype.itemsize
        addresses.append(Address(storage.memory, own.start_offset * itemsize))
        itemsizes.append(itemsize)
        if own.is_contiguous:
            strides += _LINE
        elif not any(own.strides):
            strides += _ZEROS
    if count is None:
        count = layout.elem_count
    dims: tuple[Number, ...] = (count,)
    # An operand whose elements neither follow each other nor are one needs the dims.
    if len(strides) < len(every) * MAX_RANK:
        dims, strides = layout.shape[::-1], []
        for _, own in every:
            strides += own.strides[::-1]
            strides += _ZEROS[len(own.strides) :]
        if kernel is MOVE and (word := _word(layout.shape[-1], itemsizes[0], every)) > 1:
            dims, count = (1, *dims[1:]), layout.elem_count // word
            itemsizes = [itemsize * word for itemsize in itemsizes]
            strides = [stride // word for stride in strides]
    if source is not None:
        addresses[-1] = source
    packed = host_arguments.map_operands(
        kernel=NULL if kernel is MOVE else Function("span", kernel),
        addresses=filled(addresses, MAX_OPERANDS, NULL), threads=THREADS, operands=len(every),
        results=len(targets), rank=len(dims), itemsizes=filled(itemsizes, MAX_OPERANDS, 0), count=count,
        dims=filled(dims, MAX_RANK, 0), strides=filled(strides, MAX_OPERANDS * MAX_RANK, 0),
        parameters=filled([element_bits(number, compute) for number in numbers], _PARAMETERS, 0),
    )  # fmt: skip
    build.launch("span", "map_operands", 1, packed, work=count)


def _word(size: int, itemsize: int, operands: Sequence[Operand]) -> int:
    """The number of elements of the last dim where they are adjacent and few: they are moved as one word; else 1."""
    if size * itemsize not in _WORD_BYTES:
        return 1
    for _, layout in operands:
        *others, last = layout.strides
        if last != 1 or any(stride % size for stride in others):
            return 1
    return size


def runs_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int, int] | None:
    """The numbers of Runs of runs.hpp, which elements of at most two strides have; None of more strides."""
    counts, (strides,) = collapse(shape, (strides,))
    if len(counts) > 2:
        return None
    if strides in ((), (1,)):
        return 0, 0, 0
    return counts[-1], strides[0] * itemsize if len(counts) == 2 else 0, strides[-1] * itemsize


def contiguous(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements of an operand in row-major order: where they are, or a copy."""
    return x if x.layout.is_contiguous else copied(build, x)


def copied(build: ProgramBuilder, x: Operand) -> Operand:
    """A copy of the elements that an operand reaches, in row-major order."""
    copy = dense(build.empty(x.dtype, x.layout.elem_count), x.shape)
    if HostKernels.open() is None:
        # A library computes with the copy, which needs no kernels.
        build.call(_copy_by_numpy, copy, x)
    else:
        launch_map(build, MOVE, [copy], [x])
    return copy


def _copy_by_numpy(target: Operand, source: Operand) -> None:
    np.copyto(target.storage.view(target.layout), source.storage.view(source.layout))
