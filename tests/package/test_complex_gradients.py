"""Gradients of complex numbers and of decompositions: compared with differences by the real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, Tensor
from tallow.gradients.functors import COMPLEX_DERIVATIVES, DERIVATIVES
from tallow.op import BinaryOp, UnaryOp

from .gradcheck import Gradcheck, rand

# Complex numbers have parts of f32 or f64.
_SHORT: Final = ("bf16", "f16")


@pytest.fixture(autouse=True)
def with_complex(device: Device) -> None:
    cells = [it for it in tl.support() if it.backend == device.backend and it.dtype is DType.COMPLEX64]
    if not any(it.status == "supported" for it in cells):
        pytest.skip("the backend has no complex numbers")


def complex_of(parts: Tensor) -> Tensor:
    """Complex numbers whose real and imaginary parts are the halves of a tensor along the first dim."""
    half = parts.shape[0] // 2
    return parts[:half] + parts[half:] * 1j


def parts_of(z: Tensor) -> Tensor:
    """The real and imaginary parts, one after the other; of real numbers themselves."""
    return tl.cat([z.real().flatten(), z.imag().flatten()]) if z.dtype.is_complex else z.flatten()


def check(gradcheck: Gradcheck, function: Callable[..., Tensor], *parts: Tensor, second: bool = True) -> None:
    """Compare gradients of a function of complex numbers, the first and the second ones."""

    def of_parts(*parts: Tensor) -> Tensor:
        return parts_of(function(*map(complex_of, parts)))

    gradcheck(of_parts, *parts, second=second, without=_SHORT)


def of_complex(ops: type[UnaryOp | BinaryOp]) -> list[Any]:
    """The ops of complex numbers that have gradients."""
    return [op for op in ops if DType.COMPLEX64 in op.dtypes and (DERIVATIVES.get(op) or COMPLEX_DERIVATIVES.get(op))]


@pytest.mark.parametrize("op", of_complex(UnaryOp), ids=lambda op: op.value)
def test_functions(op: UnaryOp, gradcheck: Gradcheck) -> None:
    check(gradcheck, lambda z: z._unary(op), rand(4, 3, low=0.2, high=1.4))


@pytest.mark.parametrize("op", of_complex(BinaryOp), ids=lambda op: op.value)
def test_functions_of_two(op: BinaryOp, gradcheck: Gradcheck) -> None:
    x, y = rand(4, 3, low=0.2, high=1.4), rand(2, 3, low=0.3, high=1.2, seed=1)
    check(gradcheck, lambda x, y: x._binary(op, y), x, y)


@pytest.mark.parametrize("power", [2.0, -1.0, 0.5, 0.0, 3.0])
def test_powers(power: float, gradcheck: Gradcheck) -> None:
    check(gradcheck, lambda z: z.powf(power), rand(4, 3, low=0.2, high=1.4))


def test_real_numbers_meet_complex_ones(gradcheck: Gradcheck) -> None:
    z, x = rand(4, 3, low=0.2, high=1.4), rand(2, 3, low=0.2, high=1.4, seed=1)
    gradcheck(lambda z, x: parts_of(complex_of(z) * x + x / complex_of(z)), z, x, without=_SHORT)


@pytest.mark.parametrize(
    "function",
    [
        lambda z, w: z @ w,
        lambda z, w: z.T.conj() @ w.T[:2],
        lambda z, w: (z * w.T).sum(0),
        lambda z, w: z.mean() * w,
        lambda z, w: z.prod(1),
        lambda z, w: w.cumprod(1),
        lambda z, w: w.cumsum(0),
        lambda z, w: tl.cat([z.T, w], 1)[1:, [0, 2, 2]],
        lambda z, w: tl.where(z.real() > 0.5, z, w.T),
        lambda z, w: z.pad([(1, 2)]).flip([1]).triu(),
        lambda z, w: tl.einsum("ij,jk->ki", z, w),
    ],
)  # fmt: skip
def test_methods(function: Callable[..., Tensor], gradcheck: Gradcheck) -> None:
    check(gradcheck, function, rand(4, 3, low=0.2, high=1.4), rand(6, 2, low=0.3, high=1.2, seed=1))


def test_writing_in_place(gradcheck: Gradcheck) -> None:
    def function(z: Tensor, w: Tensor) -> Tensor:
        y = z * 1
        y *= w
        y /= z + w
        return y

    check(gradcheck, function, rand(4, 3, low=0.2, high=1.4), rand(4, 3, low=0.3, high=1.2, seed=1))


@pytest.mark.parametrize("count", [1, 4, 5])
def test_transforms(count: int, gradcheck: Gradcheck) -> None:
    z = rand(4, count)
    check(gradcheck, tl.fft.fft, z)
    check(gradcheck, tl.fft.ifft, z, second=False)
    check(gradcheck, lambda z: tl.fft.irfft(z[:, : count // 2 + 1], n=count), z)
    gradcheck(lambda x: parts_of(tl.fft.rfft(x)), z.reshape(2, 2, count), without=_SHORT)
    gradcheck(lambda x: parts_of(tl.fft.rfftn(x, axes=(1, 0))), z, second=False, without=_SHORT)


def adjoint(x: Tensor) -> Tensor:
    return x.mT.conj() if x.dtype.is_complex else x.mT


def symmetric(x: Tensor) -> Tensor:
    return x + adjoint(x)


def rebuilt(left: Tensor, values: Tensor, right: Tensor) -> Tensor:
    """A product in which the phases of the vectors cancel."""
    return (left[..., :2] * values[..., :2].unsqueeze(-2).to_dtype(left.dtype)) @ right[..., :2, :]


def of_vectors(values: Tensor, vectors: Tensor) -> Tensor:
    return rebuilt(vectors, values, adjoint(vectors))


linalg = tl.linalg
DECOMPOSITIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "cholesky": lambda x: linalg.cholesky(x @ adjoint(x)),
    "det": linalg.det,
    "slogdet": lambda x: linalg.slogdet(x)[1],
    "inv": linalg.inv,
    "eigvalsh": lambda x: linalg.eigvalsh(symmetric(x)),
    "eigh": lambda x: of_vectors(*linalg.eigh(symmetric(x))),
    "eigvals": lambda x: (linalg.eigvals(x) ** 2).sum(-1),
    "eig": lambda x: linalg.eig(x)[1].abs().sqr(),
    "svdvals": linalg.svdvals,
    "values of full svd": lambda x: linalg.svd(x)[1],
    "svd": lambda x: rebuilt(*linalg.svd(x, full_matrices=False)),
    "svd of left vectors": lambda x: of_vectors(*reversed(linalg.svd(x, full_matrices=False)[:2])),
    "qr": lambda x: tl.cat([each.flatten() for each in linalg.qr(x)]),
    "q": lambda x: linalg.qr(x)[0] * 1.0,
    "r": lambda x: linalg.qr(x)[1] * 1.0,
    "pinv": linalg.pinv,
}
_OF_ANY: Final = ("svdvals", "values of full svd", "svd", "svd of left vectors", "qr", "q", "r")
_CASES: Final = [
    *((name, (3, 3)) for name in DECOMPOSITIONS if name != "pinv"),
    *((name, shape) for name in _OF_ANY for shape in ((4, 3), (3, 4))),
    ("pinv", (4, 3)),
]


@pytest.mark.parametrize(("name", "shape"), _CASES, ids=str)
def test_decompositions(name: str, shape: tuple[int, int], gradcheck: Gradcheck) -> None:
    function = DECOMPOSITIONS[name]
    # Far from symmetric, and from equal values.
    spread = Tensor(np.diag([1.0, 2.2, 3.7, 5.5])[: shape[0], : shape[1]], dtype="f64")

    def wide(x: Tensor) -> Tensor:
        return x if x.dtype is DType.F64 else x.to_dtype("f32")

    gradcheck(lambda x: parts_of(function(wide(x))), spread + rand(*shape) * 0.6)
    imaginary = rand(*shape, seed=2) * 0.4
    check(gradcheck, function, tl.cat([spread + rand(*shape, seed=1) * 0.6, imaginary]))


def test_the_sign_of_a_determinant_turns(gradcheck: Gradcheck) -> None:
    check(gradcheck, lambda x: linalg.slogdet(x)[0] * 1.0, tl.cat([Tensor.eye(3, dtype="f64"), rand(3, 3)]))


def test_recorded_gradients_of_determinants_of_many_rows(device: Device) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 9, 9))
    z = tl.Var(Tensor(numbers[0] + 1j * numbers[1], "complex64", device))
    first, recorded = (
        linalg.det(z).abs().backward(create_graph=is_recorded)[z].numpy() for is_recorded in (False, True)
    )
    np.testing.assert_allclose(first, recorded, rtol=1e-4, atol=1e-4 * np.abs(first).max())


def test_the_convention(device: Device) -> None:
    z = tl.Var(Tensor([3 + 4j], device=device))
    assert z.abs().sqr().sum().backward()[z].tolist() == [6 + 8j]
    assert z.real().sum().backward()[z].tolist() == [1]
    assert z.imag().sum().backward()[z].tolist() == [1j]
    assert (z * z).backward(Tensor([1 + 0j], device=device))[z].tolist() == [6 - 8j]
    zeros = tl.Var(Tensor([0j, -0j], device=device))
    for function in (Tensor.abs, Tensor.angle, Tensor.sign):
        assert parts_of(function(zeros)).sum().backward()[zeros].tolist() == [0, 0]


def test_products_of_a_jacobian_and_a_vector(device: Device) -> None:
    point, along = Tensor([1 + 2j, 3 - 1j], device=device), Tensor([1j, 2 + 1j], device=device)
    result, product = tl.jvp(lambda z: z * z, point, along)
    np.testing.assert_allclose(result.numpy(), point.numpy() ** 2, rtol=1e-6)
    np.testing.assert_allclose(product.numpy(), 2 * point.numpy() * along.numpy(), rtol=1e-6)
    _, product = tl.jvp(lambda z: z.abs().sqr(), point, along)
    np.testing.assert_allclose(product.numpy(), 2 * (point.numpy().conj() * along.numpy()).real, rtol=1e-6)


def test_what_is_refused(device: Device) -> None:
    z, x = tl.Var(Tensor([1 + 2j], device=device)), Tensor([1.0, 2.0], device=device)
    with pytest.raises(tl.GradientError, match=r"write x.abs\(\).backward\(\)"):
        (z * z).backward()
    for function in (tl.jacobian(lambda z: z.abs()), tl.hessian(lambda z: z.abs().sum())):
        with pytest.raises(tl.GradientError, match=r"arguments and results are real; make it of real\(\) and imag\(\)"):
            function(z)
    with pytest.raises(tl.GradientError, match="arguments and results are real"):
        tl.jacobian(lambda x: x * 1j)(x)
    tall, singular = tl.Var(Tensor.ones((3, 2), device=device)), tl.Var(Tensor.ones((2, 2), device=device))
    with pytest.raises(tl.GradientError, match=r"svd: .*use full_matrices=False"):
        linalg.svd(tall)[0].sum().backward()
    with pytest.raises(tl.GradientError, match=r"qr: .*use mode='reduced'"):
        linalg.qr(tall, mode="complete")[0].sum().backward()
    with pytest.raises(tl.GradientError, match="slogdet: singular matrices have no gradient; use det"):
        linalg.slogdet(singular)[1].backward()
