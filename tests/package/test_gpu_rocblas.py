"""Matrix products by hipBLAS: what is passed to it, and what comes out."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("hip")

from tallow.dtype import DType
from tallow.rocm_backend.rocblas import RocBlas
from tallow.runtime.backends.gpu_backend.driver.error import Closed, LibraryError
from tallow.runtime.backends.gpu_backend.libraries.matrices import LARGEST_COUNT, Matrices, matrices
from tallow.runtime.base.error import TallowError
from tallow.runtime.core.layout import Layout
from tallow.runtime.core.shape import Shape

from .library_calls import run

DTYPES = [DType.BF16, DType.F16, DType.F32, DType.F64]
NAMES = {"bf16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64"}


def layout(*pairs: tuple[int, int], offset: int = 0) -> Layout:
    """A layout of (size, stride) pairs."""
    return Layout(Shape(size for size, _ in pairs), tuple(stride for _, stride in pairs), offset)


@pytest.mark.parametrize(
    ("given_layout", "expected"),
    [
        (layout((3, 5), (5, 1)), (1000, False, 5, 15)),
        (layout((3, 8), (5, 1), offset=2), (1008, False, 8, 15)),
        (layout((3, 1), (5, 3)), (1000, True, 3, 15)),
        (layout((3, 1), (5, 9)), (1000, True, 9, 15)),
        (layout((7, 15), (3, 5), (5, 1)), (1000, False, 5, 15)),
        (layout((7, 0), (3, 5), (5, 1)), (1000, False, 5, 0)),
        (layout((2, 60), (4, 15), (3, 5), (5, 1)), (1000, False, 5, 15)),
        (layout((2, 0), (4, 0), (3, 5), (5, 1)), (1000, False, 5, 0)),
        (layout((1, 77), (7, 15), (3, 1), (5, 3)), (1000, True, 3, 15)),
        # The stride of a dim of one element is of no matter.
        (layout((1, 0), (5, 1)), (1000, False, 5, 5)),
        (layout((3, 4), (1, 0)), (1000, False, 4, 3)),
        (layout((1, 99), (1, 99)), (1000, False, 1, 1)),
        (layout((1, 0), (5, 2)), (1000, True, 2, 5)),
        (layout((5, 2), (1, 0)), (1000, False, 2, 5)),
        # Neither dim has its elements side by side, or they overlap.
        (layout((3, 10), (5, 2)), None),
        (layout((3, 0), (5, 1)), None),
        (layout((3, 1), (5, 0)), None),
        (layout((3, 1), (5, 1)), None),
        (layout((3, 0), (5, 0)), None),
        # Two steps from matrix to matrix.
        (layout((4, 15), (2, 100), (3, 5), (5, 1)), None),
        # More than the library can count.
        (layout((3, LARGEST_COUNT + 1), (5, 1)), None),
        (layout((LARGEST_COUNT + 1, 1), (1, 1)), None),
    ],
)
def test_layouts_as_matrices(given_layout, expected):
    assert matrices(1000, given_layout, 4) == (None if expected is None else Matrices(*expected))


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(0, 3),
)
def test_matrices_reach_the_elements_of_their_layout(sizes, steps, offset):
    numbers = np.arange(4 * 5 * 4 + offset + 1)
    view = layout(*zip(sizes, steps, strict=False), offset=offset)
    actual = matrices(0, view, 1)
    if actual is None:
        return
    *_, rows, columns = sizes
    elements = np.lib.stride_tricks.as_strided(numbers[offset:], sizes, [8 * step for step in steps[: len(sizes)]])
    for number, matrix in enumerate(elements.reshape(-1, rows, columns)):
        start = actual.address + number * actual.step
        row_step, column_step = (1, actual.leading) if actual.transposed else (actual.leading, 1)
        assert actual.leading >= (rows if actual.transposed else columns)
        for row in range(rows):
            for column in range(columns):
                assert matrix[row, column] == numbers[start + row * row_step + column * column_step]


class Operand:
    """A view of an array, and the same view of a copy on the device."""

    def __init__(self, rocm, base: np.ndarray, view: np.ndarray) -> None:
        self.storage = rocm.storage(base)
        start = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
        strides = tuple(stride // base.itemsize for stride in view.strides)
        self.view = view.astype(np.float64)
        result = matrices(self.storage.memory.address, Layout(Shape(view.shape), strides, start), base.itemsize)
        assert result is not None
        self.matrices = result


def random(dtype: DType, *shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype.numpy)


def multiply(rocm, dtype: DType, lhs: Operand, rhs: Operand) -> np.ndarray:
    *batch, m, k = lhs.view.shape
    n = rhs.view.shape[-1]
    b = int(np.prod(batch))
    result = rocm.empty(dtype, b * m * n)
    run(rocm.hipblas.multiply(dtype, (b, m, n, k), lhs.matrices, rhs.matrices, result.memory.address))
    return result.to_numpy().astype(np.float64).reshape(*batch, m, n)


def check(rocm, host, dtype: DType, lhs: Operand, rhs: Operand) -> dict:
    """The call that a product made, after its result was found right."""
    host.take_log()
    assert (multiply(rocm, dtype, lhs, rhs) == lhs.view @ rhs.view).all()
    (call,) = (call for call in host.take_log() if call["call"] == "hipblasGemmStridedBatchedEx")
    assert (call["alpha"], call["beta"]) == (1, 0)
    assert {call["a"], call["b"], call["c"]} == {dtype.value}
    assert call["compute"] == (7 if dtype is DType.F64 else 2)
    return call


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("lhs_transposed", [False, True])
@pytest.mark.parametrize("rhs_transposed", [False, True])
def test_transposition(rocm, host, dtype, lhs_transposed, rhs_transposed):
    left = random(dtype, *((5, 3) if lhs_transposed else (3, 5)))
    right = random(dtype, *((7, 5) if rhs_transposed else (5, 7)))
    lhs = Operand(rocm, left, left.T if lhs_transposed else left)
    rhs = Operand(rocm, right, right.T if rhs_transposed else right)
    call = check(rocm, host, dtype, lhs, rhs)
    # Columns first: the operands change places.
    assert (call["transpose_a"], call["transpose_b"]) == ("NT"[rhs_transposed], "NT"[lhs_transposed])
    assert (call["m"], call["n"], call["k"], call["batch"]) == (7, 3, 5, 1)
    assert (call["lda"], call["ldb"], call["ldc"]) == (5 if rhs_transposed else 7, 3 if lhs_transposed else 5, 7)


def test_a_batch(rocm, host):
    left, right = random(DType.F32, 4, 3, 5), random(DType.F32, 4, 5, 7)
    call = check(rocm, host, DType.F32, Operand(rocm, left, left), Operand(rocm, right, right))
    assert (call["m"], call["n"], call["k"], call["batch"]) == (7, 3, 5, 4)
    assert (call["stride_a"], call["stride_b"], call["stride_c"]) == (35, 15, 21)


def test_one_matrix_on_the_right_makes_one_product(rocm, host):
    left, right = random(DType.F32, 4, 3, 5), random(DType.F32, 5, 7)
    rhs = Operand(rocm, right, np.broadcast_to(right, (4, 5, 7)))
    call = check(rocm, host, DType.F32, Operand(rocm, left, left), rhs)
    assert (call["m"], call["n"], call["k"], call["batch"]) == (7, 12, 5, 1)


def test_one_matrix_on_the_right_for_matrices_apart(rocm, host):
    left, right = random(DType.F32, 4, 6, 5), random(DType.F32, 5, 7)
    rhs = Operand(rocm, right, np.broadcast_to(right, (4, 5, 7)))
    call = check(rocm, host, DType.F32, Operand(rocm, left, left[:, :3]), rhs)
    assert (call["n"], call["batch"], call["stride_a"], call["stride_b"]) == (3, 4, 0, 30)


def test_one_matrix_on_the_left(rocm, host):
    left, right = random(DType.F32, 3, 5), random(DType.F32, 4, 5, 7)
    lhs = Operand(rocm, left, np.broadcast_to(left, (4, 3, 5)))
    call = check(rocm, host, DType.F32, lhs, Operand(rocm, right, right))
    assert (call["batch"], call["stride_a"], call["stride_b"]) == (4, 35, 0)


def test_parts_of_larger_matrices(rocm, host):
    left, right = random(DType.F16, 6, 9), random(DType.F16, 8, 11)
    call = check(rocm, host, DType.F16, Operand(rocm, left, left[1:4, 2:7]), Operand(rocm, right, right[3:, 4:]))
    assert (call["lda"], call["ldb"]) == (11, 9)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 7), (5, 1, 7), (5, 7, 1), (1, 1, 1), (1, 9, 1), (130, 70, 65)])
def test_thin_matrices(rocm, host, m, k, n):
    left, right = random(DType.F64, m, k), random(DType.F64, k, n)
    check(rocm, host, DType.F64, Operand(rocm, left, left), Operand(rocm, right, right))
    transposed = np.ascontiguousarray(left.T)
    check(rocm, host, DType.F64, Operand(rocm, transposed, transposed.T), Operand(rocm, right, right))


def test_f16_accumulates_in_f32(rocm):
    ones = np.ones((1, 4096), np.float16)
    assert multiply(rocm, DType.F16, Operand(rocm, ones, ones), Operand(rocm, ones, ones.T)).item() == 4096


def test_a_product_that_fails_says_so_and_the_next_one_works(rocm, host):
    left, right = random(DType.F32, 3, 5), random(DType.F32, 5, 7)
    lhs, rhs = Operand(rocm, left, left), Operand(rocm, right, right)
    check(rocm, host, DType.F32, lhs, rhs)
    host.fail("hipblasGemmStridedBatchedEx", 1, 10)
    host.fail("hipblasGemmEx", 1, 10)
    with pytest.raises(LibraryError, match="HIPBLAS_STATUS_INVALID_ENUM; tallow needs hipBLAS 3"):
        multiply(rocm, DType.F32, lhs, rhs)
    check(rocm, host, DType.F32, lhs, rhs)


def test_a_handle_that_fails(rocm, host):
    for call in ("hipblasCreate", "hipblasSetStream"):
        handles = host.live("hipblas handle")
        host.fail(call)
        with pytest.raises(LibraryError, match=call):
            RocBlas.open(rocm.driver, rocm.allocator)
        assert host.live("hipblas handle") == handles


def test_the_handle_has_the_devices_stream_and_is_destroyed(rocm, host):
    handles = host.live("hipblas handle")
    host.take_log()
    blas = RocBlas.open(rocm.driver, rocm.allocator)
    created, set_stream = host.take_log()
    assert (created["call"], set_stream["call"]) == ("hipblasCreate", "hipblasSetStream")
    assert set_stream["stream"] == rocm.driver.stream
    assert host.live("hipblas handle") == handles + 1
    blas.close()
    blas.close()
    assert host.live("hipblas handle") == handles
    with pytest.raises(Closed, match="RocBlas on rocm:0"):
        run(blas.multiply(DType.F32, (1, 1, 1, 1), Matrices(0, False, 1, 1), Matrices(0, False, 1, 1), 0))


def test_without_the_library_there_is_none(rocm, monkeypatch):
    import hip

    with monkeypatch.context() as patch:
        patch.setattr(hip.hipblas, "has_symbol", lambda name: name == "hipblasCreate")
        assert RocBlas.open(rocm.driver, rocm.allocator) is None
    monkeypatch.delattr(hip, "hipblas")
    monkeypatch.setitem(sys.modules, "hip.hipblas", None)
    assert RocBlas.open(rocm.driver, rocm.allocator) is None


def test_threads_share_a_handle(rocm):
    left, right = random(DType.F32, 20, 30), random(DType.F32, 30, 10)
    lhs, rhs = Operand(rocm, left, left), Operand(rocm, right, right)
    wrong: list[TallowError | bool] = []

    def work() -> None:
        for _ in range(10):
            if not (multiply(rocm, DType.F32, lhs, rhs) == lhs.view @ rhs.view).all():
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
