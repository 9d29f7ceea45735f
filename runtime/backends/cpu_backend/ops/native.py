"""Elementwise ops by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import MOST_OPERANDS
from .....kernels.host_arguments import UnaliasedItems
from .....limits import MAX_RANK
from .....op import BinaryGradientsOp, ElementwiseOp, MethodOp
from ....core.layout import Layout
from ....helpers.host_memory import tells_lack_of_memory
from ....program.values import NOWHERE, Address
from ... import plan
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Number, Result, Source, bits_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# No array of C++ is empty.
_PARAMETERS: Final = max(host_arguments.PARAMETERS["span"], 1)
MOVE: Final = NOWHERE
"""In place of a kernel: the elements of the one operand are only moved."""

P = ParamSpec("P")
Made = TypeVar("Made")
Value = TypeVar("Value")


def by_plan(make: Callable[P, Callable[..., Made] | None]) -> Callable[P, Made | None]:
    """As `plan.by_plan`, of what kernels do."""
    return plan.by_plan(tells_lack_of_memory(make))


@by_plan
def elementwise(
    kernels: HostKernels,
    op: ElementwiseOp,
    x: Operand,
    *others: Operand | float,
    result: DType | None = None,
) -> Callable[..., CpuStorage] | None:
    """As `elementwise.elementwise`, of other numbers too; None where NumPy does it."""
    operands = [x, *(argument for argument in others if isinstance(argument, Operand))]
    first, source = operands[0], operands[-1].dtype
    target = result or op.result_of(source)
    count = first.layout.elem_count
    if count == 0:
        return None
    if op is MethodOp.TO_DTYPE and target is source:
        kernel: Address | None = MOVE
    else:
        kernel = kernels.elementwise(op.kernel(source, first.dtype, result))
    if kernel is None:
        return None
    numbers = [argument for argument in others if not isinstance(argument, Operand)]
    return plan_map(kernels, kernel, first.storage, first.layout.dense, target, operands, made=count, numbers=numbers)


@by_plan
def joint(
    kernels: HostKernels, op: BinaryGradientsOp | MethodOp, *given: Operand | float
) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `binary_gradients.joint`; None where NumPy does it."""
    operands = [it for it in given if isinstance(it, Operand)]
    (storage, layout), dtype = operands[-1], operands[-1].dtype
    kernel, count = kernels.elementwise(op.kernel(dtype, operands[0].dtype)), layout.elem_count
    if kernel is None or count == 0:
        return None
    numbers = [it for it in given if not isinstance(it, Operand)]
    return plan_map(kernels, kernel, storage, layout.dense, dtype, operands, made=count, results=2, numbers=numbers)


def plan_map(
    kernels: HostKernels,
    kernel: Address,
    storage: CpuStorage,
    layout: Layout,
    dtype: DType,
    operands: Sequence[Operand],
    *,
    made: int | None = None,
    results: int = 1,
    given: Sequence[int] | None = None,
    unaliased: UnaliasedItems | None = None,
    numbers: Sequence[complex] = (),
) -> Callable[..., Any]:
    """What has an elementwise kernel write what it makes of operands to where a layout of elements of a dtype reaches.

    That is in a new storage of `made` elements on the device of `storage`, for several `results` in a tuple of them, or
    else in one like `storage` that the plan is given. `given` says which storages these are, that one's and the
    operands', in this order where it is None. The last operand may be `unaliased`. Numbers are in the compute dtype of
    the last operand, of complex numbers in that of their parts; without an operand they are elements.
    """
    compute = operands[-1].dtype.compute.real if operands else dtype
    layouts = [*[layout] * results, *(operand.layout for operand in operands)]
    sizes = [*[dtype.itemsize] * results, *(operand.dtype.itemsize for operand in operands)]
    strides = [stride for each in layouts for stride in filled(each.strides[::-1], MAX_RANK, 0)]
    # A new storage is none that is given.
    addresses: list[Address] = [] if made is None else [Result(made, dtype)] * results
    for number in given or range(len(layouts) - len(addresses)):
        place = len(addresses)
        apart = unaliased if place == len(layouts) - 1 else None
        addresses.append(Source(number, layouts[place].start_offset * sizes[place], apart))
    packed = host_arguments.map_operands(
        kernel=kernel, addresses=filled(addresses, MOST_OPERANDS, NOWHERE), threads=THREADS, operands=len(layouts),
        results=results, rank=len(layout.shape), itemsizes=filled(sizes, MOST_OPERANDS, 0), count=layout.elem_count,
        dims=filled(layout.shape[::-1], MAX_RANK, 0), strides=filled(strides, MOST_OPERANDS * MAX_RANK, 0),
        parameters=filled([Number(bits_of(number, compute)) for number in numbers], _PARAMETERS, 0),
    )  # fmt: skip
    return kernels.call(kernels.map_operands, packed, storage, compute=compute, as_tuple=results > 1)


def source_of(operand: Operand, given: int) -> Source:
    """An operand that is in the storage `given` of those that a plan is given."""
    return Source(given, operand.layout.start_offset * operand.dtype.itemsize)


def filled(values: Sequence[Value], length: int, rest: Value) -> tuple[Value, ...]:
    """The values, and others up to a length."""
    return (*values, *(rest,) * (length - len(values)))
