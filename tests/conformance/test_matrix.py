"""The support matrix is complete, says nothing twice, and has a test behind every line."""

from __future__ import annotations

from collections import Counter

import pytest
import tallow
from tallow.dtype import DType

from . import matrix
from .handlers import HANDLERS
from .oracle.formats import COMPLEX, NO_ROW, NUMPY

STATUSES = {"supported", "unsupported"}


@pytest.mark.parametrize("backend", matrix.BACKENDS)
def test_every_method_op_and_dtype_has_one_cell(backend):
    actual = Counter(
        (cell.method, cell.op, cell.dtype.value if cell.dtype else None)
        for cell in tallow.support()
        if cell.backend == backend
    )
    expected = matrix.expected_cells()
    missing, surplus = sorted(set(expected) - set(actual), key=str), sorted(set(actual) - set(expected), key=str)
    assert not missing, f"{backend} has no cells {missing[:10]}"
    assert not surplus, f"{backend} has cells of which no test knows: {surplus[:10]}"
    twice = [key for key, count in actual.items() if count > 1]
    assert not twice, f"{backend} has two cells for {twice[:10]}"


def test_every_method_has_an_oracle():
    methods = {*matrix.STORAGE_METHODS, *matrix.BLOCK_METHODS, *matrix.DEVICE_METHODS}
    lacking, unknown = sorted(methods - HANDLERS.keys()), sorted(HANDLERS.keys() - methods)
    assert not lacking, f"write oracles in tests/conformance/oracle for {', '.join(lacking)}"
    assert not unknown, f"the spec has no methods {', '.join(unknown)}"


# In Candle's names, which callers know.
CANDLE_STORAGE_METHODS = [
    "try_clone",
    "device",
    "dtype",
    "const_set",
    "affine",
    "powf",
    "elu",
    "cmp",
    "reduce_op",
    "to_dtype",
    "apply_op1",
    "apply_op2",
    "apply_op3",
    "inplace_op1",
    "inplace_op2",
    "inplace_op3",
    "unary_impl",
    "binary_impl",
    "conv1d",
    "conv_transpose1d",
    "conv2d",
    "conv_transpose2d",
    "avg_pool2d",
    "max_pool2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "where_cond",
    "gather",
    "scatter_set",
    "scatter_add",
    "index_add",
    "index_select",
    "matmul",
    "copy_strided_src",
    "copy2d",
    "upsample_bilinear2d",
]
CANDLE_DEVICE_METHODS = [
    "set_seed",
    "rand_uniform_f64",
    "rand_normal_f64",
    "zeros",
    "alloc_uninit",
    "storage_from_slice",
    "storage",
    "storage_owned",
    "synchronize",
    "get_current_seed",
]


def test_the_methods_of_candle_are_there():
    assert len(CANDLE_STORAGE_METHODS) == 36
    assert set(CANDLE_STORAGE_METHODS) <= set(matrix.STORAGE_METHODS)
    assert set(CANDLE_DEVICE_METHODS) <= set(matrix.DEVICE_METHODS)
    assert set(matrix.STORAGE_METHODS).isdisjoint(matrix.DEVICE_METHODS)
    assert set(matrix.DTYPES) >= set(NUMPY) - set(COMPLEX)


def test_every_storage_and_device_method_exists():
    for method in matrix.STORAGE_METHODS:
        assert hasattr(tallow.Storage, method), f"Storage has no {method}"
    for method in matrix.DEVICE_METHODS:
        assert hasattr(tallow.Device, method), f"Device has no {method}"


def test_every_cell_explains_itself():
    for cell in tallow.support():
        assert cell.status in STATUSES, cell
        assert (cell.reason is None) == (cell.status == "supported"), f"a reason if and only if it is needed: {cell}"
        assert (cell.via is None) == (cell.status == "unsupported"), f"what does it, unless nothing does: {cell}"


def test_cpu_supports_all_that_the_spec_has():
    expected = matrix.expected_cells()
    for cell in tallow.support():
        if cell.backend == "cpu":
            lacks = cell.method in (*matrix.GPU_METHODS, *matrix.JOINED_METHODS)
            lacks |= not expected[cell.method, cell.op, cell.dtype and cell.dtype.value]
            assert cell.status == ("unsupported" if lacks else "supported"), cell


@pytest.mark.parametrize("name", matrix.DTYPES)
def test_the_oracle_and_the_package_agree_on_the_numpy_dtype(name):
    dtype = DType(name)
    assert dtype.numpy == NUMPY[name]
    assert DType.from_numpy(NUMPY[name]) is dtype
    assert dtype.index_mark == NO_ROW.get(name)
