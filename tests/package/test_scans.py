"""Scans: their gradients, and that the bits of a line depend on the line alone. The oracle tests their results."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import own_spec
import pytest
from tallow import Device, Tensor, Var

from .gradcheck import Gradcheck, rand

if TYPE_CHECKING:
    from opgen.model.functors import Functor

SCANS = own_spec.read().scans
FLOATS = {*own_spec.read().groups["float"]}


def directions(functor: Functor) -> list[dict[str, bool]]:
    options = ("reverse",) if functor.needs_elements else ("reverse", "exclusive")
    return [dict(zip(options, each, strict=True)) for each in itertools.product((False, True), repeat=len(options))]


def scanned(functor: Functor, x: Tensor, dim: int, **direction: bool) -> Tensor:
    """The results of a scan, where they are numbers."""
    results = getattr(x, functor.name)(dim, **direction)
    values: Tensor = results[0] if functor.positions else results
    return values.isinf().where(0.0, values) if values.dtype.is_float else values


OF_FLOATS = [it for it in SCANS if it.keeps_kind and FLOATS & {*own_spec.read().resolve(it.dtypes)}]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("functor", OF_FLOATS, ids=lambda functor: functor.name)
def test_gradients_are_slopes_to_the_second_order(functor: Functor, dim: int, gradcheck: Gradcheck) -> None:
    for direction in directions(functor):
        gradcheck(lambda x, direction=direction: scanned(functor, x, dim, **direction) * x, rand(3, 4))


def test_gradients_of_products_at_zeros_are_those_of_the_other_factors() -> None:
    x = Var(Tensor([2.0, 0.0, 3.0, 0.0], dtype="f64"))
    for options, expected in (
        ({}, [1, 2 + 6, 0, 0]),
        ({"exclusive": True}, [1, 2 + 6, 0, 0]),
        ({"reverse": True}, [0, 0, 0, 1 + 3]),
    ):
        grads = x.cumprod(0, **options).sum().backward()
        assert grads[x].tolist() == expected, options


@pytest.mark.parametrize("functor", [it for it in OF_FLOATS if not it.needs_elements], ids=lambda functor: functor.name)
def test_an_element_of_no_result_takes_no_part_in_gradients(functor: Functor) -> None:
    for length, reverse in itertools.product((1, 2, 5), (False, True)):
        values = np.arange(1.0, length + 1)
        last = 0 if reverse else -1

        def slopes(last_value: float, values: np.ndarray = values, last: int = last, reverse: bool = reverse) -> Tensor:
            values[last] = last_value
            x = Var(Tensor(values))
            return scanned(functor, x, 0, reverse=reverse, exclusive=True).sum().backward()[x]

        expected = slopes(2.0)
        assert expected[last].item() == 0
        assert slopes(math.nan).tolist() == expected.tolist()


def test_gradients_go_to_the_positions(device: Device) -> None:
    x = Var(Tensor([1.0, 3.0, 3.0, 2.0, math.nan, 5.0, math.nan], device=device))
    values, positions = x.cummax(0)
    assert positions.tolist() == [0, 1, 2, 2, 4, 4, 4]
    assert values.sum().backward()[x].tolist() == [1, 1, 2, 0, 3, 0, 0]


def test_nothing_comes_back_through_a_prefix_of_minus_infinity(device: Device) -> None:
    x = Var(Tensor([-math.inf, -math.inf, 1.0, 1.0], device=device))
    result = x.logcumsumexp(0)
    np.testing.assert_allclose(result.numpy(), [-math.inf, -math.inf, 1, 1 + math.log(2)], rtol=1e-6)
    assert result.sum().backward()[x].tolist() == [0, 0, 1.5, 0.5]


def test_gradients_of_short_floats_do_not_vanish_because_a_count_leaves_the_dtype(device: Device) -> None:
    x = Var(Tensor.full((4096,), 1.0, dtype="f16", device=device))
    assert x.cumsum(0).sum().backward()[x].tolist()[:2] == [4096, 4096]
    assert x.cummax(0)[0].sum().backward()[x].tolist() == [1] * 4096


@pytest.mark.parametrize("functor", SCANS, ids=lambda functor: functor.name)
def test_the_bits_of_a_line_do_not_depend_on_other_lines(functor: Functor, device: Device) -> None:
    """Where few lines are split, those of long ones do on GPUs."""
    generator = np.random.default_rng(0)
    for width, direction in itertools.product((3, 33, 130), directions(functor)):
        numbers = generator.uniform(-2, 2, (70, width)).astype(np.float32)
        x = Tensor(numbers, device=device)
        x = x if "f32" in own_spec.read().resolve(functor.dtypes) else x.to_dtype("i32")
        every = scanned(functor, x, 1, **direction)
        for rows in (1, 5):
            assert (scanned(functor, x[:rows], 1, **direction) == every[:rows]).all().item(), (width, direction)
        # Columns are the same lines, but may be joined in another order.
        columns = scanned(functor, x.T, 0, **direction)
        assert (scanned(functor, x.T[:, :5], 0, **direction) == columns[:, :5]).all().item()
        assert (scanned(functor, x, 1, **direction) == every).all().item()


@pytest.mark.parametrize("shape", [(30_000, 2), (3_000, 600)], ids=["split", "lines"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "complex128"])
def test_errors_of_sums_do_not_grow_with_the_length(dtype: str, shape: tuple[int, int], device: Device) -> None:
    """Relative to the sums: of squares, and of numbers that added one by one would all be rounded up, as in a block.

    GPUs split few lines, but not many.
    """
    if dtype != "f32" and device.is_metal():
        pytest.skip("its library has no floats of 64 bits on GPUs")
    epsilon = np.finfo("f4" if dtype == "f32" else "f8").eps
    rounded_up = np.full(shape, 1 + 0.75 * 2**11 * epsilon)
    for numbers, block in ((np.random.default_rng(0).uniform(0, 1, shape) ** 2, 4), (rounded_up, 64 / 2)):
        x = Tensor(numbers, dtype=dtype, device=device)
        exact = x.numpy().astype(np.clongdouble)
        for reverse in (False, True):
            sums = np.flip(np.cumsum(np.flip(exact, 0), 0), 0) if reverse else np.cumsum(exact, 0)
            for got in (x.cumsum(0, reverse=reverse), x.T.contiguous().cumsum(1, reverse=reverse).T):
                error = np.abs(got.numpy() - sums) / np.abs(sums)
                assert error.max() <= (block + math.log2(shape[0])) * epsilon, reverse


@pytest.mark.parametrize("dtype", ["f32", "f64", "complex128"])
def test_sums_of_rows_and_columns_have_the_same_bits_on_the_cpu(dtype: str) -> None:
    """Their order follows from the length and the dtype, also where blocks of the sums are joined."""
    generator = np.random.default_rng(0)
    for length, inner in itertools.product((1, 63, 64, 65, 128, 300, 1024, 1025, 20_000), (1, 3, 9)):
        x = Tensor(generator.uniform(-1, 1, (length, inner)), dtype=dtype)
        for reverse, exclusive in itertools.product((False, True), repeat=2):
            columns = x.cumsum(0, reverse=reverse, exclusive=exclusive)
            rows = x.T.contiguous().cumsum(1, reverse=reverse, exclusive=exclusive).T
            assert (rows == columns).all().item(), (length, inner, reverse, exclusive)
            turned = Tensor(x.numpy()[::-1].copy()).cumsum(0, reverse=not reverse, exclusive=exclusive)
            assert (turned.numpy()[::-1] == columns.numpy()).all(), (length, inner, reverse, exclusive)


def test_a_scan_of_what_has_no_result_of_nothing_leaves_no_element_out() -> None:
    with pytest.raises(TypeError, match="exclusive"):
        Tensor([1.0]).cummax(0, exclusive=True)
