"""Scans along a dim: in one launch, or in two where lines are few and long."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROW_SUBGROUP
from .....op import MethodOp
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Operand, address_of
from ..driver.grid import MAX_BLOCKS, ceil_divide, power_of_two
from . import copy

# With fewer blocks, or threads that walk a column, for each multiprocessor, lines go in splits.
_BUSY_BLOCKS: Final = 4
_BUSY_THREADS: Final = 1024
# A split is worth its sum if a thread has this many accesses of it.
_MIN_ACCESSES: Final = 8
_MAX_SPLITS: Final = 1024
# A subgroup smaller than a wave takes at most this many rounds; longer rows are a block's.
_SUBGROUP_ROUNDS: Final = 4
_MAX_POSITIONS: Final = (1 << 32) - 1


class _Plan(NamedTuple):
    """How long lines are split, and how many blocks there are."""

    blocks: int
    chunk: int
    splits: int
    subgroup_size: int


def scan(build: ProgramBuilder, op: MethodOp, x: Operand, dim: int, reverse: bool, exclusive: bool = False) -> Any:
    """Element i along `dim` is what a reduction makes of the elements 0 to i, a Buffer; some ops give positions too.

    Methods of one storage and of two call it.
    """
    target = op.result_of(x.dtype)
    result = build.empty(target, x.layout.elem_count)
    positions = build.empty(DType.U32, result.length) if op.gives_positions else None
    rows, length, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    if positions is not None and length > _MAX_POSITIONS:
        raise InvalidArgument(op.value, f"positions of {length} elements are no u32; split dim {dim}")
    results = result if positions is None else (result, positions)
    if result.length == 0:
        return results
    source = copy.contiguous(build, x)
    find = _row_plan if inner == 1 else _column_plan
    size = max(x.itemsize, target.itemsize, 0 if positions is None else DType.U32.itemsize)
    # As scanned_length in scan.hpp has it.
    size *= 2 if op.numbers > 1 and positions is None and size in (1, 8) else 1
    plan = find(size, rows, length, inner, build.facts.multiprocessors)
    totals = build.allocate(rows * inner * plan.splits * _state_bytes(op, x.dtype)) if plan.splits > 1 else None
    kind, pack = ("row", arguments.scan_rows) if inner == 1 else ("column", arguments.scan_columns)
    own = {"subgroup_size": plan.subgroup_size} if inner == 1 else {"inner": inner}
    packed = pack(
        result=result.address, positions=address_of(positions), source=source.address,
        totals=address_of(totals), rows=rows, length=length, chunk=plan.chunk,
        splits=plan.splits, reverse=reverse, exclusive=exclusive, parameters=(), **own,
    )  # fmt: skip
    kernel = f"{op.value}_{x.dtype.value}_{kind}"
    if totals is not None:
        build.launch("scan", f"{kernel}_totals", plan.blocks, packed)
    build.launch("scan", f"{kernel}s", plan.blocks, packed)
    return results


def _state_bytes(op: MethodOp, dtype: DType) -> int:
    """The size of what a split comes to: numbers of the compute dtype, or one of them and a position in 32 bits."""
    result, number = op.result_of(dtype), dtype.compute.itemsize
    if op.gives_positions:
        number = max(number, DType.U32.itemsize)
    elif result is not dtype:
        # A result of its own dtype is combined in a full register.
        number = max(result.compute.itemsize, DType.U32.itemsize)
    return op.numbers * number


@lru_cache(maxsize=4096)
def _row_plan(itemsize: int, rows: int, length: int, _inner: int, multiprocessors: int) -> _Plan:
    accesses = ceil_divide(length, ACCESS_BYTES // itemsize)
    subgroup_size = (
        min(ROW_SUBGROUP, power_of_two(accesses)) if accesses <= _SUBGROUP_ROUNDS * ROW_SUBGROUP else BLOCK_SIZE
    )
    unit = subgroup_size * ACCESS_BYTES // itemsize
    splits = _splits(length, unit, _BUSY_BLOCKS * multiprocessors // ceil_divide(rows * subgroup_size, BLOCK_SIZE))
    chunk = ceil_divide(ceil_divide(length, splits), unit) * unit
    splits = ceil_divide(length, chunk)
    return _Plan(min(ceil_divide(rows * splits * subgroup_size, BLOCK_SIZE), MAX_BLOCKS), chunk, splits, subgroup_size)


@lru_cache(maxsize=4096)
def _column_plan(_itemsize: int, rows: int, length: int, inner: int, multiprocessors: int) -> _Plan:
    splits = _splits(length, 1, _BUSY_THREADS * multiprocessors // (rows * inner))
    chunk = ceil_divide(length, splits)
    splits = ceil_divide(length, chunk)
    return _Plan(min(ceil_divide(rows * inner * splits, BLOCK_SIZE), MAX_BLOCKS), chunk, splits, 1)


def _splits(length: int, unit: int, wanted: int) -> int:
    return max(min(wanted, length // (_MIN_ACCESSES * unit), _MAX_SPLITS), 1)
