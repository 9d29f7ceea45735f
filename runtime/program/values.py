"""The values of a program: memory, buffers and operands, values that differ between runs, and structs of values."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...kernels.constants import ACCESS_BYTES
from ..core.layout import Layout
from ..core.shape import Shape

Element = TypeVar("Element")


class Value:
    """A value that is known in each run and not when the program is built. Kernels get it in their structs."""

    __slots__ = ()

    code: ClassVar[str] = "Q"
    """Its format in a struct, as the module `struct` has it."""


Number: TypeAlias = int | Value
"""A number that is the same in all runs, or a value."""


def known(number: Number) -> int:
    """A number of a program that is not dynamic."""
    assert isinstance(number, int), "the program is dynamic"
    return number


class Memory:
    """Memory of a device: that of an argument of the program, or `size` bytes that each run allocates.

    `skew` is the address modulo ACCESS_BYTES. Memory is foreign where another library has allocated it; such memory may
    overlap. `owner` is the position of the first argument that is the same storage.
    """

    __slots__ = ("argument", "is_foreign", "owner", "size", "skew")

    def __init__(self, size: Number, argument: int | None = None, *, skew: int = 0, is_foreign: bool = False) -> None:
        self.size = size
        self.argument = argument
        self.owner = argument
        self.skew = skew
        self.is_foreign = is_foreign

    def is_same(self, other: Memory) -> bool:
        """Whether both are the memory of one storage."""
        return self is other or (self.owner is not None and self.owner == other.owner)

    @property
    def nbytes(self) -> int:
        """The bytes, in a program that is not dynamic."""
        return known(self.size)

    @property
    def address(self) -> Address:
        """The address of the first byte."""
        return Address(self, 0)


class Constant(Memory):
    """Memory of the host with the elements of an array, which all runs read."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        super().__init__(array.nbytes)
        self.array = array

    def __repr__(self) -> str:
        return f"constant {self.array[0]}" if self.array.size == 1 else f"{self.array.size} constants"


class Address(Value):
    """An address: `offset` bytes from the beginning of some memory."""

    __slots__ = ("memory", "offset")

    def __init__(self, memory: Memory, offset: int) -> None:
        self.memory = memory
        self.offset = offset

    def __add__(self, nbytes: int) -> Address:
        return Address(self.memory, self.offset + nbytes)

    @property
    def alignment(self) -> int:
        """The largest power of two, at most ACCESS_BYTES, that divides the address in every run."""
        bits = ACCESS_BYTES | (self.memory.skew + self.offset)
        return bits & -bits

    def is_aligned(self, nbytes: int = ACCESS_BYTES) -> bool:
        """Whether a power of two up to ACCESS_BYTES divides the address in every run."""
        return (self.memory.skew + self.offset) % nbytes == 0


class Buffer:
    """`count` elements of a dtype from the beginning of some memory on: what a storage is in a program."""

    __slots__ = ("count", "dtype", "memory", "number")

    def __init__(self, dtype: DType, count: Number, memory: Memory, number: Scalar | None = None) -> None:
        self.dtype = dtype
        self.count = count
        self.memory = memory
        self.number = number
        """The bits of the one element, where the storage is a number that kernels can take along."""

    @property
    def length(self) -> int:
        """The number of elements, in a program that is not dynamic."""
        return known(self.count)

    @property
    def address(self) -> Address:
        """The address of the first element."""
        return Address(self.memory, 0)

    def at(self, offset: int) -> Address:
        """The address of an element."""
        return Address(self.memory, offset * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements, in a program that is not dynamic."""
        return self.length * self.dtype.itemsize


class BlocksBuffer:
    """`length` block-quantized weights in a GGML format: the value of a storage of blocks in a program."""

    __slots__ = ("dtype", "length", "memory")

    number: ClassVar[None] = None

    def __init__(self, dtype: GgmlDType, length: int, memory: Memory) -> None:
        self.dtype = dtype
        self.length = length
        self.memory = memory

    @property
    def block_size(self) -> int:
        """How many weights share a block."""
        return self.dtype.block_size

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks."""
        return self.length // self.dtype.block_size * self.dtype.type_size

    @property
    def address(self) -> Address:
        """The address of the first block."""
        return Address(self.memory, 0)

    def bytes(self) -> Buffer:
        """The memory as elements of u8."""
        return Buffer(DType.U8, self.nbytes, self.memory)


class Parameter:
    """A number among the arguments of the program, at a position after the storages."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"n{self.position}"


class Count(Parameter):
    """The number of elements of a call, the last argument of a dynamic program."""

    __slots__ = ()


class Scalar(Value):
    """A number that each run computes: `function(source, *constants)`, or the source itself.

    The source is a parameter, or the bits of the storage that is the argument at a position, or another scalar.
    """

    __slots__ = ("constants", "function", "source")

    def __init__(
        self, source: Parameter | int | Scalar, function: Callable[..., int] | None = None, *constants: Any
    ) -> None:
        self.source = source
        self.function = function
        self.constants = constants


class Size(Scalar):
    """A number of a dynamic program: the number of elements, or what follows from it."""

    __slots__ = ()

    def at(self, count: int) -> int:
        """The number for calls with `count` elements."""
        number = self.source.at(count) if isinstance(self.source, Size) else count
        return number if self.function is None else self.function(number, *self.constants)


def computed(function: Callable[..., int], source: Number, *constants: Any) -> Number:
    """`function(source, *constants)`: now, or in each run where the source is a value."""
    return type(source)(source, function, *constants) if isinstance(source, Scalar) else function(source, *constants)


def sized_number(number: Any, count: int) -> Any:
    """A number of a program for calls with `count` elements; what does not depend on that stays."""
    return number.at(count) if type(number) is Size else number


class ErrorRecord(Value):
    """The address of the record in which kernels of this thread note an index that is out of range."""

    __slots__ = ()


class CallNumber(Value):
    """A number that is unique to a call, so that the first of several errors is known."""

    __slots__ = ()


class Draw:
    """Blocks of the device's random stream, which each run reserves."""

    __slots__ = ("block", "blocks", "seed", "state")

    def __init__(self, blocks: Number) -> None:
        self.blocks = blocks
        self.state = DrawPart(self, "state")
        """The address of the state that a captured graph draws by; NULL in other runs."""
        self.seed = DrawPart(self, "seed")
        self.block = DrawPart(self, "block")
        """The number of the first block."""


class DrawPart(Value):
    """A number of a draw."""

    __slots__ = ("draw", "name")

    def __init__(self, draw: Draw, name: str) -> None:
        self.draw = draw
        self.name = name


Pointer: TypeAlias = Value | int
"""An address in a struct: one that differs between runs, or one that is the same in all runs."""
NULL: Final = 0
"""The address of an operand that is not there."""


def alignment_of(*numbers: int | Address) -> int:
    """The largest power of two, at most ACCESS_BYTES, that divides all of the numbers and addresses."""
    bits = ACCESS_BYTES
    for number in numbers:
        bits |= number.alignment if isinstance(number, Address) else number
    return bits & -bits


class _ValueKinds(dict[type, bool]):
    """Whether a class is one of values."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = is_value = issubclass(kind, Value)
        return is_value


_is_value: Final = _ValueKinds().__getitem__


class ArgumentStruct:
    """The struct of a kernel's arguments.

    Its format is that of the module `struct`, in which fields that may be values are P, of 8 bytes, and L, of 4.
    """

    def __init__(self, form: str) -> None:
        packer = struct.Struct(form.replace("P", "Q"))
        self.pack = packer.pack
        self.unpack = packer.unpack
        self.size = packer.size
        self.format = form

    @cached_property
    def _fields(self) -> list[tuple[int, str]]:
        """The offset and the code of each field."""
        fields, size = [], 0
        for count, code in re.findall(r"(\d*)([a-zA-Z])", self.format):
            for _ in range(int(count or 1)):
                if code != "x":
                    fields.append((size, code))
                size += 8 if code == "P" else struct.calcsize(f"={code}")
        return fields

    @cached_property
    def offsets(self) -> list[int]:
        """The offset of each field in bytes."""
        return [offset for offset, _ in self._fields]

    @cached_property
    def _value_fields(self) -> tuple[list[int], Callable[[Sequence[Any]], Sequence[Any]]]:
        """The positions of the fields that may be values, and a function that gets these fields."""
        positions = [position for position, (_, code) in enumerate(self._fields) if code in "PL"]
        # The empty slice makes it a tuple where there is one position, or none.
        return positions, itemgetter(*positions, slice(0))

    def values(self, fields: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The fields that are values, each with its position."""
        positions, getter = self._value_fields
        candidates = getter(fields)
        # Most are numbers, and this loop is C.
        return compress(zip(positions, candidates, strict=False), map(_is_value, map(type, candidates)))


class KernelArguments:
    """The fields of a kernel's struct, which each run packs when it knows the values among them."""

    __slots__ = ("_values", "fields", "struct")

    def __init__(self, struct: ArgumentStruct, fields: tuple[Any, ...]) -> None:
        self.struct = struct
        self.fields = fields
        self._values: list[tuple[int, Value]] | None = None

    @property
    def values(self) -> list[tuple[int, Value]]:
        """The fields that are values, each with its position."""
        if self._values is None:
            self._values = list(self.struct.values(self.fields))
        return self._values

    def packed(self, number: Callable[[Value], int] | None = None) -> bytes:
        """The bytes of the struct, with a number for each value."""
        if number is None:
            return self.struct.pack(*self.fields)
        fields = list(self.fields)
        for position, value in self.values:
            fields[position] = number(value)
        return self.struct.pack(*fields)

    def parts(self) -> tuple[str, Sequence[bytes | Value]]:
        """The format and the fields that pack the struct: values, and the bytes before and after each."""
        known = self.packed(lambda _: 0)
        form, end = "=", 0
        fields: list[bytes | Value] = []
        for position, value in self.values:
            offset = self.struct.offsets[position]
            if offset > end:
                form += f"{offset - end}s"
                fields.append(known[end:offset])
            form += value.code
            fields.append(value)
            end = offset + struct.calcsize(value.code)
        if end < len(known):
            form += f"{len(known) - end}s"
            fields.append(known[end:])
        return form, fields


StorageOrBuffer: TypeAlias = Any
"""A storage in the dispatch; in an op that builds a program, its Buffer or BlocksBuffer."""


class Operand(NamedTuple):
    """The elements that `layout` reaches in `storage`.

    The dispatch gives a backend operands of storages. An op that builds a program gets the same operands with a Buffer
    instead of each storage.
    """

    storage: StorageOrBuffer
    layout: Layout

    @classmethod
    def optional(cls, storage: Any, layout: Layout | None) -> Self | None:
        """The operand of a storage and its layout; None where there is none."""
        return None if storage is None or layout is None else cls(storage, layout)

    @classmethod
    def each(cls, storages: Sequence[Any], layouts: Sequence[Layout]) -> list[Self]:
        """The operands of the dispatch's storages, all of which are one backend's."""
        return [cls(storage.inner, layout) for storage, layout in zip(storages, layouts, strict=True)]

    @property
    def with_a_dim(self) -> Self:
        """Return the same elements along at least one dim; rank 0 has one element."""
        layout = self.layout
        return self if layout.shape else type(self)(self.storage, Layout((1,), (1,), layout.start_offset))

    def as_rank(self, rank: int) -> Self:
        """Images or lines (b, c, ..) as volumes or images of a higher rank: with dims of size 1 after the channels."""
        layout = self.layout
        more = rank - layout.rank
        if not more:
            return self
        shape, strides = layout.shape, layout.strides
        return self.as_strided((*shape[:2], *(1,) * more, *shape[2:]), (*strides[:2], *(0,) * more, *strides[2:]))

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        dtype: DType = self.storage.dtype
        return dtype

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        itemsize: int = self.storage.dtype.itemsize
        return itemsize

    @property
    def shape(self) -> Shape:
        """The sizes of the dims."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The step along each dim in elements."""
        return self.layout.strides

    @property
    def address(self) -> Address:
        """The address of the first element that the layout reaches, in a program."""
        storage = self.storage
        return Address(storage.memory, self.layout.start_offset * storage.dtype.itemsize)

    def at(self, offset: int) -> Address:
        """The address of the element `offset` elements of memory after the first one."""
        storage = self.storage
        return Address(storage.memory, (self.layout.start_offset + offset) * storage.dtype.itemsize)

    def as_strided(self, shape: Sequence[int], strides: Sequence[int]) -> Self:
        """Return the same storage from the same first element on, with other dims."""
        layout = Layout._trusted(Shape._trusted(shape), tuple(strides), self.layout.start_offset)
        return type(self)(self.storage, layout)


def dense(buffer: Buffer, shape: Sequence[int]) -> Operand:
    """All elements of a buffer in row-major order."""
    return Operand(buffer, Layout.contiguous(tuple(shape)))


def views_of_rows(
    source: StorageOrBuffer,
    target: StorageOrBuffer,
    rows: int,
    columns: int,
    source_stride: int,
    target_stride: int,
    source_offset: int,
    target_offset: int,
) -> tuple[Operand, Operand]:
    """The rows that a storage method `copy2d` reads, and those that it writes to."""
    shape = Shape((rows, columns))
    source_layout = Layout(shape, (source_stride, 1), source_offset)
    return Operand(source, source_layout), Operand(target, Layout(shape, (target_stride, 1), target_offset))


def along_channels(vector: Operand, dims: Sequence[int]) -> Operand:
    """A vector with an element for each channel of (b, c, ..), in that shape."""
    return vector.as_strided(dims, (0, *vector.strides, *(0,) * (len(dims) - 2)))


def address_of(operand: Operand | Buffer | Memory | None) -> Pointer:
    """The address of what may be left out, which is NULL then."""
    return NULL if operand is None else operand.address


def filled(values: Sequence[Element], length: int, padding: Element) -> tuple[Element, ...]:
    """Pad values to the length of an array in a struct."""
    return (*values, *(padding,) * (length - len(values)))
