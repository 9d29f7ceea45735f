"""One result for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, CONTIGUOUS_PACKS
from .....op import BinaryGradientOp, BinaryGradientsOp, BinaryOp, CmpOp, MethodOp, UnaryGradientOp, UnaryOp
from ....program.builder import ProgramBuilder
from ....program.dynamic import Repeated, dynamic
from ....program.values import Address, Buffer, KernelArguments, Number, Operand, computed, dense
from . import copy
from .geometry import Dims, Part, merged, parts, strided_block, tiled
from .scalar import NO_PARAMETERS, parameter_bits

# The most operands of kernels of two results.
_MAX_GIVEN: Final = 3


class Kernels(NamedTuple):
    """Kernels that make elements of results from one element of each operand."""

    family: str
    name: str
    """The prefix of their names."""
    contiguous: Callable[..., KernelArguments]
    """Packs `results` and `sources`, addresses, and the `count` of elements."""
    strided: Callable[..., KernelArguments]
    """Packs these with their `geometry`."""
    parameters: Sequence[Number] | None = None
    """Packs the `parameters` of structs that have one `result` instead of `results`."""


class Map(NamedTuple):
    """A family of kernels of one result, whose structs have `parameters`."""

    family: str
    contiguous: Callable[..., KernelArguments]
    strided: Callable[..., KernelArguments]
    number_contiguous: Callable[..., KernelArguments] | None = None
    """The names with a number instead of one of the last two operands."""
    number_strided: Callable[..., KernelArguments] | None = None

    def kernels(
        self, name: str, operands: tuple[Operand, ...], parameters: Sequence[Number]
    ) -> tuple[Kernels, Sequence[Operand]]:
        """The kernels for operands, and those that they read; a number is taken along, others are in memory."""
        contiguous, strided = self.contiguous, self.strided
        if self.number_contiguous is not None and self.number_strided is not None:
            *first, left, right = operands
            is_left = right.storage.number is None
            number, other = (left, right) if is_left else (right, left)
            if number.storage.number is not None:
                operands, name = (*first, other), f"{name}_number"
                fields = {"number": number.storage.number, "number_is_left": int(is_left)}
                contiguous, strided = partial(self.number_contiguous, **fields), partial(self.number_strided, **fields)
        # In half of the time of the class's own `__new__`.
        return tuple.__new__(Kernels, (self.family, name, contiguous, strided, parameters)), operands


_UNARY: Final = Map("unary", arguments.unary_contiguous, arguments.unary_strided)
_BINARY: Final = Map(
    "binary",
    arguments.binary_contiguous,
    arguments.binary_strided,
    arguments.binary_number_contiguous,
    arguments.binary_number_strided,
)
_COMPARE: Final = Map(
    "cmp",
    arguments.compare_contiguous,
    arguments.compare_strided,
    arguments.compare_number_contiguous,
    arguments.compare_number_strided,
)
_TERNARY: Final = Map(
    "ternary",
    arguments.ternary_contiguous,
    arguments.ternary_strided,
    arguments.ternary_number_contiguous,
    arguments.ternary_number_strided,
)
_UNARY_GRADIENT: Final = Map("unary_gradient", arguments.unary_gradient_contiguous, arguments.unary_gradient_strided)
_BINARY_GRADIENT: Final = Map(
    "binary_gradient", arguments.binary_gradient_contiguous, arguments.binary_gradient_strided
)


@dynamic
def unary(
    build: ProgramBuilder, op: UnaryOp | MethodOp, x: Operand, *parameters: float, result: DType | None = None
) -> Buffer:
    """Apply `op` to every element, in dtype `result` if it is not None; the numbers are its parameters."""
    dtype = x.dtype
    bits = parameter_bits("unary", parameters, dtype) if parameters else NO_PARAMETERS["unary"]
    return _map(build, _UNARY, op.kernel(dtype, result=result), (x,), result or op.result_of(dtype), bits)


@dynamic
def cast(build: ProgramBuilder, op: MethodOp, x: Operand, *, result: DType) -> Buffer:
    """`op`, which converts elements to dtype `result`: of that dtype they are copied, at best without a kernel."""
    return copy.fresh(build, x) if x.dtype is result else unary(build, op, x, result=result)


@partial(dynamic, repeated=Repeated.ONE_OF_LAST_TWO)
def compare(build: ProgramBuilder, op: CmpOp, x: Operand, y: Operand) -> Buffer:
    """`op` of every pair of elements as u8, 0 or 1."""
    return _map(build, _COMPARE, op.kernel(x.dtype), (x, y), op.result_of(x.dtype), NO_PARAMETERS["cmp"])


@partial(dynamic, repeated=Repeated.ONE_OF_LAST_TWO)
def binary(build: ProgramBuilder, op: BinaryOp | MethodOp, x: Operand, y: Operand, *parameters: float) -> Buffer:
    """`op` of every pair of elements; the numbers are its parameters."""
    name, dtype = op.kernel(x.dtype), op.result_of(x.dtype)
    bits = parameter_bits("binary", parameters, x.dtype) if parameters else NO_PARAMETERS["binary"]
    is_dense = x.layout.is_contiguous and y.layout.is_contiguous
    is_tiled = dtype is x.dtype and not is_dense and x.layout.elem_count > build.facts.few_elements
    if is_tiled and x.storage.number is None and y.storage.number is None:
        transposed = _transposed(x.shape, x.strides, y.strides, x.itemsize)
        if transposed is not None:
            # Tiles transpose one operand; a copy transposes the other one if necessary.
            straight = y if transposed[0] else copy.to_row_major(build, y)
            if straight is y:
                return _binary_transposed(build, name, x, y, *transposed, bits)
            return binary(build, op, x, straight, *parameters)
    return _map(build, _BINARY, name, (x, y), dtype, bits)


def binary_assign(build: ProgramBuilder, op: BinaryOp, target: Operand, source: Operand) -> None:
    """Set every element to `op` of it and that of `source`, which may share memory with it."""
    # Kernels write aligned accesses. A thread reads its elements before it writes them, but not before others do.
    if not target.layout.is_contiguous or not target.address.is_aligned():
        copy.assign(build, target, dense(binary(build, op, target, source), target.shape))
        return
    if source.storage.number is None and not build.are_same(source, target):
        source = copy.copy_if_aliasing(build, target, source)
    name = op.kernel(target.dtype)
    _map(build, _BINARY, name, (target, source), target.dtype, NO_PARAMETERS["binary"], target)


@lru_cache(maxsize=4096)
def _transposed(shape: Dims, x: Dims, y: Dims, itemsize: int) -> tuple[bool, tuple[Part, ...]] | None:
    """Whether the second operand is the transposed one, and the launches; None where neither is."""
    for swapped, (transposed, straight) in enumerate(((x, y), (y, x))):
        # Dims of the result merge only where those of the operands do.
        dims, steps = merged(shape, (copy.row_major(shape), transposed, straight))
        launches = tiled(dims, steps, 1, itemsize)
        if launches is not None:
            return bool(swapped), launches
    return None


def _binary_transposed(
    build: ProgramBuilder,
    name: str,
    x: Operand,
    y: Operand,
    swapped: bool,
    launches: tuple[Part, ...],
    bits: Sequence[Number],
) -> Buffer:
    result = build.empty(x.dtype, x.layout.elem_count)
    transposed, straight = (y, x) if swapped else (x, y)
    for part in launches:
        packed = arguments.binary_transposed(
            result=result.address, transposed=transposed.address, straight=straight.address, swapped=swapped,
            first_tile=part.elements, geometry=part.geometry, parameters=bits,
        )  # fmt: skip
        build.launch("binary", f"{name}_transposed", part.blocks, packed)
    return result


@partial(dynamic, repeated=Repeated.ONE_OF_LAST_TWO)
def ternary(build: ProgramBuilder, op: MethodOp, x: Operand, y: Operand, z: Operand, *parameters: float) -> Buffer:
    """`op` of every three elements; the numbers are its parameters."""
    bits = parameter_bits("ternary", parameters, z.dtype)
    return _map(build, _TERNARY, op.kernel(z.dtype, x.dtype), (x, y, z), op.result_of(z.dtype), bits)


def applied(build: ProgramBuilder, op: Any, *arguments: Operand | float) -> Operand:
    """`op` of one to three operands and its parameters, in the shape of the operands."""
    operands = [argument for argument in arguments if isinstance(argument, Operand)]
    function: Any = compare if isinstance(op, CmpOp) else (unary, binary, ternary)[len(operands) - 1]
    return dense(function(build, op, *arguments), operands[0].shape)


def converted(build: ProgramBuilder, x: Operand, dtype: DType) -> Operand:
    """The elements in a dtype: where they are if they have it, else in a new storage."""
    return x if x.dtype is dtype else dense(cast(build, MethodOp.TO_DTYPE, x, result=dtype), x.shape)


@dynamic
def gradient(
    build: ProgramBuilder, op: UnaryGradientOp | BinaryGradientOp | MethodOp, g: Operand, *others: Operand | float
) -> Buffer:
    """`op` of every element of the gradient of a result, and of those of others; numbers are its parameters."""
    operands = (g, *(other for other in others if isinstance(other, Operand)))
    parameters = tuple([other for other in others if not isinstance(other, Operand)])
    kernels = _UNARY_GRADIENT if len(operands) == 2 else _BINARY_GRADIENT
    bits = parameter_bits(kernels.family, parameters, g.dtype)
    return _map(build, kernels, op.kernel(g.dtype), operands, g.dtype, bits)


@dynamic
def binary_gradients(
    build: ProgramBuilder, op: BinaryGradientsOp | MethodOp, first: Operand, *others: Operand | float
) -> tuple[Buffer, ...]:
    """The two results of `op` of every element, of a gradient among them, and of those of others; numbers are its
    parameters."""
    operands = [first, *(other for other in others if isinstance(other, Operand))]
    family, dtype = "binary_gradients", operands[-1].dtype
    bits = parameter_bits(family, tuple([other for other in others if not isinstance(other, Operand)]), dtype)
    kernels = Kernels(
        family,
        op.kernel(dtype, first.dtype),
        partial(arguments.binary_gradients_contiguous, parameters=bits),
        partial(arguments.binary_gradients_strided, parameters=bits),
    )
    operands += operands[-1:] * (_MAX_GIVEN - len(operands))
    return several(build, kernels, operands, (dtype, dtype))


def several(
    build: ProgramBuilder, kernels: Kernels, operands: Sequence[Operand], dtypes: Sequence[DType]
) -> tuple[Buffer, ...]:
    """New storages of the dtypes, with what the kernels make of every element of the operands, which have one shape."""
    count = build.count(operands[0].layout.elem_count)
    outputs = tuple([build.empty(dtype, count) for dtype in dtypes])
    _launch(build, kernels, operands, [result.address for result in outputs], [dtype.itemsize for dtype in dtypes])
    return outputs


def _map(
    build: ProgramBuilder,
    kernels: Map,
    name: str,
    operands: tuple[Operand, ...],
    dtype: DType,
    parameters: Sequence[Number],
    target: Operand | None = None,
) -> Buffer:
    """A new storage with the kernel's function of every element of the operands, which have one shape.

    Where there is a `target` it is written instead: contiguous elements, at an aligned address.
    """
    result = build.empty(dtype, build.count(operands[0].layout.elem_count)) if target is None else target.storage
    to = result.address if target is None else target.address
    _launch(build, *kernels.kernels(name, operands, parameters), (to,), (dtype.itemsize,))
    return result


def _launch(
    build: ProgramBuilder,
    kernels: Kernels,
    operands: Sequence[Operand],
    results: Sequence[Address],
    result_itemsizes: Sequence[int],
) -> None:
    """Launch kernels over operands of one shape, with results of the same one."""
    layout = operands[0].layout
    count = layout.elem_count
    if count == 0:
        return
    sources, itemsizes, is_contiguous = [], [], True
    for storage, own in operands:
        itemsize = storage.dtype.itemsize
        itemsizes.append(itemsize)
        sources.append(Address(storage.memory, own.start_offset * itemsize))
        is_contiguous = is_contiguous and own.is_contiguous
    widest = max(*itemsizes, *result_itemsizes)
    parameters = kernels.parameters
    if is_contiguous:
        elements = build.count(count)
        if parameters is None:
            packed = kernels.contiguous(results=results, sources=sources, count=elements)
        else:
            packed = kernels.contiguous(result=results[0], sources=sources, count=elements, parameters=parameters)
        blocks = contiguous_blocks(build, elements, widest)
        build.launch(kernels.family, f"{kernels.name}_contiguous", blocks, packed)
        return
    strides = tuple([operand.strides for operand in operands])
    few = count <= build.facts.few_elements
    launches = strided_launches(strided_block(widest), few, layout.shape, strides, tuple(itemsizes))
    if launches is None:
        straight = [copy.to_row_major(build, operand) for operand in operands]
        _launch(build, kernels, straight, results, result_itemsizes)
        return
    for blocks, first, offsets, part_count, geometry in launches:
        to = [address + first * itemsize for address, itemsize in zip(results, result_itemsizes, strict=True)]
        parts = zip(sources, offsets, itemsizes, strict=True)
        fields: dict[str, Any] = {"results": to} if parameters is None else {"result": to[0], "parameters": parameters}
        packed = kernels.strided(
            sources=[address + offset * itemsize for address, offset, itemsize in parts],
            count=part_count, geometry=geometry, **fields,
        )  # fmt: skip
        build.launch(kernels.family, f"{kernels.name}_strided", blocks, packed)


def contiguous_blocks(build: ProgramBuilder, count: Number, widest: int) -> Number:
    """The blocks of a launch over dense elements, by the bytes of the widest: more of few, so that no block waits."""
    return computed(_blocks, count, widest, build.facts.few_elements, build.facts.multiprocessors)


def _blocks(count: int, widest: int, few_elements: int, multiprocessors: int) -> int:
    blocks = -(-count // (BLOCK_SIZE * CONTIGUOUS_PACKS * (ACCESS_BYTES // widest)))
    return max(blocks, min(-(-count // BLOCK_SIZE), multiprocessors)) if count <= few_elements else blocks


# One look-up in a cache where there were one for each operand.
@lru_cache(maxsize=4096)
def strided_launches(
    per_block: int, few: bool, shape: Dims, strides: tuple[Dims, ...], itemsizes: tuple[int, ...]
) -> tuple[Part, ...] | None:
    """The launches over operands of these strides; None where reading one of them so would be slow."""
    if few:
        return parts(BLOCK_SIZE, shape, strides)
    slow = any(copy.is_transposed(shape, steps, itemsize) for steps, itemsize in zip(strides, itemsizes, strict=True))
    return None if slow else parts(per_block, shape, strides)
