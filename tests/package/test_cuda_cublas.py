"""Matrix products by cuBLAS: what is passed to it, and what comes of it where it fails or is missing."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from tallow.dtype import DType

pytest.importorskip("cuda.bindings")

from tallow.runtime.backends.cuda_backend.libraries.cublas import CuBlas
from tallow.runtime.backends.gpu_backend.driver import slow_path
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.libraries.matrices import LARGEST_COUNT, Matrices
from tallow.runtime.backends.gpu_backend.memory.allocator import CachingAllocator

from .library_calls import run
from .test_gpu_allocator import Memory

NOTHING = Matrices(0, False, 1, 1)


class Context:
    """A context that counts how often it is made current."""

    label = "cuda:0"

    def __init__(self) -> None:
        self.depth = 0
        self.entered = 0

    @contextlib.contextmanager
    def activated(self):
        self.depth += 1
        self.entered += 1
        yield
        self.depth -= 1


class CuBlasError(Exception):
    """As nvmath-python's."""


class Library(ModuleType):
    """nvmath-python's module: what it is called with, and in which context."""

    Math = IntEnum("Math", {"DEFAULT_MATH": 0, "DISALLOW_REDUCED_PRECISION_REDUCTION": 16})
    AtomicsMode = IntEnum("AtomicsMode", {"NOT_ALLOWED": 0, "ALLOWED": 1})
    ComputeType = IntEnum("ComputeType", {"COMPUTE_32F": 68, "COMPUTE_64F": 70, "COMPUTE_32F_FAST_TF32": 77})
    Operation = IntEnum("Operation", {"N": 0, "T": 1})
    cuBLASError = CuBlasError  # noqa: N815 - nvmath-python's own name

    def __init__(self, context: Context) -> None:
        super().__init__("nvmath.bindings.cublas")
        self.calls: list[tuple] = []
        self.context = context
        self.failing = ""

    def _call(self, name, *arguments):
        assert self.context.depth or name == "get_cudart_version"
        self.calls.append((name, *arguments))
        if name == self.failing:
            raise CuBlasError("NOT_INITIALIZED (1)")
        return 77 if name == "create" else None

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, *arguments)


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def library(context, monkeypatch):
    library = Library(context)
    bindings = SimpleNamespace(cublas=library)
    for name, module in (("nvmath", SimpleNamespace(bindings=bindings)), ("nvmath.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", library)
    return library


def open_blas(context: Context, stream: int = 0) -> CuBlas | None:
    """CuBLAS on the stream of a driver."""
    return CuBlas.open(SimpleNamespace(device=context, queue=queue(stream)), CachingAllocator(Memory()))


def queue(stream: int) -> SimpleNamespace:
    """A stream as far as a library needs it."""
    return SimpleNamespace(handle=stream, own_handle=stream)


def test_a_handle_is_made_exact_and_given_back(context, library):
    blas = open_blas(context, 1234)
    assert library.calls == [
        ("get_cudart_version",),
        ("create",),
        ("set_stream", 77, 1234),
        ("set_workspace", 77, 256, 32 << 20),
        ("set_math_mode", 77, 16),
        ("set_atomics_mode", 77, 0),
    ]
    library.calls.clear()
    del blas
    gc.collect()
    assert library.calls == [("destroy", 77)]


@pytest.mark.parametrize(
    ("dtype", "result", "kind", "result_kind", "compute", "factor"),
    [
        (DType.BF16, None, 14, 14, 68, ctypes.c_float),
        (DType.BF16, DType.F32, 14, 0, 68, ctypes.c_float),
        (DType.F16, None, 2, 2, 68, ctypes.c_float),
        (DType.F32, None, 0, 0, 68, ctypes.c_float),
        (DType.F64, None, 1, 1, 70, ctypes.c_double),
    ],
)
def test_a_product(context, library, dtype, result, kind, result_kind, compute, factor):
    blas = open_blas(context, 1234)
    library.calls.clear()
    run(
        blas.multiply(
            dtype, (2, 3, 5, 7), Matrices(1000, False, 7, 21), Matrices(2000, True, 8, 40), 3000, False, result
        )
    )
    ((name, handle, *arguments),) = library.calls
    assert (name, handle) == ("gemm_strided_batched_ex", 77)
    alpha, beta = arguments.pop(5), arguments.pop(13)
    assert [factor.from_address(address).value for address in (alpha, beta)] == [1, 0]
    # The transpose of the result: of the right side's transpose, which lies there, and the left side's.
    assert arguments == [1, 0, 5, 3, 7, 2000, kind, 8, 40, 1000, kind, 7, 21, 3000, result_kind, 5, 15, 2, compute, -1]


@pytest.mark.parametrize(
    ("b", "lhs", "folded"),
    [
        (4, Matrices(0, False, 7, 21), True),
        (4, Matrices(0, False, 8, 24), True),
        (4, Matrices(0, False, 7, 22), False),
        (4, Matrices(0, True, 3, 21), False),
        (LARGEST_COUNT // 2, Matrices(0, False, 7, 21), False),
    ],
)
def test_one_matrix_on_the_right_makes_one_product(context, library, b, lhs, folded):
    blas = open_blas(context)
    library.calls.clear()
    run(blas.multiply(DType.F32, (b, 3, 5, 7), lhs, Matrices(0, False, 5, 0), 0))
    arguments = library.calls[0][2:]
    assert (arguments[3], arguments[19]) == ((b * 3, 1) if folded else (3, b))


@pytest.mark.parametrize("call", ["create", "set_stream", "set_workspace", "set_math_mode", "set_atomics_mode"])
def test_a_handle_that_fails(context, library, call):
    library.failing = call
    with pytest.raises(LibraryError, match=rf"cublas {call}: NOT_INITIALIZED \(1\); tallow needs cuBLAS 12"):
        CuBlas(library, context, queue(0), CachingAllocator(Memory()))
    gc.collect()
    result = call != "create"
    assert (("destroy", 77) in library.calls) == result


def test_a_product_that_fails(context, library):
    blas = open_blas(context)
    library.failing = "gemm_strided_batched_ex"
    with pytest.raises(LibraryError, match="cublas gemm_strided_batched_ex"):
        run(blas.multiply(DType.F32, (1, 1, 1, 1), NOTHING, NOTHING, 0))
    library.failing = ""
    run(blas.multiply(DType.F32, (1, 1, 1, 1), NOTHING, NOTHING, 0))


def test_a_product_of_a_capture_goes_into_its_stream(context, library, monkeypatch):
    blas = open_blas(context, 1234)
    library.calls.clear()
    blas._queue.handle = 5678
    monkeypatch.setattr(slow_path, "required", True)
    run(blas.multiply(DType.F32, (1, 1, 1, 1), NOTHING, NOTHING, 0))
    to, workspace, product, *back = [call[:1] + call[2:] for call in library.calls]
    assert (to, workspace) == (("set_stream", 5678), ("set_workspace", 256, 32 << 20))
    assert product[0] == "gemm_strided_batched_ex"
    assert back == [("set_stream", 1234), ("set_workspace", 256, 32 << 20)]


def test_without_the_package_there_is_none(context, monkeypatch):
    for name in ("nvmath", "nvmath.bindings", "nvmath.bindings.cublas"):
        monkeypatch.setitem(sys.modules, name, None)
    assert open_blas(context) is None


def test_without_the_library_there_is_none(context, library):
    def missing():
        raise RuntimeError("Failed to dlopen libcublas.so.13")

    library.get_cudart_version = missing
    assert open_blas(context) is None


def test_products_on_a_gpu(gpu):
    """On the device itself: every way to lay out the operands gives what NumPy does."""
    blas = getattr(gpu, "cublas", None)
    if blas is None:
        pytest.skip("no cuBLAS")
    generator = np.random.default_rng(4)
    for dtype, tolerance in ((DType.F64, 1e-13), (DType.F32, 1e-5), (DType.F16, 2e-3), (DType.BF16, 2e-2)):
        for b, m, n, k in ((1, 1, 1, 1), (1, 3, 5, 7), (4, 33, 65, 17), (2, 128, 64, 256)):
            left = generator.standard_normal((b, m, k)).astype(dtype.numpy)
            right = generator.standard_normal((b, k, n)).astype(dtype.numpy)
            expected = left.astype(np.float64) @ right.astype(np.float64)
            lhs = {False: Matrices(0, False, k, m * k), True: Matrices(0, True, m, m * k)}
            rhs = {False: Matrices(0, False, n, k * n), True: Matrices(0, True, k, k * n)}
            for left_is_transposed in (False, True):
                for right_is_transposed in (False, True):
                    stored = [
                        gpu.storage(array.swapaxes(1, 2) if swapped else array)
                        for array, swapped in ((left, left_is_transposed), (right, right_is_transposed))
                    ]
                    result = gpu.empty(dtype, b * m * n)
                    run(
                        blas.multiply(
                            dtype,
                            (b, m, n, k),
                            lhs[left_is_transposed]._replace(address=stored[0].memory.address),
                            rhs[right_is_transposed]._replace(address=stored[1].memory.address),
                            result.memory.address,
                        )
                    )
                    actual = result.to_numpy().astype(np.float64).reshape(b, m, n)
                    assert np.abs(actual - expected).max() <= tolerance * np.sqrt(k) * 4
