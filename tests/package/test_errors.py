"""Every error carries its facts, says how to mend it, and survives pickling."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import tallow
from tallow import DType, InvalidArgument, InvalidIndex, Layout, Shape, Tensor

ERRORS = [
    (tallow.BackendUnavailable("rocm", "run pip install hip-python"), RuntimeError, "pip install"),
    (tallow.UnsupportedDType("exp", DType.I32, "cpu", "convert first"), TypeError, "exp: i32 .* on cpu: convert first"),
    (
        tallow.DTypeMismatch("add", (DType.F32, DType.F16)),
        TypeError,
        "f32 and f16 do not go together; convert them with",
    ),
    (tallow.DeviceMismatch("add", ("cpu", "rocm:0")), ValueError, "not cpu, rocm:0; move them with to"),
    (tallow.ShapeMismatch("add", (Shape((2,)), Shape((3,))), "reshape one"), ValueError, r"\(2,\), \(3,\): reshape"),
    (tallow.InvalidLayout("add", Layout.contiguous((2, 3), 4), 6), ValueError, "at least 10 elements"),
    (tallow.InvalidArgument("rand", "use 1"), ValueError, "rand: use 1"),
    (
        tallow.DTypeMismatch("add", (DType.F32,), "1j is no real number"),
        TypeError,
        "add: 1j is no real number; convert",
    ),
    (tallow.FileFormatError("load", "path 'x': get it again"), ValueError, "load: path 'x': get it again"),
    (tallow.UnsupportedOperand("add", "use Tensor()"), TypeError, r"add: use Tensor\(\)"),
    (tallow.UnsizedTensor("len", "use item()"), TypeError, r"len: use item\(\)"),
    (tallow.InvalidDim("squeeze", "use 1"), IndexError, "squeeze: use 1"),
    (tallow.IndexMismatch("index", (Shape((2,)), Shape((3,))), "use 2"), IndexError, r"\(2,\), \(3,\): use 2"),
    (tallow.InvalidIndex("gather", 7, 5), IndexError, "index 7 is out of range; use one from 0 to 4"),
    (tallow.InvalidIndex("gather", 0, 0), IndexError, "no elements"),
    (tallow.EmptyTensor("max"), ValueError, "no max of no elements; reduce dims"),
    (tallow.OutOfMemory("rocm:0", 1024), MemoryError, "rocm:0: no memory for 1024 bytes"),
    (tallow.FileError("save", "a/b", errno.ENOSPC, "make room"), OSError, "save: path 'a/b': No space .*; make room"),
    (tallow.MissingFile("load", "x", errno.ENOENT, "make it"), FileNotFoundError, "load: path .x.: No such file"),
    (tallow.MissingPackage("Tokenizer", "tokenizers"), ImportError, "pip install tokenizers"),
]


@pytest.mark.parametrize(("error", "builtin", "message"), ERRORS, ids=lambda value: type(value).__name__)
def test_errors(error: tallow.TallowError, builtin: type[Exception], message: str) -> None:
    assert isinstance(error, tallow.TallowError)
    assert isinstance(error, builtin)
    with pytest.raises(type(error), match=message):
        raise error
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.gather([[0]], 0), "gather: indexes must be a Tensor, not of type list"),
        (lambda x: x.index_select(np.array([0]), 0), "index_select: indexes must be a Tensor, not of type ndarray"),
        (lambda x: x.scatter(x, [1], 0), "^scatter: source must be a Tensor"),
        (lambda x: x.scatter_(x, x, 7), "^scatter_: dim 7 does not exist"),
        (lambda x: x.scatter_add(x, 1, 0), "^scatter_add: source must be a Tensor"),
        (lambda x: x.scatter_add_(Tensor([[9]]), Tensor([[1.0]]), 0), "^scatter_add_: index 9 is out of range"),
        (lambda x: x.fill_(x), "^fill_: value must be a Python number, not of type Tensor"),
        (lambda x: Tensor.from_numpy(np.zeros(2, np.longdouble)), "^from_numpy: no dtype for .*; convert the array"),
        (lambda x: Tensor(np.zeros(2, np.longdouble)), "^tensor: no dtype for .*; convert the array"),
        (lambda x: Tensor(np.zeros((1,) * 9)), "^tensor: a tensor has at most 8 dims"),
        (lambda x: x.index_add(x, 1, 0), "index_add: source must be a Tensor"),
        (lambda x: x.matmul([[1.0]]), "matmul: other is a list, .*; use Tensor"),
        (lambda x: x.conv1d(2), "conv1d: kernel must be a Tensor"),
        (lambda x: tallow.cat([x, [1.0]]), r"cat: tensors\[1\] must be a Tensor"),
        (lambda x: x.maximum("a"), "maximum: other must be a Tensor or a Python number, not of type str"),
        (lambda x: x.to(0), "0 is no device; use Device.parse"),
    ],
)
def test_arguments_of_other_kinds(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidIndex), match=message):
        call(Tensor([[1.0, 2.0]]))
