"""Decompositions as cuSOLVER and hipSOLVER take them: the dense functions of the second are named after the first's.

A call overwrites matrices, columns first. The functions for many small matrices, some of which are cuBLAS's or
hipBLAS's, take one call. The others are for one matrix: calls follow each other in the stream, with one workspace. The
host reads at the end whether there are results.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .....dtype import DType
from ....host.linalg import no_result
from ..driver import capture, slow_path
from ..memory.allocator import Slice
from .library import Library

if TYPE_CHECKING:
    from ..driver.gpu_driver import GpuDriver
    from ..memory.allocator import CachingAllocator

# The letters of LAPACK.
LETTERS: Final = {DType.F32: "S", DType.F64: "D", DType.COMPLEX64: "C", DType.COMPLEX128: "Z"}
_INFO_BYTES: Final = 4
_SINGULAR: Final = "Singular matrix"
# Larger matrices, or few of them, keep a device busy one by one, and the functions for several take longer.
_LARGEST_OF_MANY: Final = 512
_LARGEST_FOR_EACH: Final = 16
# What the libraries take in one call.
_LARGEST_OF_MANY_SVD: Final = 32

WorkOnAll: TypeAlias = Callable[[int, int], None]
"""Enqueues work, with a workspace, and where each matrix has a number that is not 0 where it has no result."""


def are_many(count: int, size: int) -> bool:
    """Whether matrices are worked on by one call, where there is a function for that."""
    return count > 1 and size <= min(_LARGEST_OF_MANY, _LARGEST_FOR_EACH * count)


def are_few_columns(count: int, size: int) -> bool:
    """Whether one call finds singular values of matrices: then left vectors are those of square matrices."""
    return count > 1 and size <= _LARGEST_OF_MANY_SVD


class SolverLibrary(Library, ABC):
    """A handle of a library, of one device and stream, which decomposes matrices.

    Runs of programs call its methods, since only then the library can report how much memory it needs. Each takes
    `count` consecutive matrices in column-major order, which are overwritten. Where one call is to work on all of
    them, `pointers` is the address of their addresses, elsewhere 0. What may find no result waits for the device, and
    raises InvalidArgument. Raises LibraryError.
    """

    without = "NumPy's LAPACK does its work on the host"
    lower: Any
    """The number of a lower triangle."""
    upper: Any
    """That of an upper triangle."""
    transposed: Any
    """That of an operation on the transposed matrix."""
    vectors: tuple[Any, Any]
    """Those of eigenvalues alone, and of eigenvectors too."""
    kinds: dict[DType, Any]
    """Those of dtypes."""
    finds_many: bool
    """Whether there is the function for eigenvalues of several matrices."""

    def __init__(self, driver: GpuDriver, allocator: CachingAllocator) -> None:
        self._driver = driver
        self._allocator = allocator
        # A handle serves one thread at a time.
        self._lock = threading.Lock()
        self._jacobi: Any = None
        """The settings of Jacobi's method: the accuracy of the dtype, values in order."""
        self._params: Any = None
        """Those of the functions that take dtypes as numbers."""

    @abstractmethod
    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        """Call a function of the solver, such as "potrf", for a type, with the handle."""

    @abstractmethod
    def _call_blas(self, letter: str, function: str, *arguments: Any) -> None:
        """Call a function for several matrices, such as "getrfBatched", of the library of products."""

    @abstractmethod
    def _work_bytes(self, dtype: DType, size: int) -> int:
        """The bytes of a workspace, of whose size a library says this."""

    def cholesky(self, dtype: DType, size: int, count: int, matrices: int, pointers: int) -> None:
        """Find the upper triangles U with U^H U = x; what is below them is left."""
        step = size * size * dtype.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:
            matrix = matrices + number * step
            self._call(LETTERS[dtype], "potrf", self.upper, size, matrix, size, work, length, info)

        def factor_all(work: int, infos: int) -> None:  # noqa: ARG001 - the library has its own
            self._call(LETTERS[dtype], "potrfBatched", self.upper, size, pointers, size, infos, count)

        reason = "Matrix is not positive definite"
        if pointers:
            self._at_once("cholesky", reason, 0, count, factor_all)
        else:
            needed = self._needed(dtype, "potrf", self.upper, size, matrices, size)
            self._each("cholesky", reason, dtype, needed, count, factor)

    def lu(self, dtype: DType, size: int, count: int, matrices: int, pivots: int, pointers: int) -> None:
        """Enqueue decompositions P L U, and i32 row exchanges, counted from 1."""
        if pointers:
            self._at_once("lu", None, 0, count, self._all_factored(dtype, size, count, pivots, pointers))
        else:
            self._each("lu", None, dtype, *self._factored(dtype, size, count, matrices, pivots))

    def solve(
        self,
        dtype: DType,
        size: int,
        columns: int,
        count: int,
        matrices: int,
        pivots: int,
        values: int,
        pointers: int,
        value_pointers: int,
    ) -> None:
        """Replace `values` by the columns X for which transposed matrix times X is `values`."""
        if pointers:
            factor_all = self._all_factored(dtype, size, count, pivots, pointers)
            refused = np.empty(1, np.int32)  # says whether an argument is invalid, as the status does too

            def solve_all(work: int, infos: int) -> None:
                factor_all(work, infos)
                operands = (pointers, size, pivots, value_pointers, size, refused.ctypes.data, count)
                self._call_blas(LETTERS[dtype], "getrsBatched", self.transposed, size, columns, *operands)

            self._at_once("solve", _SINGULAR, 0, count, solve_all)
            return
        needed, count, factor = self._factored(dtype, size, count, matrices, pivots)
        rows, step = size * size * dtype.itemsize, columns * size * dtype.itemsize

        def solve(number: int, work: int, length: int, info: int) -> None:
            factor(number, work, length, info)
            matrix, own_pivots = matrices + number * rows, pivots + number * size * DType.I32.itemsize
            target = values + number * step
            # It always succeeds; after the others there is space for its status.
            said = info + (count - number) * _INFO_BYTES
            arguments = (self.transposed, size, columns, matrix, size, own_pivots, target, size, said)
            self._call(LETTERS[dtype], "getrs", *arguments)

        self._each("solve", _SINGULAR, dtype, needed, count, solve)

    def qr(
        self,
        dtype: DType,
        rows: int,
        columns: int,
        step: int,
        count: int,
        matrices: int,
        factors: int,
        pointers: int,
        factor_pointers: int,
    ) -> None:
        """Enqueue decompositions of matrices, `step` bytes from one to the next: upper triangles, and reflectors."""
        if pointers:
            refused = np.empty(1, np.int32)
            operands = (pointers, rows, factor_pointers, refused.ctypes.data, count)

            def factor_all(work: int, infos: int) -> None:  # noqa: ARG001 - the library has its own
                self._call_blas(LETTERS[dtype], "geqrfBatched", rows, columns, *operands)

            self._at_once("qr", None, 0, count, factor_all)
            return
        of_factors = min(rows, columns) * dtype.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:
            scales = factors + number * of_factors
            matrix = matrices + number * step
            self._call(LETTERS[dtype], "geqrf", rows, columns, matrix, rows, scales, work, length, info)

        needed = self._needed(dtype, "geqrf", rows, columns, matrices, rows)
        self._each("qr", None, dtype, needed, count, factor)

    def orthonormal(
        self, dtype: DType, rows: int, columns: int, reflectors: int, step: int, count: int, matrices: int, factors: int
    ) -> None:
        """Enqueue the making of orthonormal columns of the reflectors that `qr` left."""
        function = "ungqr" if dtype.is_complex else "orgqr"
        sizes = (rows, columns, reflectors)

        def make(number: int, work: int, length: int, info: int) -> None:
            matrix, scales = matrices + number * step, factors + number * reflectors * dtype.itemsize
            self._call(LETTERS[dtype], function, *sizes, matrix, rows, scales, work, length, info)

        needed = self._needed(dtype, function, *sizes, matrices, rows, factors)
        self._each("qr", None, dtype, needed, count, make)

    def eigh(self, dtype: DType, size: int, count: int, has_vectors: bool, matrices: int, values: int) -> None:
        """Compute eigenvalues of Hermitian matrices from their lower triangles, and replace these by eigenvectors."""
        kind = (self.vectors[has_vectors], self.lower, size)
        reason = "Eigenvalues did not converge"
        if are_many(count, size) and self.finds_many:
            own, real = self.kinds[dtype], self.kinds[dtype.real]
            operands = (self._params, *kind, own, matrices, size, real, values, own)
            with self._lock, self._driver.device.activated():
                on_device, on_host = self._call("X", "syevBatched_bufferSize", *operands, count)
            host_work = np.empty(max(on_host, 1), np.uint8)

            def find_all(work: int, infos: int) -> None:
                works = (work, on_device, host_work.ctypes.data, on_host)
                self._call("X", "syevBatched", *operands, *works, infos, count)

            self._at_once("eigh", reason, on_device, count, find_all)
            return
        function = "heevd" if dtype.is_complex else "syevd"
        step, of_values = size * size * dtype.itemsize, size * dtype.real.itemsize

        def find(number: int, work: int, length: int, info: int) -> None:
            matrix, eigenvalues = matrices + number * step, values + number * of_values
            self._call(LETTERS[dtype], function, *kind, matrix, size, eigenvalues, work, length, info)

        needed = self._needed(dtype, function, *kind, matrices, size, values)
        self._each("eigh", reason, dtype, needed, count, find)

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
        infos: int,
    ) -> None:
        """Enqueue singular values of matrices with no fewer rows than columns: `sizes` are both, and the left vectors.

        Both kinds of vectors are columns, whose memory is needed even if they are not requested. An i32 of `infos`
        is not 0 if the algorithm did not converge for a matrix.
        """
        rows, columns, of_left = sizes
        kind, vectors = self.vectors[has_vectors], (matrices, rows, values, left, rows, right, columns)
        if are_few_columns(count, rows):
            sizes_and_vectors = (kind, rows, columns, *vectors)
            needed = self._needed(dtype, "gesvdjBatched", *sizes_and_vectors, self._jacobi, count)

            def find_all(work: int, infos: int) -> None:
                arguments = (*sizes_and_vectors, work, needed, infos, self._jacobi, count)
                self._call(LETTERS[dtype], "gesvdjBatched", *arguments)

            self._work_on(self._work_bytes(dtype, needed), infos, find_all)
            return
        item = dtype.itemsize
        steps = (rows * columns * item, columns * dtype.real.itemsize, rows * of_left * item, columns * columns * item)
        begin = (kind, int(of_left < rows), rows, columns)

        def find(number: int, work: int, length: int, info: int) -> None:
            matrix, s, u, v = (
                address + number * step for address, step in zip((matrices, values, left, right), steps, strict=True)
            )
            operands = (matrix, rows, s, u, rows, v, columns)
            self._call(LETTERS[dtype], "gesvdj", *begin, *operands, work, length, info, self._jacobi)

        needed = self._needed(dtype, "gesvdj", *begin, *vectors, self._jacobi)
        self._work_on(self._work_bytes(dtype, needed), infos, self._one_by_one(needed, count, find))

    def _factored(
        self, dtype: DType, size: int, count: int, matrices: int, pivots: int
    ) -> tuple[int, int, Callable[[int, int, int, int], None]]:
        step, of_pivots = size * size * dtype.itemsize, size * DType.I32.itemsize

        def factor(number: int, work: int, length: int, info: int) -> None:  # noqa: ARG001 - the library knows the length
            matrix, pivot = matrices + number * step, pivots + number * of_pivots
            self._call(LETTERS[dtype], "getrf", size, size, matrix, size, work, pivot, info)

        return self._needed(dtype, "getrf", size, size, matrices, size), count, factor

    def _all_factored(self, dtype: DType, size: int, count: int, pivots: int, pointers: int) -> WorkOnAll:
        def factor_all(work: int, infos: int) -> None:  # noqa: ARG001 - the library has its own
            self._call_blas(LETTERS[dtype], "getrfBatched", size, pointers, size, pivots, infos, count)

        return factor_all

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
        """Work on one of `count` matrices after the other: see `_at_once`."""
        # There is space for the status of one more matrix.
        work_on_all = self._one_by_one(needed, count, work_on)
        self._at_once(op, reason, self._work_bytes(dtype, needed), count, work_on_all)

    def _one_by_one(self, needed: int, count: int, work_on: Callable[[int, int, int, int], None]) -> WorkOnAll:
        def work_on_all(work: int, infos: int) -> None:
            for number in range(count):
                work_on(number, work, needed, infos + number * _INFO_BYTES)

        return work_on_all

    def _at_once(self, op: str, reason: str | None, nbytes: int, count: int, work_on_all: WorkOnAll) -> None:
        """Work on `count` matrices; InvalidArgument with a reason, if there is one, where one has no result."""
        if slow_path.required:
            capture.refuse(self._driver, f"{op}, of which the host reads whether it succeeded", "call it before")
        infos = Slice(self._allocator, (count + 1) * _INFO_BYTES)
        self._work_on(nbytes, infos.address, work_on_all)
        if reason is not None:
            failures = np.empty(count, np.int32)
            self._driver.copy_to_host(failures, infos.address)
            if failures.any():
                raise no_result(op, reason)

    def _work_on(self, nbytes: int, infos: int, work_on_all: WorkOnAll) -> None:
        work = Slice(self._allocator, max(nbytes, 1))
        with self._lock, self._driver.device.activated():
            work_on_all(work.address, infos)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._driver.label}>"
