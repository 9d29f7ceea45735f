"""Elementwise ops by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from ...array_backend.ops.operand import Operand
from ...backend import storages_of
from ...dtype import DType
from ...host_memory import tells_lack_of_memory
from ...kernels import host_arguments
from ...layout import Layout
from ...limits import MAX_RANK
from ...op import BinaryOp, CmpOp, MethodOp, UnaryOp
from ..kernels import Result, Source, bits_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

MOST_OPERANDS: Final = 4
# What MAP_OPERANDS begins with: what each call has of its own.
PLACES: Final = Struct("=5QI")
# And what it ends with.
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
    if count == 0:
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
    layouts = [first.layout.dense, *(operand.layout for operand in operands)]
    bits = [bits_of(number, source.compute) for number in numbers]
    packed = PLACES.pack(kernel, *(0,) * MOST_OPERANDS, 1) + packed_map(
        layouts, [target, *(operand.dtype for operand in operands)], bits
    )
    arguments = host_arguments.MAP_OPERANDS
    addresses, parameters = arguments.places["addresses"], arguments.places["parameters"]
    return kernels.call(
        kernels.map_operands_address,
        arguments,
        packed,
        first.storage,
        Result(addresses, count, target),
        [
            Source(addresses + 8 * place, operand.layout.start_offset * operand.dtype.itemsize)
            for place, operand in enumerate(operands, 1)
        ],
        numbers=[parameters + 8 * place for place in range(len(numbers))],
        compute=source.compute,
    )


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
