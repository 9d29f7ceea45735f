"""Sums of products along dims that are named, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor
from tallow.runtime.base.error import DTypeMismatch, InvalidArgument, ShapeMismatch, TallowError

from .arrays import same
from .gradcheck import Gradcheck, rand


def whole(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Small integers, of which sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_dot_mv_and_vecdot(device: Device, dtype: str) -> None:
    x, y, matrix = whole(5, dtype=dtype), whole(5, seed=1, dtype=dtype), whole(3, 5, seed=2, dtype=dtype)
    left, right, rows = (Tensor(array, device=device) for array in (x, y, matrix))
    same(left.dot(right), np.asarray(x @ y))
    same(rows.mv(left), matrix @ x)
    same(rows.T[1:4].T.mv(left[:3]), matrix[:, 1:4] @ x[:3])
    same(rows.vecdot(right), (matrix * y).sum(-1, dtype=dtype))
    same(rows.vecdot(left[:3].unsqueeze(1), 0), (matrix * x[:3, None]).sum(0, dtype=dtype))
    cube = whole(2, 3, 5, seed=3, dtype=dtype)
    same(Tensor(cube, device=device).vecdot(rows, -2), (cube * matrix).sum(-2, dtype=dtype))
    same(left[:0].dot(right[:0]), np.zeros((), dtype))


@pytest.mark.parametrize("dims", [0, 1, 2, ([0, 1], [2, 0]), (-1, 1), ([], []), ([2, 1], [1, 2])])
def test_tensordot(device: Device, dims: Any) -> None:
    shapes = {2: ((2, 3, 4), (3, 4, 2)), 1: ((2, 3, 4), (4, 3, 2))}
    left, right = shapes.get(dims if isinstance(dims, int) else 0, ((2, 3, 4), (3, 4, 2)))
    if dims == ([2, 1], [1, 2]):
        right = (5, 4, 3)
    x, y = whole(*left), whole(*right, seed=1)
    same(Tensor(x, device=device).tensordot(Tensor(y, device=device), dims), np.tensordot(x, y, dims))


EQUATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((5, 2, 3), (5, 3, 4)),
    "bij,bkj": ((5, 2, 3), (5, 4, 3)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)),
    "ij,jk,kl,lm->": ((2, 3), (3, 4), (4, 2), (2, 5)),
    "i,j->ji": ((2,), (3,)),
    "i,i->": ((4,), (4,)),
    "i,i->i": ((4,), (4,)),
    "i,i": ((1,), (4,)),
    "ii->i": ((3, 3),),
    "ii": ((3, 3),),
    "iji,jj->ij": ((2, 3, 2), (3, 3)),
    "ij->": ((2, 3),),
    "ij->ji": ((2, 3),),
    "ba": ((2, 3),),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
    "...,...": ((2, 3), (3,)),
    "i...,i...->...": ((2, 1, 3), (2, 4, 3)),
    "...i->...": ((2, 3),),
    "b h q d, b h k d -> b h q k": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "ij,kj,lj->ikl": ((2, 3), (4, 3), (1, 3)),
    "ab,cd->": ((2, 3), (4, 5)),
    ",i->i": ((), (3,)),
    "ij,jk->ki": ((0, 3), (3, 4)),
    "ij,jk": ((2, 0), (0, 4)),
    "aBc,cA->AaB": ((2, 3, 4), (4, 5)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(device: Device, equation: str) -> None:
    arrays = [whole(*shape, seed=index) for index, shape in enumerate(EQUATIONS[equation])]
    expected = np.einsum(equation, *arrays)
    same(tl.einsum(equation, *[Tensor(array, device=device) for array in arrays]), np.asarray(expected))
    flipped = [Tensor(array.T, device=device).T for array in arrays]
    same(tl.einsum(equation, *flipped), np.asarray(expected))


def test_einsum_of_integers(device: Device) -> None:
    arrays = [whole(2, 3, dtype="int16"), whole(3, 3, seed=1, dtype="int16")]
    tensors = [Tensor(array, device=device) for array in arrays]
    same(tl.einsum("ij,jj->i", *tensors), np.einsum("ij,jj->i", *arrays))
    same(tl.einsum("ij,kk->i", *tensors), np.einsum("ij,kk->i", *arrays))


def test_an_error_of_a_product_is_that_of_the_equation() -> None:
    with pytest.raises(InvalidArgument, match="einsum: equation must be of type str"):
        tl.einsum(3, Tensor([1.0]))  # type: ignore[arg-type]
    with pytest.raises(DTypeMismatch, match="einsum"):
        tl.einsum("i,i->", Tensor([1j]), Tensor([1]))


def test_gradients(gradcheck: Gradcheck) -> None:
    x, y = rand(2, 3), rand(3, 2, seed=1)
    gradcheck(lambda x, y: tl.einsum("ij,ji->i", x, y), x, y)
    gradcheck(lambda x, y: tl.einsum("ij,jk,kj->", x, y, x), x, y, second=False)
    gradcheck(lambda x: tl.einsum("ii,ij->j", x @ x.T, x), x, second=False)
    gradcheck(lambda x, y: x.tensordot(y, ([0, 1], [1, 0])), x, y)
    gradcheck(lambda x, y: x.vecdot(y.T, 0), x, y)
    gradcheck(lambda x, y: x.mv(y[:, 0]).dot(x[:, 0]), x, y, second=False)
    for p in (1, 2, np.inf):
        gradcheck(lambda x, y, p=p: x.cdist(y.T, p), x, y)


def test_the_gradient_of_a_distance_of_0_is_0(device: Device) -> None:
    x = tl.Var(Tensor([[1.0, 2.0]], device=device))
    assert x.cdist(x.detach()).sum().backward()[x].tolist() == [[0, 0]]


@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_cdist(device: Device, p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    for x, y in (((5, 3), (4, 3)), ((2, 1, 5, 3), (6, 4, 3)), ((0, 3), (4, 3)), ((5, 3), (0, 3)), ((2, 0), (3, 0))):
        arrays = [generator.normal(size=shape).astype("f4") for shape in (x, y)]
        differences = np.abs(arrays[0][..., :, None, :] - arrays[1][..., None, :, :])
        expected = np.linalg.norm(differences, p, -1) if differences.shape[-1] else differences.sum(-1)
        tensors = [Tensor(array, device=device) for array in arrays]
        for elements in (1 << 24, 24):
            monkeypatch.setattr("tallow.runtime.tensor.math.contraction._DIFFERENCES", elements)
            np.testing.assert_allclose(tensors[0].cdist(tensors[1], p).numpy(), expected, rtol=1e-6)
    near = Tensor([[1e4, 1e4], [1e4, 1e4 + 0.0078125]], device=device)
    assert near.cdist(near, p).tolist() == [[0, 0.0078125], [0.0078125, 0]]


REFUSED: dict[str, tuple[type[TallowError], Callable[[Tensor], object]]] = {
    "dot": (ShapeMismatch, lambda x: x.dot(x)),
    "mv": (ShapeMismatch, lambda x: x.mv(x)),
    "vecdot": (ShapeMismatch, lambda x: x.vecdot(x.T)),
    "tensordot": (ShapeMismatch, lambda x: x.tensordot(x, 1)),
    "cdist": (InvalidArgument, lambda x: x.cdist(x, 3)),
    "einsum": (InvalidArgument, lambda x: tl.einsum("ij,jk", x, x)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_what_was_called(device: Device, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error) as caught:
        call(Tensor.zeros((2, 3), device=device))
    assert caught.value.op == name
