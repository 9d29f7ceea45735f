"""What a program works with: memory and typed buffers in it, and the values that each run finds anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ...kernels.constants import ACCESS_BYTES


class Value:
    """What a run knows and the building of the program does not. Kernels get it in their structs."""

    __slots__ = ()

    code: ClassVar[str] = "Q"
    """Its format in a struct, as the module `struct` has it."""


class Memory:
    """Memory of a device: that of an argument of the program, or `nbytes` that each run allocates.

    `skew` is how far its address lies behind a multiple of ACCESS_BYTES. Memory is foreign where another library has
    allocated it; such memory may overlap. `owner` is the position of the first argument that is the same storage.
    """

    __slots__ = ("argument", "is_foreign", "nbytes", "owner", "skew")

    def __init__(self, nbytes: int, *, argument: int | None = None, skew: int = 0, is_foreign: bool = False) -> None:
        self.nbytes = nbytes
        self.argument = argument
        self.owner = argument
        self.skew = skew
        self.is_foreign = is_foreign

    def is_same(self, other: Memory) -> bool:
        """Whether both are the memory of one storage."""
        return self is other or (self.owner is not None and self.owner == other.owner)

    @property
    def address(self) -> Address:
        """The address of the first byte."""
        return Address(self, 0)


class Address(Value):
    """A place in memory, `offset` bytes from its beginning."""

    __slots__ = ("memory", "offset")

    def __init__(self, memory: Memory, offset: int) -> None:
        self.memory = memory
        self.offset = offset

    def __add__(self, nbytes: int) -> Address:
        return Address(self.memory, self.offset + nbytes)

    @property
    def alignment(self) -> int:
        """The largest power of two, at most ACCESS_BYTES, that divides the address in every run."""
        return alignment_of(self.memory.skew + self.offset)

    def is_aligned(self, nbytes: int = ACCESS_BYTES) -> bool:
        """Whether a power of two up to ACCESS_BYTES divides the address in every run."""
        return self.alignment % nbytes == 0


class Buffer:
    """`length` elements of a dtype from the beginning of some memory on: what a storage is in a program."""

    __slots__ = ("dtype", "length", "memory", "number")

    def __init__(self, dtype: DType, length: int, memory: Memory, number: Scalar | None = None) -> None:
        self.dtype = dtype
        self.length = length
        self.memory = memory
        self.number = number
        """The bits of the one element, where the storage is a number that kernels can take along."""

    @property
    def address(self) -> Address:
        """The address of the first element."""
        return Address(self.memory, 0)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.length * self.dtype.itemsize

    @property
    def in_memory(self) -> Buffer:
        """The same buffer for kernels that take no number along."""
        return Buffer(self.dtype, self.length, self.memory)

    def cast(self, dtype: DType, length: int) -> Buffer:
        """The same memory as elements of another dtype."""
        return Buffer(dtype, length, self.memory)


class BlocksBuffer:
    """`length` weights in blocks of a GGML format: what a storage of blocks is in a program."""

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
        """The same memory as elements of u8."""
        return Buffer(DType.U8, self.nbytes, self.memory)


class Parameter:
    """A number among the arguments of the program, at a position behind the storages."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"n{self.position}"


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


class ErrorRecord(Value):
    """The address of the record in which kernels of this thread note an index that is out of range."""

    __slots__ = ()


class CallNumber(Value):
    """A number that no call has had, so that the first of several errors is told from later ones."""

    __slots__ = ()


class Draw:
    """Blocks of the device's random stream, which each run reserves."""

    __slots__ = ("block", "blocks", "seed", "state")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.state = DrawPart(self, "state")
        """The address of the state that a captured graph draws by; NOWHERE in other runs."""
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
"""What a kernel gets as an address: one that each run finds, or one that is the same in all runs."""
NOWHERE: Final = 0
"""The address of an operand that is not there."""


def alignment_of(*numbers: int | Address) -> int:
    """The largest power of two, at most ACCESS_BYTES, that divides all of the numbers and addresses."""
    bits = ACCESS_BYTES
    for number in numbers:
        bits |= number.alignment if isinstance(number, Address) else number
    return bits & -bits
