"""The test bench of one cell."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import pytest

from .declared import shape_of as shape_of_result
from .layouts import Operand, lay_out
from .oracle.formats import NUMPY, Array

if TYPE_CHECKING:
    import tallow
    from tallow.dtype import DType
    from tallow.runtime.core.shape import Shape
    from tallow.runtime.doctor.support import SupportCell

T = TypeVar("T")


def cell_label(cell: SupportCell) -> str:
    """The name of the cell's test, and what its random numbers follow from."""
    parts = [cell.backend, cell.method, cell.op, cell.dtype.value if cell.dtype else None]
    return "-".join(part for part in parts if part)


@cache
def ops_of(backend: str, method: str, dtype: DType | None) -> list[str | None]:
    """The ops that a method has on a backend for a dtype."""
    import tallow

    return [
        cell.op
        for cell in tallow.support()
        if (cell.backend, cell.method, cell.dtype, cell.status) == (backend, method, dtype, "supported")
    ]


@dataclass(frozen=True)
class Bench:
    """One cell on the device under test, with random numbers of its own."""

    cell: SupportCell
    device: tallow.Device
    full: bool
    generator: np.random.Generator
    sample: ClassVar[int] = 0
    """About as many cases of each cell are tested; 0 for all."""

    @classmethod
    def of(cls, cell: SupportCell, device: tallow.Device, full: bool) -> Bench:
        return cls(cell, device, full, np.random.default_rng(zlib.crc32(cell_label(cell).encode())))

    @property
    def name(self) -> str:
        """The name of the cell's dtype."""
        assert self.cell.dtype is not None, f"{self.cell.method} has a dtype"
        return str(self.cell.dtype.value)

    @property
    def op(self) -> str:
        """The name of the cell's op."""
        assert self.cell.op is not None, f"{self.cell.method} has an op"
        return self.cell.op

    def share(self, cases: Sequence[T]) -> list[T]:
        """Of cases that differ in where operands lie, all for the first op of a method; for each other op a seventh.

        The kernels of the ops of a method differ in an expression alone, and seven ops have all cases between them,
        also where each third op alone has the dtype. --full runs all cases of each.
        """
        ops = ops_of(self.cell.backend, self.cell.method, self.cell.dtype)
        number = ops.index(self.cell.op)
        return self.sampled(cases if self.full or number == 0 else cases[number % 7 :: 7])

    def some(self, cases: Sequence[T]) -> list[T]:
        """Of cases that say nothing of dtypes, all for f32; for each other dtype or format a third. --full runs all.

        The dtypes of a method share its kernel's code, and have all cases between them.
        """
        from tallow import DType, GgmlDType

        number = [*DType, *GgmlDType].index(self.cell.dtype)
        return self.sampled(cases if self.full or self.name == "f32" else cases[number % 3 :: 3])

    def sampled(self, cases: Sequence[T]) -> list[T]:
        """Of cases those that --sample chooses, others for each cell; all without it."""
        step = max(1, len(cases) // self.sample) if self.sample else 1
        return list(cases[zlib.crc32(cell_label(self.cell).encode()) % step :: step])

    def where(self, *facts: object) -> str:
        """The cell and what it is called on, for messages."""
        return ": ".join([cell_label(self.cell), *map(str, facts)])

    def lay_out(self, values: Array, placement: str = "contiguous", name: str | None = None) -> Operand:
        """`values`, of the cell's dtype if no other is named, on the device."""
        return lay_out(self.device, name or self.name, values, placement)

    def read(self, storage: tallow.Storage, name: str, shape: tuple[int, ...], where: str) -> Array:
        """The elements of a result, of dtype `name`, in `shape`."""
        return read(storage, name, shape, where)

    def assert_untouched(self, operand: Operand, where: str) -> None:
        """The storage of an operand that was only read is as it was."""
        actual = operand.storage.to_numpy()
        assert actual.tobytes() == operand.buffer.tobytes(), f"{where}: an operand that is only read was changed"

    def raises_invalid_index(self, call: Callable[[], object], index: int, size: int, where: str) -> None:
        """`call`, or what synchronises after it, raises InvalidIndex with these facts; then the device works."""
        from tallow.runtime.backends.array_backend.device import ArrayDevice
        from tallow.runtime.backends.gpu_backend.device import GpuDevice
        from tallow.runtime.base.error import InvalidIndex

        with pytest.raises(InvalidIndex) as caught:
            call()
            self.device.synchronize()
        actual = (caught.value.op, caught.value.index, caught.value.size)
        # A device reports late, and knows the kernel of the part of a composed method.
        is_late = f"{self.cell.via}".startswith("methods ") and actual[0] != self.cell.method
        assert not is_late or isinstance(self.device.inner, GpuDevice | ArrayDevice), f"{where}: {actual[0]} is named"
        expected = (actual[0] if is_late else self.cell.method, index, size)
        assert actual == expected, f"{where}: (op, index, size) is {actual}, expected {expected}"
        self.device.synchronize()
        plain = np.arange(4, dtype=np.float32)
        assert self.device.storage(plain).to_numpy().tolist() == plain.tolist(), f"{where}: the device works on"


def read(storage: tallow.Storage, name: str, shape: tuple[int, ...], where: str) -> Array:
    """The elements of a result, of dtype `name`, in `shape`."""
    assert storage.dtype.value == name, f"{where}: a result of {storage.dtype.value}, expected {name}"
    count = math.prod(shape)
    assert storage.length == count, f"{where}: a result of {storage.length} elements, expected {count}"
    declared = shape_of_result(storage)
    assert declared in (None, shape), f"{where}: a result of shape {shape}, and the spec declares {declared}"
    elements = storage.to_numpy()
    assert elements.dtype == NUMPY[name], f"{where}: to_numpy gives {elements.dtype}, expected {NUMPY[name]}"
    assert elements.shape == (count,), f"{where}: to_numpy gives shape {elements.shape}, expected {(count,)}"
    return elements.reshape(shape)


def dtype_of(name: str) -> DType:
    """The package's dtype of this name."""
    from tallow.dtype import DType

    return DType(name)


def shape_of(*sizes: int) -> Shape:
    """The package's shape."""
    from tallow.runtime.core.shape import Shape

    return Shape(sizes)
