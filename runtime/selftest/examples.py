"""A valid call of every cell of the support matrix, in one of several sizes: one of the examples in the spec."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from ... import dtype as dtypes
from ...dtype import DType
from ...examples import METHODS, PRODUCTS
from ...ggml_dtype import GgmlDType
from ..base.example import Operand
from ..core import conv
from ..core.layout import Layout
from ..core.pool import ParamsPool
from ..core.shape import Shape
from ..ranks.group import Group

if TYPE_CHECKING:
    from ...storage import Storage
    from ..doctor.support import SupportCell

Arguments = dict[str, Any]
"""By name, in the order of the signature."""


class Make(Protocol):
    """Makes a storage of a dtype and a length, whose numbers fit what the call does with them."""

    def __call__(self, dtype: str, length: int, /, numbers: Numbers = ...) -> Storage:
        """Make `length` elements of the dtype of that name."""


class Numbers(NamedTuple):
    """Constraints on the numbers of an operand."""

    below: int | None = None
    """Integers from 0 to below this one."""
    ascending: bool = False
    """In ascending order."""
    units: bool = False
    """1 and -1, whose products neither overflow nor vanish."""
    positive: bool = False
    small: bool = False
    """Up to 1/4, so that dot products stay small."""
    matrix: Layout | None = None
    """A Hermitian positive definite matrix with distinct eigenvalues, where this layout has its elements."""


ANY: Final = Numbers()

SMALLEST: Final = 0
"""The position of the smallest call among the examples of a method."""
LARGEST: Final = -1
"""That of one with more elements than a wave, a block of threads and a tile of a kernel have, and no multiples."""


class Example(NamedTuple):
    """A call of a method of a storage, of block-quantized weights or of a device."""

    owner: Any
    method: str
    arguments: Arguments

    def call(self) -> Any:
        """Make the call; an attribute is read."""
        called = getattr(self.owner, self.method)
        return called(*self.arguments.values()) if callable(called) else called


def contiguous(sizes: Sequence[int]) -> Layout:
    """The layout of a shape whose elements follow each other."""
    return Layout.contiguous(Shape(sizes))


def another_dtype(name: str) -> str:
    """Name a dtype besides the one called `name` to convert to; complex numbers become no real ones."""
    return "i32" if name == "f32" else "bool" if DType(name).is_complex else "f32"


def storage_example(
    cell: SupportCell,
    make: Make,
    number: int = SMALLEST,
    lay: Callable[[Sequence[int]], Layout] = contiguous,
    op: object = None,
) -> Example:
    """Return a call of a storage method, whose operands have the layouts that `lay` makes of their shapes.

    `op` is the one that a user writes, of a method that takes such an op.
    """
    assert isinstance(cell.dtype, DType), f"{cell.method} has a dtype"
    call = Call(cell, number, lay, op)
    arguments = call.arguments(make)
    return Example(call.storage("self", make), cell.method, arguments)


def block_arguments(cell: SupportCell, make: Make, number: int = SMALLEST) -> Arguments:
    """Return the arguments of a method of block-quantized weights."""
    return Call(cell, number).arguments(make)


def block_count(cell: SupportCell, number: int = SMALLEST) -> int:
    """Return how many weights a method of block-quantized weights is called on."""
    return math.prod(METHODS[cell.method].calls[number]["self"])


def device_arguments(cell: SupportCell, number: int = SMALLEST) -> Arguments:
    """Return the arguments of a device method."""
    return Call(cell, number).arguments(_no_storage)


def _no_storage(name: str, length: int, /, numbers: Numbers = ANY) -> Storage:
    raise NotImplementedError(f"a device method takes a storage of {length} elements of {name}")


class Call:
    """One of the examples of a method, whose arguments are created one by one."""

    def __init__(
        self,
        cell: SupportCell,
        number: int = SMALLEST,
        lay: Callable[[Sequence[int]], Layout] = contiguous,
        op: object = None,
    ) -> None:
        self.cell = cell
        self.method = METHODS[cell.method]
        self.written = self.method.calls[number]
        self.lay = lay
        self.layouts = {it.layout: _laid(self.written[name], lay) for name, it in self.method.operands.items()}
        self.op = op or _op(cell)

    def arguments(self, make: Make) -> Arguments:
        """Return the arguments in their order."""
        return {name: self.argument(name, make) for name in self.method.parameters}

    def argument(self, name: str, make: Make) -> Any:
        """Return one argument."""
        return self.storage(name, make) if name in self.method.operands else self._value(name)

    def _value(self, name: str) -> Any:
        if name in self.layouts:
            return self.layouts[name]
        if name == "op":
            return self.op
        value: Any = self.written.get(name)
        kind = self.method.parameters[name]
        match kind:
            case "Array":
                dtype = self.cell.dtype.numpy if isinstance(self.cell.dtype, DType) else np.dtype(np.uint8)
                return (np.arange(math.prod(value)) % 5).astype(dtype)
            case "Layout":
                # It belongs to no operand.
                return self.lay(self.written["self"])
            case "DType":
                return self._dtype()
            case "Group":
                return self._group()
            case "GgmlDType":
                return GgmlDType(value)
            case "Sequence[complex]":
                return list(value)
            case "Shape":
                return Shape(value)
            case "ParamsPool":
                return ParamsPool(**value)
            case params if params.startswith("ParamsConv"):
                return getattr(conv, params)(**value)
        if isinstance(value, dict):
            return next(text for key, text in value.items() if _is_of(self.cell.dtype, key))
        return value

    def _dtype(self) -> DType | GgmlDType | None:
        """The dtype that a device method is called for, or another one than that of the storage."""
        if self.method.operands and isinstance(self.cell.dtype, DType):
            return DType(another_dtype(self.cell.dtype.value))
        return self.cell.dtype

    def _group(self) -> Group:
        """A group of one, which has sent itself as many elements as there are."""
        assert isinstance(self.cell.dtype, DType)
        group = Group.alone()
        group.host.send(np.zeros(math.prod(self.written["self"]), self.cell.dtype.numpy), 0)
        return group

    def storage(self, name: str, make: Make) -> Any:
        """Return the storage of an operand, or those of several; None for an operand that is left out."""
        operand, shape = self.method.operands[name], self.written[name]
        if shape is None:
            return None
        if operand.layout is None:
            return self._made(operand, math.prod(shape), None, make)
        where = self.layouts[operand.layout]
        if isinstance(where, tuple):
            return tuple(self._made(operand, each.end, each, make) for each in where)
        return self._made(operand, where.end, where, make)

    def _made(self, operand: Operand, length: int, where: Layout | None, make: Make) -> Storage:
        dtype = self.cell.dtype
        match operand.dtype:
            case "same":
                name = str(dtype)
            case "compute":
                assert isinstance(dtype, DType)
                name = dtype.compute.value
            case other:
                name = other
        return make(name, length, self._numbers(operand, where))

    def _numbers(self, operand: Operand, where: Layout | None) -> Numbers:
        if operand.below is not None:
            names = inspect.signature(operand.below).parameters
            return Numbers(below=operand.below(**{name: self._value(name) for name in names}))
        if operand.values is None:
            return Numbers(units=(self.cell.op or self.cell.method) in PRODUCTS)
        words: dict[str, Any] = {"matrix": where} if operand.values == "definite" else {operand.values: True}
        return Numbers(**words)


def _is_of(dtype: object, key: str) -> bool:
    """Whether a dtype is the one, or in the group, of a name."""
    return str(dtype) == key or dtype in getattr(dtypes, key.upper(), ())


def _laid(shape: Any, lay: Callable[[Sequence[int]], Layout]) -> Any:
    """The layout of a shape, or the layouts of several."""
    if shape is None:
        return None
    return tuple(map(lay, shape)) if shape and isinstance(shape[0], tuple) else lay(shape)


def _op(cell: SupportCell) -> Any:
    """The member of the enum that a method takes for its op; None where it takes none."""
    from ... import op

    if cell.op is None:
        return None
    kind = "".join(part.capitalize() for part in cell.method.removesuffix("_impl").removesuffix("_op").split("_"))
    return getattr(op, f"{kind.removesuffix('Assign')}Op")(cell.op)
