"""Elementwise ops by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.host_arguments import Packer
from .....limits import MAX_RANK
from .....op import BinaryOp, CmpOp, MethodOp, UnaryOp
from ....core.layout import Layout
from ....helpers.host_memory import tells_lack_of_memory
from ... import plan
from ...array_backend.ops.operand import Operand
from ..kernels import Result, Source, Unaliased, bits_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

_PACKER: Final = host_arguments.MAP_OPERANDS
_MOST_OPERANDS: Final = _PACKER.lengths["addresses"]
_PARAMETERS: Final = _PACKER.lengths["parameters"]
MOVE: Final = 0
"""In place of a kernel: the elements of the one operand are only moved."""

P = ParamSpec("P")
Made = TypeVar("Made")


def by_plan(make: Callable[P, Callable[..., Made] | None]) -> Callable[P, Made | None]:
    """As `plan.by_plan`, of what kernels do."""
    return plan.by_plan(tells_lack_of_memory(make))


@by_plan
def elementwise(
    kernels: HostKernels,
    op: UnaryOp | BinaryOp | CmpOp | MethodOp,
    x: Operand,
    *others: Operand | float,
    result: DType | None = None,
) -> Callable[..., CpuStorage] | None:
    """As `elementwise.elementwise`, of other numbers too; None where NumPy does it."""
    operands = [x, *(argument for argument in others if isinstance(argument, Operand))]
    first, source = operands[0], operands[-1].dtype
    target = result or op.result or source
    count = first.layout.elem_count
    if count == 0:
        return None
    if op is MethodOp.TO_DTYPE and target is source:
        kernel: int | None = MOVE
    elif op.moves:
        kernel = kernels.elementwise(f"{op.value}_b{8 * first.dtype.itemsize}_b{8 * source.itemsize}")
    elif op is MethodOp.TO_DTYPE:
        kernel = kernels.elementwise(f"{op.value}_{target.value}_{source.value}")
    else:
        kernel = kernels.elementwise(f"{op.value}_{source.value}")
    if kernel is None:
        return None
    numbers = [argument for argument in others if not isinstance(argument, Operand)]
    return plan_map(kernels, kernel, first.storage, first.layout.dense, target, operands, made=count, numbers=numbers)


def plan_map(
    kernels: HostKernels,
    kernel: int,
    storage: CpuStorage,
    layout: Layout,
    dtype: DType,
    operands: Sequence[Operand],
    *,
    made: int | None = None,
    given: Sequence[int] | None = None,
    unaliased: Sequence[Unaliased] = (),
    numbers: Sequence[float] = (),
) -> Callable[..., Any]:
    """What has an elementwise kernel write what it makes of operands to where a layout of elements of a dtype reaches.

    That is in a new storage of `made` elements on the device of `storage`, or else in one like `storage` that the plan
    is given. `given` says which storages these are, that one's and the operands', in this order where it is None.
    Numbers are in the compute dtype of the last operand; without one they are elements.
    """
    packer, compute = _PACKER, operands[-1].dtype.compute if operands else dtype
    layouts = [layout, *(operand.layout for operand in operands)]
    sizes = [dtype.itemsize, *(operand.dtype.itemsize for operand in operands)]
    strides = [stride for each in layouts for stride in filled(each.strides[::-1], MAX_RANK)]
    packed = packer.pack(
        kernel, *(0,) * _MOST_OPERANDS, 1, len(layouts), len(layout.shape), *filled(sizes, _MOST_OPERANDS),
        layout.elem_count, *filled(layout.shape[::-1], MAX_RANK), *filled(strides, _MOST_OPERANDS * MAX_RANK),
        *filled([bits_of(number, compute) for number in numbers], _PARAMETERS),
    )  # fmt: skip
    address, parameters = packer.places["addresses"], packer.places["parameters"]
    # A new storage is none that is given.
    first = 0 if made is None else 1
    sources = [
        Source(address + 8 * place, layouts[place].start_offset * sizes[place], number)
        for place, number in enumerate(given or range(len(layouts) - first), first)
    ]
    return kernels.call(
        kernels.map_operands,
        packer,
        packed,
        storage,
        () if made is None else Result(address, made, dtype),
        sources,
        unaliased=unaliased,
        numbers=[parameters + 8 * place for place in range(len(numbers))],
        compute=compute,
    )


def sources_of(packer: Packer, operands: Mapping[str, Operand]) -> list[Source]:
    """The sources of a kernel: operands by the names of their fields, in the order in which a plan is given them."""
    return [
        Source(packer.places[name], operand.layout.start_offset * operand.dtype.itemsize, given)
        for given, (name, operand) in enumerate(operands.items())
    ]


def filled(numbers: Any, length: int) -> tuple[int, ...]:
    """The numbers, and zeros up to a length."""
    return (*numbers, *(0,) * (length - len(numbers)))
