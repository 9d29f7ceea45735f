"""A stand-in for the types of elements that the spec will have."""

from __future__ import annotations

import enum

from ..error import InvalidArgument


class GgmlDType(enum.Enum):
    """How the elements of a tensor are stored: a number, elements of a block, bytes of a block."""

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q8_1 = (9, 32, 36)
    Q2K = (10, 256, 84)
    Q3K = (11, 256, 110)
    Q4K = (12, 256, 144)
    Q5K = (13, 256, 176)
    Q6K = (14, 256, 210)
    Q8K = (15, 256, 292)
    BF16 = (30, 1, 2)

    @property
    def block_size(self) -> int:
        """Elements of a block."""
        return self.value[1]

    @property
    def type_size(self) -> int:
        """Bytes of a block."""
        return self.value[2]

    def to_u32(self) -> int:
        """The number in files."""
        return self.value[0]

    @staticmethod
    def from_u32(number: int) -> GgmlDType:
        """The format of a number in a file; InvalidArgument where there is none."""
        found = next((dtype for dtype in GgmlDType if dtype.value[0] == number), None)
        if found is None:
            known = ", ".join(f"{dtype.to_u32()} ({dtype.name})" for dtype in GgmlDType)
            raise InvalidArgument("from_u32", f"{number!r} is the number of no block format; known are {known}")
        return found
