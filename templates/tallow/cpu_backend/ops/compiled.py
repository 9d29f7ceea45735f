"""Elementwise ops by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np

from ...array_backend.functors import functors
from ...array_backend.ops.operand import Operand
from ...backend import kind_of, storages_of
from ...dtype import DType
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...layout import Layout
from ...limits import MAX_RANK
from ...op import BinaryOp, CmpOp, MethodOp, UnaryOp
from ...threads import get_threads
from ...host import cast

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

_FEW: Final = 1 << 11
MOST_OPERANDS: Final = 4
# What MAP_OPERANDS begins with: what each call has of its own.
PLACES: Final = Struct("=5QI")
# And what it ends with: parameters.
_NUMBERS: Final = Struct("=2Q")
_PARAMETERS: Final = 2


P = ParamSpec("P")
Made = TypeVar("Made")

planners: Final[dict[Callable[..., Any], Callable[..., Callable[..., Any] | None]]] = {}
"""What makes the plans of ops by kernels: see `BackendDevice.planners`."""


def by_plan(make: Callable[P, Callable[..., Made] | None]) -> Callable[P, Made | None]:
    """The op whose plan `make` gives: what that makes of the storages among the arguments; None where there is none."""

    @wraps(make)
    @tells_lack_of_memory
    def op(*arguments: P.args, **options: P.kwargs) -> Made | None:
        run = make(*arguments, **options)
        return None if run is None else run(*storages_of(arguments))

    planners[op] = lambda arguments, **options: make(*arguments, **options)
    return op


@by_plan
def elementwise(
    kernels: HostKernels,
    op: UnaryOp | BinaryOp | CmpOp | MethodOp,
    x: Operand,
    *others: Operand | float,
    result: DType | None = None,
) -> Callable[..., CpuStorage] | None:
    """As `elementwise.elementwise`, of other numbers too; None where NumPy is as good."""
    operands = [x, *(argument for argument in others if isinstance(argument, Operand))]
    first, source = operands[0], operands[-1].dtype
    target = result or op.result or source
    count = first.layout.elem_count
    # NumPy is called sooner than a kernel, and has done so few elements by then, where it takes them as they are.
    is_plain = all(layout.dense is layout or layout.repeated is layout for _, layout in operands)
    if count == 0 or (count <= _FEW and is_plain and functors(first.library).elementwise[op].is_one_step and source.compute is source):
        return None
    if op.moves:
        name = f"{op.value}_b{8 * first.dtype.itemsize}_b{8 * source.itemsize}"
    elif op is MethodOp.TO_DTYPE and target is source:
        name = f"copy_b{8 * source.itemsize}"
    elif op is MethodOp.TO_DTYPE:
        name = f"{op.value}_{target.value}_{source.value}"
    else:
        name = f"{op.value}_{source.value}"
    kernel = kernels.elementwise(name)
    if kernel is None:
        return None
    numbers = [argument for argument in others if not isinstance(argument, Operand)]
    bits = [bits_of(number, source.compute) for number in numbers]
    layouts = [first.layout.dense, *(operand.layout for operand in operands)]
    packed = packed_map(layouts, [target, *(operand.dtype for operand in operands)], bits)
    rest, parameters = packed[: -_NUMBERS.size], packed[-_NUMBERS.size :]
    offsets = [operand.layout.start_offset * operand.dtype.itemsize for operand in operands]
    without = (0,) * (MOST_OPERANDS - 1 - len(operands))
    device, storage_class, kind = first.storage.device, type(first.storage), kind_of(target, count)
    map_operands, numpy_type, compute = kernels.map_operands, target.numpy, source.compute

    @tells_lack_of_memory
    def run(*given: Any) -> CpuStorage:
        made: CpuStorage = object.__new__(storage_class)
        made.data = np.empty(count, numpy_type)
        made.device = device
        made.dtype = target
        made.length = count
        made.kind = kind
        places = [storage.address + offset for storage, offset in zip(given, offsets, strict=False)]
        behind = given[len(offsets) :]
        if behind:
            last = _NUMBERS.pack(*filled([bits_of(number, compute) for number in behind], _PARAMETERS))
        else:
            last = parameters
        map_operands(PLACES.pack(kernel, made.address, *places, *without, get_threads()) + rest + last)
        return made

    return run


def packed_map(layouts: Sequence[Layout], dtypes: Sequence[DType], bits: Sequence[int] = ()) -> bytes:
    """What a call of `map_operands` takes behind its places: of the result, the operands and the parameters."""
    shape = layouts[0].shape
    strides = [stride for layout in layouts for stride in filled(layout.strides[::-1], MAX_RANK)]
    return host_arguments.MAP_OPERANDS.pack(
        *(0,) * (2 + MOST_OPERANDS), len(layouts), len(shape),
        *filled([dtype.itemsize for dtype in dtypes], MOST_OPERANDS), shape.elem_count, *filled(shape[::-1], MAX_RANK),
        *filled(strides, MOST_OPERANDS * MAX_RANK), *filled(bits, _PARAMETERS),
    )[PLACES.size :]  # fmt: skip


def filled(numbers: Any, length: int) -> tuple[int, ...]:
    """The numbers, and zeros up to a length."""
    return (*numbers, *(0,) * (length - len(numbers)))


def bits_of(number: float, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    # The sign tells 0.0 from -0.0, which are equal.
    return _cached_bits(number, math.copysign(1, number), dtype)


@lru_cache(maxsize=1 << 12, typed=True)
def _cached_bits(number: float, _sign: float, dtype: DType) -> int:
    return int.from_bytes(cast.scalar(number, dtype).tobytes(), "little")
