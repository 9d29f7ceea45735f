"""Elements in order by the kernels for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..... import results
from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import COUNTED_LENGTH, SELECTED_COUNT, SORTED_LINES
from ....core.layout import Layout
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, Pointer, dense
from ..values import RUN_PARTS, THREADS
from .native import contiguous, copied
from .native_index import gathered

if TYPE_CHECKING:
    from ..kernels import HostKernels

_MAX_POSITIONS: Final = 1 << 32
# Memory for these elements ends at an aligned offset for any of their dtypes.
_ALIGNMENT: Final = 8


def argsort(build: ProgramBuilder, kernels: HostKernels, x: Operand, descending: bool, count: int) -> Buffer | None:
    """As `sort.argsort`; None where NumPy does it."""
    kernel, elements = f"argsort_{x.dtype.value}", x.layout.elem_count
    length = x.shape[-1] if x.shape else 1
    # NumPy's positions have 64 bits.
    if not kernels.has("host_sort", kernel) or elements * count == 0 or length >= _MAX_POSITIONS:
        return None
    lines, capacity = elements // length, -(-length // _ALIGNMENT) * _ALIGNMENT
    sorted_count = count if count <= SELECTED_COUNT else length
    scratch: Pointer = NULL
    if sorted_count == length > COUNTED_LENGTH[x.itemsize]:
        nbytes = min(lines, SORTED_LINES) * capacity * (2 * x.itemsize + DType.U32.itemsize)
        scratch = build.allocate(nbytes).address
    x = contiguous(build, x)
    result = build.empty(DType.U32, lines * sorted_count)
    packed = host_arguments.argsort_lines(
        result=result.address, source=x.address, scratch=scratch, run_parts=RUN_PARTS, lines=lines, length=length,
        count=sorted_count, line_capacity=capacity, descending=descending, threads=THREADS,
    )  # fmt: skip
    build.launch("host_sort", kernel, 1, packed, work=elements)
    if sorted_count == count:
        return result
    first: Buffer = copied(build, Operand(result, Layout((lines, count), (length, 1)))).storage
    return first


def sort(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, descending: bool, count: int
) -> tuple[Buffer, ...] | None:
    """As `sort.sort`; None where NumPy does it."""
    positions = argsort(build, kernels, x, descending, count)
    if positions is None:
        return None
    first = dense(positions, results.sort(x, count)[1].shape)
    values = gathered(build, "sort", x.with_a_dim, first, len(first.shape) - 1)
    return None if values is None else (values, positions)
