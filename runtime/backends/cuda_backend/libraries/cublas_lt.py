"""Matrix products to which a row is added, in one launch: by cuBLASLt, through nvmath-python."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from .....dtype import DType
from .....kernels.constants import ACCESS_BYTES
from ....base.bounded_cache import BoundedCache
from ....program.program import LibraryCall
from ....program.values import Address, alignment_of
from ...gpu_backend.driver.device import Device, destroy_handle
from ...gpu_backend.driver.resource import release_with
from ...gpu_backend.libraries.library import StreamLibrary
from ...gpu_backend.memory.allocator import Slice
from .binding import Binding, load_optional
from .cublas import ADVICE, KINDS

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.driver.stream import Stream
    from ...gpu_backend.libraries.matrices import Matrices
    from ...gpu_backend.memory.allocator import CachingAllocator

# What cuBLASLt wants on a Hopper GPU; elsewhere it takes less.
_WORKSPACE_BYTES: Final = 32 << 20
# A plan takes cuBLASLt some ten microseconds to make.
_MAX_PLANS: Final = 1024


class _Plan:
    """A plan of cuBLASLt for matrices of some sizes: its descriptors, which are destroyed with it."""

    def __init__(self, library: Any, blas: Any, dtype: DType) -> None:
        types, sums = blas.ComputeType, DType.F64 if dtype is DType.F64 else DType.F32
        compute = types.COMPUTE_64F if sums is DType.F64 else types.COMPUTE_32F
        number = ctypes.c_double if sums is DType.F64 else ctypes.c_float
        self._factors = number(1), number(0)
        self.one, self.zero = map(ctypes.addressof, self._factors)
        self.bias = ctypes.c_uint64()
        self.bias_address = ctypes.addressof(self.bias)
        self.layouts: list[int] = []
        self.nbytes = 0
        """Of workspace."""
        self._algorithm = library.MatmulHeuristicResult(1)
        self.algorithm: int = self._algorithm.ptr
        self.product: int = library.matmul_desc_create(compute, KINDS[sums])
        release_with(self, _destroy_plan, library, self.product, self.layouts)

    def with_algorithm(self) -> Self:
        """The plan, once cuBLASLt has chosen its algorithm."""
        self.nbytes = int(self._algorithm.workspace_size)
        return self


class CuBlasLt(StreamLibrary):
    """A handle of cuBLASLt: see `library.BiasedBlas`."""

    needs = "libcublasLt and the module nvmath: pip install nvmath-python 'cuda-toolkit[cublas]==13.*'"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """CuBLASLt on the stream of a driver; None where nvmath-python or the library is missing."""
        library = load_optional("nvmath.bindings", "cublasLt", "get_version")
        blas = load_optional("nvmath.bindings", "cublas", "get_cudart_version")
        if library is None or blas is None:
            return None
        return cls(library, blas, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, blas: Any, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        super().__init__(device, stream)
        self._binding = Binding("cublasLt", library, library.cuBLASLtError, ADVICE)
        # cuBLASLt takes its names of operations and sums from cuBLAS.
        self._blas = blas
        self._allocator = allocator
        # None of what cuBLASLt does not take.
        self._plans: BoundedCache[object, _Plan | None] = BoundedCache(_MAX_PLANS)
        # Looked up once.
        self._multiply, self._set = library.matmul, library.matmul_desc_set_attribute
        self._bias_pointer = int(library.MatmulDescAttribute.BIAS_POINTER)
        with device.activated():
            self._handle: int = self._binding.call("create")
            release_with(self, destroy_handle, library.destroy, device, self._handle)

    def multiply_and_add(
        self, dtype: DType, mnk: tuple[int, int, int], lhs: Matrices, rhs: Matrices, bias: Address, result: Address
    ) -> LibraryCall | None:
        """A product plus a row. Which algorithm serves it cuBLASLt knows without trying."""
        addresses = lhs.address, rhs.address, bias, result
        # Of rows that are not aligned some algorithms round the sums before they add the bias.
        rows = [row * dtype.itemsize for row in (lhs.leading, rhs.leading, mnk[1])]
        if alignment_of(*addresses, *rows) < ACCESS_BYTES:
            return None
        plan = self._plan(dtype, mnk, lhs[1:3], rhs[1:3])
        return None if plan is None else LibraryCall(self._enqueue, (plan, *addresses))

    def _enqueue(self, plan: _Plan, lhs: int, rhs: int, bias: int, result: int) -> None:
        # The next owner of the workspace works after this in the stream.
        workspace = Slice(self._allocator, plan.nbytes) if plan.nbytes else None
        with self._lock, self._device.activated():
            plan.bias.value = bias
            left, right, target = plan.layouts
            try:
                self._set(plan.product, self._bias_pointer, plan.bias_address, ctypes.sizeof(plan.bias))
                self._multiply(
                    self._handle,
                    plan.product,
                    plan.one,
                    # Columns first, operands are transposed already: the product is that of the transposes, swapped.
                    *(rhs, right, lhs, left),
                    plan.zero,
                    *(result, target, result, target),
                    plan.algorithm,
                    0 if workspace is None else workspace.address,
                    plan.nbytes,
                    int(self._queue.handle),
                )
            except self._binding.refusal as error:
                raise self._binding.refused("matmul", error) from error

    def _plan(
        self, dtype: DType, mnk: tuple[int, int, int], lhs: tuple[bool, int], rhs: tuple[bool, int]
    ) -> _Plan | None:
        key = dtype, mnk, lhs, rhs
        with self._lock, self._device.activated():
            if key in self._plans:
                return self._plans[key]
            return self._plans.put(key, self._new_plan(*key))

    def _new_plan(
        self, dtype: DType, mnk: tuple[int, int, int], lhs: tuple[bool, int], rhs: tuple[bool, int]
    ) -> _Plan | None:
        lt, (m, n, k) = self._binding.module, mnk
        plan = _Plan(lt, self._blas, dtype)
        operations = self._blas.Operation
        for name, (transposed, leading), (rows, columns) in (("TRANSB", lhs, (k, m)), ("TRANSA", rhs, (n, k))):
            self._describe(plan.product, name, ctypes.c_int32(operations.T if transposed else operations.N))
            sizes = (columns, rows) if transposed else (rows, columns)
            plan.layouts.append(self._binding.call("matrix_layout_create", KINDS[dtype], *sizes, leading))
        plan.layouts.append(self._binding.call("matrix_layout_create", KINDS[dtype], n, m, n))
        self._describe(plan.product, "EPILOGUE", ctypes.c_int32(lt.Epilogue.BIAS))
        left, right, target = plan.layouts
        preference = self._binding.call("matmul_preference_create")
        try:
            wanted = {
                "MAX_WORKSPACE_BYTES": ctypes.c_uint64(_WORKSPACE_BYTES),
                # No sum is rounded to a narrower dtype in between.
                "REDUCTION_SCHEME_MASK": ctypes.c_uint32(lt.ReductionScheme.COMPUTE_TYPE),
                **{f"MIN_ALIGNMENT_{name}_BYTES": ctypes.c_uint32(ACCESS_BYTES) for name in "ABCD"},
            }
            for name, value in wanted.items():
                attribute = lt.MatmulPreferenceAttribute[name]
                size = ctypes.sizeof(value)
                self._binding.call(
                    "matmul_preference_set_attribute", preference, attribute, ctypes.addressof(value), size
                )
            count = np.zeros(1, np.int32)
            operands = self._handle, plan.product, right, left, target, target, preference
            try:
                lt.matmul_algo_get_heuristic(*operands, 1, plan.algorithm, count.ctypes.data)
            except lt.cuBLASLtError:
                return None
            return plan.with_algorithm() if count[0] else None
        finally:
            lt.matmul_preference_destroy(preference)

    def _describe(self, product: int, name: str, value: Any) -> None:
        attribute = self._binding.module.MatmulDescAttribute[name]
        self._binding.call(
            "matmul_desc_set_attribute", product, attribute, ctypes.addressof(value), ctypes.sizeof(value)
        )


def _destroy_plan(library: Any, product: int, layouts: list[int]) -> None:
    library.matmul_desc_destroy(product)
    for layout in layouts:
        library.matrix_layout_destroy(layout)
