"""Matrix products as hipBLAS and cuBLAS take them: their strided batched gemm has the same arguments."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .....dtype import DType
from ....program.program import LibraryCall
from ....program.values import Address
from ..driver import capture, slow_path
from ..driver.device import Device
from ..driver.stream import Stream
from .library import StreamLibrary
from .matrices import LARGEST_COUNT, Matrices

# 1 and 0, by which products and what was there before are multiplied, in the dtype of the sums, and an imaginary part
# for complex numbers.
_FACTORS: Final[Mapping[DType, tuple[Any, Any]]] = {
    DType.F32: ((ctypes.c_float * 2)(1), (ctypes.c_float * 2)(0)),
    DType.F64: ((ctypes.c_double * 2)(1), (ctypes.c_double * 2)(0)),
}


class GemmConstants(NamedTuple):
    """A library's constants of operations and types."""

    kinds: Mapping[DType, Any]
    """Of element types."""
    sums: Mapping[DType, Any]
    """Of f32 and f64 as what products are added up in."""
    operations: Sequence[Any]
    """Of taking a matrix as it is, and transposed."""
    algorithm: Any


class GemmLibrary(StreamLibrary, ABC):
    """Products of matrices: see `library.Blas`."""

    def __init__(self, device: Device, queue: Stream, constants: GemmConstants) -> None:
        super().__init__(device, queue)
        self._constants = constants

    def multiply(
        self,
        dtype: DType,
        bmnk: tuple[int, int, int, int],
        lhs: Matrices,
        rhs: Matrices,
        result: Address,
        is_added: bool = False,
        result_dtype: DType | None = None,
    ) -> LibraryCall:
        """The products of b matrices (m, k) with b matrices (k, n), contiguous at `result`."""
        kinds, sums, operations, algorithm = self._constants
        b, m, n, k = bmnk
        # One matrix on the right for all on the left, which follow each other as their rows do: one large product.
        if rhs.step == 0 and not lhs.transposed and lhs.step == m * lhs.leading and b * m <= LARGEST_COUNT:
            b, m = 1, b * m
        compute = DType.F64 if dtype.real is DType.F64 else DType.F32
        one, zero = _FACTORS[compute]
        kind = kinds[dtype]
        # Columns first, the operands are transposed already, so the product is that of the transposes, swapped.
        arguments = (
            operations[rhs.transposed],
            operations[lhs.transposed],
            n,
            m,
            k,
            ctypes.addressof(one),
            rhs.address,
            kind,
            rhs.leading,
            rhs.step,
            lhs.address,
            kind,
            lhs.leading,
            lhs.step,
            ctypes.addressof(one if is_added else zero),
            result,
            kinds[result_dtype or dtype],
            n,
            m * n,
            b,
            sums[compute],
            algorithm,
        )
        return LibraryCall(self._multiply, (arguments,))

    def _multiply(self, arguments: tuple[Any, ...]) -> None:
        with self._lock, self._device.activated():
            if slow_path.required:
                capture.enqueue(self._queue, self._set_stream, self._enqueue, arguments)
            else:
                self._enqueue(arguments)

    @abstractmethod
    def _set_stream(self, stream: Any) -> None:
        """Have the library enqueue in the stream of this handle."""

    @abstractmethod
    def _enqueue(self, arguments: tuple[Any, ...]) -> None:
        """Call the library's strided batched gemm with its handle and these arguments."""
