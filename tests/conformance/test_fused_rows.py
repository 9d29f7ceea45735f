"""Row ops in fused functions: the bits of the ops one by one, for every op of rows that the spec has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor
from tallow.kernels.constants import ROW_REDUCTIONS, ROWS

# The ops of rows that are no gradients; reductions of rows; and the kernels of GPUs for these alone, which add up a row
# in an order of their own.
# By op, and by its variant for calls without the optional operands, the storage method.
OPS: Final = {
    name: method
    for method, facts in ROWS.items()
    if hasattr(tl.Storage, method) and not method.endswith("_gradient")
    for name in filter(None, (method, facts.variant))
}
OTHER_ORDERS: Final = {
    **dict.fromkeys(ROW_REDUCTIONS, "reductions alone split and join rows as reductions of several dims do"),
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


def reduction(name: str) -> Callable[..., tuple[Any, ...]]:
    """A reduction of rows as such a function."""
    return lambda x: (getattr(x * 0.5, name)(1), x.neg())


def differs(function: Callable[..., tuple[Any, ...]], tensors: Sequence[Tensor]) -> bool:
    """Return True unless a function has the same bits fused, of its results together and of the first one alone."""
    expected = function(*tensors)
    actual = [tl.fuse(function)(*tensors)[0], tl.fuse(lambda *given: function(*given)[0])(*tensors)]
    # Not every device has f64.
    numbers = [each.to("cpu").to_dtype("f64").tolist() for each in (expected[0], *actual)]
    return any(each != numbers[0] for each in numbers)


@pytest.mark.parametrize("name", [*OPS, *filter(partial(hasattr, Tensor), ROW_REDUCTIONS)])
def test_rows_in_fused_functions_have_the_bits_of_the_op(device: tl.Device, name: str, full: bool) -> None:
    facts = ROWS.get(name)
    of = reduction(name) if facts is None else row_op(name)
    for width in (64, 300, 1024, 1027, 5000, 40_000) if full else (1024,):
        for dtype in ("f32", "bf16", "f16", "f64") if full or device.backend == "cpu" else ("f32",):
            if facts is None:
                tensors = [Tensor(np.random.default_rng(0).normal(0, 2, (3, width))).to_dtype(dtype).to(device)]
            else:
                tensors = operands_of(name, (3, width), dtype, device)
            has_bits = not differs(of, tensors)
            assert has_bits or (name in OTHER_ORDERS and device.backend != "cpu"), f"{dtype}, rows of {width}"


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
