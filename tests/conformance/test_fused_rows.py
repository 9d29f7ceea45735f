"""Row ops in fused functions: the bits of the ops one by one, for every op of rows that the spec has."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor
from tallow.kernels.constants import ROW_REDUCTIONS, ROWS

# The ops of rows that are no gradients: by op, and by its variant for calls without the optional operands, the storage
# method.
OPS: Final = {
    name: method
    for method, facts in ROWS.items()
    if hasattr(tl.Storage, method) and not method.endswith("_gradient")
    for name in filter(None, (method, facts.variant))
}
# The reductions that GPUs add up in one order alone and in another one as rows of fused functions; the first ones have
# the same bits where the sums themselves are exact.
SUMS: Final = ["sum", "mean", "norm"]
ADDED_UP: Final = [*SUMS, "var", "std", "logsumexp"]
ROUNDING: Final = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
# Rows, and the dim along which they lie.
VIEWS: Final[dict[str, Callable[[Tensor], tuple[Tensor, int]]]] = {
    "rows": lambda x: (x, 1),
    "columns": lambda x: (x.T.contiguous(), 0),
    "strided rows": lambda x: (x.repeat((1, 2)).T.contiguous().T[:, : x.shape[1]], 1),
}


def operands_of(name: str, shape: tuple[int, int], dtype: str, device: tl.Device) -> list[Tensor]:
    """The operands of a row op or of its variant, in the order of its arguments."""
    generator, method = np.random.default_rng(0), OPS[name]
    facts = ROWS[method]
    names = [name.removesuffix("_layout") for name in _parameters(method) if name.endswith("_layout")]
    result = [Tensor(generator.normal(0, 2, shape)).to_dtype(dtype).to(device)]
    for number, operand in enumerate(names, 1):
        if facts.has_index and operand == names[-1]:
            result.append(Tensor(generator.integers(0, shape[1], shape[0]), device=device))
        elif name == method or facts.absent[number] is None:
            own = shape[1:] if facts.vectors >> number & 1 else shape
            result.append(Tensor(generator.uniform(0.5, 2, own)).to_dtype(dtype).to(device))
    return result


def _parameters(method: str) -> list[str]:
    return [name for name in inspect.signature(getattr(tl.Storage, method)).parameters if name != "self"]


def row_op(name: str) -> Callable[..., tuple[Any, ...]]:
    """An op of rows, or its variant, as a function of tensors, with a map before it and another result of elements."""
    method = OPS[name]
    left_out = [] if name == method else [k for k, absent in enumerate(ROWS[method].absent, -1) if absent is not None]

    def function(x: Any, *others: Any) -> tuple[Any, ...]:
        wide, inputs = x * 0.5, iter(others)
        known: dict[str, Any] = {"dim": 1, "ignore_index": -100, "saves": False}
        arguments: list[Any] = []
        tensor: Any = wide
        operands = [name for name in _parameters(method) if f"{name}_layout" in _parameters(method)]
        for name in _parameters(method):
            if name == "layout":
                arguments.append(wide._layout)
            elif name.endswith("_layout"):
                arguments.append(None if tensor is None else tensor._layout)
            elif f"{name}_layout" in _parameters(method):
                tensor = None if operands.index(name) in left_out else next(inputs)
                arguments.append(None if tensor is None else tensor._storage)
            else:
                arguments.append(known.get(name, 0.25))
        results = getattr(wide._storage, method)(*arguments)
        first = results[0] if isinstance(results, tuple) else results
        is_number = ROWS[method].number_results > 0
        return wide._new(first, tl.Layout.contiguous(x.shape[:1] if is_number else x.shape)), x.neg()

    return function


def reduction(name: str, dim: int) -> Callable[..., tuple[Any, ...]]:
    """A reduction along a dim as such a function."""
    return lambda x: (getattr(x * 0.5, name)(dim), x.neg())


def results_of(function: Callable[..., tuple[Any, ...]], tensors: Sequence[Tensor]) -> list[Any]:
    """The first result of a function: op by op, fused with the others, and fused alone."""
    results = [
        function(*tensors)[0],
        tl.fuse(function)(*tensors)[0],
        tl.fuse(lambda *given: function(*given)[0])(*tensors),
    ]
    # Not every device has f64.
    return [each.to("cpu").to_dtype("f64").numpy() for each in results]


@pytest.mark.parametrize("name", OPS)
def test_rows_in_fused_functions_have_the_bits_of_the_op(device: tl.Device, name: str, full: bool) -> None:
    for width in (64, 300, 1024, 1027, 5000, 40_000) if full else (1024,):
        for dtype in ROUNDING if full or device.is_cpu() else ("f32",):
            expected, *actual = results_of(row_op(name), operands_of(name, (3, width), dtype, device))
            for each in actual:
                np.testing.assert_array_equal(each, expected, err_msg=f"{dtype}, rows of {width}")


@pytest.mark.parametrize("name", [name for name in ROW_REDUCTIONS if hasattr(Tensor, name)])
def test_reductions_in_fused_functions_have_the_bits_of_the_op_but_for_the_order_of_sums(
    device: tl.Device, name: str, full: bool
) -> None:
    """Where sums are rounded, the difference is of a few units of the sum of the magnitudes.

    The CPU has another order where operands are not in row-major order, which results of ops have too.
    """
    generator = np.random.default_rng(0)
    for width in (1, 7, 64, 300, 1024, 1027, 5000, 40_000, 70_000) if full or device.is_cpu() else (1027,):
        rows = {"exact": generator.integers(-3, 4, (3, width)), "rounded": generator.normal(0, 2, (3, width))}
        dtypes = ROUNDING if full or device.is_cpu() else ("f32",)
        for (kind, row), dtype, view in itertools.product(rows.items(), dtypes, VIEWS):
            x, dim = VIEWS[view](Tensor(row).to_dtype(dtype).to(device))
            expected, *actual = results_of(reduction(name, dim), [x])
            tolerance = 0.0
            has_other_order = not device.is_cpu() or view == "strided rows"
            if has_other_order and name in (ADDED_UP if kind == "rounded" else ADDED_UP[len(SUMS) :]):
                magnitudes = np.abs(row * 0.5)
                own = {"sum": magnitudes.sum(1), "mean": magnitudes.mean(1)}.get(name, np.abs(expected))
                tolerance = 8 * min(ROUNDING[dtype], ROUNDING["f32"]) * own
                # The results of each order are rounded once.
                tolerance += 2 * ROUNDING[dtype] * np.abs(expected) * (dtype in ("f16", "bf16"))
            for each in actual:
                is_equal = (each == expected) | (np.isnan(each) & np.isnan(expected))
                assert (is_equal | (np.abs(each - expected) <= tolerance)).all(), f"{dtype}, {kind} {view} of {width}"


@pytest.mark.parametrize("width", [64, 1027])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, weight: (x * weight).sum(1),
        lambda x, weight: (x.softmax(1) * x + x.exp() * weight).var(1),
        lambda x, weight: x.rms_norm(weight).silu() * x.layer_norm(),
    ],
)
def test_a_fused_row_has_its_bits_in_any_batch(
    device: tl.Device, function: Callable[..., Any], width: int, full: bool
) -> None:
    """Those of its results and of the gradients of its elements, which join several uses, wherever the row begins."""
    if not full and width == 64 and not device.is_cpu():
        pytest.skip("compiled for each width; of rows of whole vectors --full has it")
    fused, generator = tl.fuse(function), np.random.default_rng(0)
    rows, weight = generator.normal(0, 2, (5, width)).astype("f4"), generator.uniform(0.5, 2, width).astype("f4")

    def computed(chosen: Any, offset: int) -> list[Any]:
        flat = Tensor(np.concatenate([np.zeros(offset, "f4"), chosen.ravel()]), device=device)
        x = tl.Var(flat.narrow(0, offset, chosen.size).reshape(chosen.shape))
        w = tl.Var(Tensor(weight, device=device))
        result = fused(x, w)
        gradients = result.sum().backward()
        return [result.numpy(), gradients[x].numpy(), gradients[w].numpy()]

    result, of_rows, of_weight = computed(rows, 0)
    # The gradient of a weight adds up the rows of its call, in the same order each time.
    np.testing.assert_array_equal(of_weight, computed(rows, 0)[2])
    for index, offset in ((0, 0), (2, 1), (4, 3)):
        alone, of_row, _ = computed(rows[index : index + 1], offset)
        np.testing.assert_array_equal(alone[0], result[index])
        np.testing.assert_array_equal(of_row[0], of_rows[index])
