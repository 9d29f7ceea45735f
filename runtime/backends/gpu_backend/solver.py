"""Decompositions as cuSOLVER and hipSOLVER take them: the dense functions of the second are named after the first's.

A call is for one matrix, columns first, that it overwrites. Calls of several follow each other in the stream, with one
workspace, and the host reads at the end whether they found results.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....dtype import DType
from ...host.linalg import no_result
from . import capture, slow_path
from .libraries import Library
from .storage.slice import Slice

if TYPE_CHECKING:
    from .allocator import CachingAllocator
    from .gpu_driver import GpuDriver

# The letters of LAPACK.
LETTERS: Final = {DType.F32: "S", DType.F64: "D", DType.COMPLEX64: "C", DType.COMPLEX128: "Z"}
_INFO_BYTES: Final = 4


class SolverLibrary(Library, ABC):
    """A handle of a library, of one device and stream: see `libraries.Decompositions`. Raises LibraryError."""

    without = "NumPy's LAPACK does its work on the host"
    lower: Any
    """The number of a lower triangle."""
    upper: Any
    """That of an upper triangle."""
    transposed: Any
    """That of an operation on the transposed matrix."""
    vectors: tuple[Any, Any]
    """Those of eigenvalues alone, and of eigenvectors too."""

    def __init__(self, driver: GpuDriver[Any], allocator: CachingAllocator) -> None:
        self._driver = driver
        self._allocator = allocator
        # A handle serves one thread at a time.
        self._lock = threading.Lock()

    @abstractmethod
    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        """Call a function of the library, such as "potrf", for a type, with the handle."""

    @abstractmethod
    def _work_bytes(self, dtype: DType, size: int) -> int:
        """The bytes of a workspace, of whose size a library says this."""

    def cholesky(self, dtype: DType, size: int, count: int, matrices: int) -> None:
        step = size * size * dtype.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:
            matrix = matrices + number * step
            self._call(LETTERS[dtype], "potrf", self.upper, size, matrix, size, work, length, info)

        needed = self._needed(dtype, "potrf", self.upper, size, matrices, size)
        self._each("cholesky", "Matrix is not positive definite", dtype, needed, count, factor)

    def lu(self, dtype: DType, size: int, count: int, matrices: int, pivots: int) -> None:
        self._each("lu", None, dtype, *self._factored(dtype, size, count, matrices, pivots))

    def solve(self, dtype: DType, size: int, columns: int, count: int, matrices: int, pivots: int, values: int) -> None:
        needed, count, factor = self._factored(dtype, size, count, matrices, pivots)
        rows, step = size * size * dtype.itemsize, columns * size * dtype.itemsize

        def solve(number: int, work: int, length: int, info: int) -> None:
            factor(number, work, length, info)
            matrix, own_pivots = matrices + number * rows, pivots + number * size * DType.I32.itemsize
            place = values + number * step
            # It always succeeds; behind the others there is room for what it says.
            said = info + (count - number) * _INFO_BYTES
            arguments = (self.transposed, size, columns, matrix, size, own_pivots, place, size, said)
            self._call(LETTERS[dtype], "getrs", *arguments)

        self._each("solve", "Singular matrix", dtype, needed, count, solve)

    def qr(self, dtype: DType, rows: int, columns: int, step: int, count: int, matrices: int, factors: int) -> None:
        of_factors = min(rows, columns) * dtype.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:
            place = factors + number * of_factors
            matrix = matrices + number * step
            self._call(LETTERS[dtype], "geqrf", rows, columns, matrix, rows, place, work, length, info)

        needed = self._needed(dtype, "geqrf", rows, columns, matrices, rows)
        self._each("qr", None, dtype, needed, count, factor)

    def orthonormal(
        self, dtype: DType, rows: int, columns: int, reflectors: int, step: int, count: int, matrices: int, factors: int
    ) -> None:
        function = "ungqr" if dtype.is_complex else "orgqr"
        sizes = (rows, columns, reflectors)

        def make(number: int, work: int, length: int, info: int) -> None:
            matrix, place = matrices + number * step, factors + number * reflectors * dtype.itemsize
            self._call(LETTERS[dtype], function, *sizes, matrix, rows, place, work, length, info)

        needed = self._needed(dtype, function, *sizes, matrices, rows, factors)
        self._each("qr", None, dtype, needed, count, make)

    def eigh(self, dtype: DType, size: int, count: int, has_vectors: bool, matrices: int, values: int) -> None:
        function = "heevd" if dtype.is_complex else "syevd"
        kind = (self.vectors[has_vectors], self.lower, size)
        step, of_values = size * size * dtype.itemsize, size * dtype.real.itemsize

        def find(number: int, work: int, length: int, info: int) -> None:
            matrix, place = matrices + number * step, values + number * of_values
            self._call(LETTERS[dtype], function, *kind, matrix, size, place, work, length, info)

        needed = self._needed(dtype, function, *kind, matrices, size, values)
        self._each("eigh", "Eigenvalues did not converge", dtype, needed, count, find)

    def svd(
        self,
        dtype: DType,
        sizes: tuple[int, int, int],
        count: int,
        has_vectors: bool,
        matrices: int,
        left: int,
        values: int,
        right: int,
    ) -> None:
        rows, columns, of_left = sizes
        # All vectors, some of them, or none.
        which = ord(("A" if of_left == rows else "S") if has_vectors else "N")
        item = dtype.itemsize
        steps = (rows * columns * item, columns * dtype.real.itemsize, rows * of_left * item, columns * columns * item)

        def find(number: int, work: int, length: int, info: int) -> None:
            matrix, s, u, v = (
                place + number * step for place, step in zip((matrices, values, left, right), steps, strict=True)
            )
            vectors = (s, u, rows, v, columns)
            self._call(
                LETTERS[dtype], "gesvd", which, which, rows, columns, matrix, rows, *vectors, work, length, 0, info
            )

        needed = self._needed(dtype, "gesvd", rows, columns)
        self._each("svd", "SVD did not converge", dtype, needed, count, find)

    def _factored(
        self, dtype: DType, size: int, count: int, matrices: int, pivots: int
    ) -> tuple[int, int, Callable[[int, int, int, int], None]]:
        step, of_pivots = size * size * dtype.itemsize, size * DType.I32.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:  # noqa: ARG001 - the library knows the length
            matrix, place = matrices + number * step, pivots + number * of_pivots
            self._call(LETTERS[dtype], "getrf", size, size, matrix, size, work, place, info)

        return self._needed(dtype, "getrf", size, size, matrices, size), count, factor

    def _needed(self, dtype: DType, function: str, *arguments: Any) -> int:
        """The size of the workspace of a function, in what the library counts in."""
        with self._lock, self._driver.device.activated():
            return int(self._call(LETTERS[dtype], f"{function}_bufferSize", *arguments))

    def _each(
        self,
        op: str,
        reason: str | None,
        dtype: DType,
        needed: int,
        count: int,
        work_on: Callable[[int, int, int, int], None],
    ) -> None:
        """Work on each of `count` matrices; InvalidArgument with a reason, if there is one, where one has no result."""
        if slow_path.required:
            capture.refuse(self._driver, f"{op}, of which the host reads whether it succeeded", "call it before")
        # One more than there are matrices.
        infos = Slice(self._allocator, (count + 1) * _INFO_BYTES)
        work = Slice(self._allocator, max(self._work_bytes(dtype, needed), 1))
        with self._lock, self._driver.device.activated():
            for number in range(count):
                work_on(number, int(work.address), needed, int(infos.address) + number * _INFO_BYTES)
        if reason is not None:
            found = np.empty(count, np.int32)
            self._driver.copy_to_host(found, infos.address)
            if found.any():
                raise no_result(op, reason)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._driver.label}>"
