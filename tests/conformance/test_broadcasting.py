"""Operands broadcast by NumPy's rules in every public call that broadcasts, and other shapes are refused.

The calls are found, not listed: those whose tensors may have one shape, of which a vector takes the place of one, and a
vector of another length does not. The same call on operands that NumPy has stretched is what a result and its gradients
are compared with.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import tallow
from tallow import (
    BinaryOp,
    CmpOp,
    Device,
    FusionError,
    GradientError,
    ShapeMismatch,
    TallowError,
    Tensor,
    Var,
    array_api,
)

from . import hostile, matrix
from .oracle.formats import NUMPY

Shapes = tuple[tuple[int, ...], ...]

SHAPES: Shapes = (
    *((), (0,), (1,), (2,), (3,)),
    *((1, 1), (1, 3), (2, 1), (2, 3), (0, 3)),
    *((1, 2, 3), (2, 1, 1), (1, 1, 2, 3), (2, 2, 3)),
)
# Bits and truth values, floats, integers.
DTYPES = ("f32", "bool", "i32")


class Function(NamedTuple):
    """A public call as a function of tensors alone: the one that a method is called on, and those it must be given."""

    example: hostile.Example
    names: list[str]

    @property
    def arity(self) -> int:
        """How many tensors it takes."""
        return len(self.names) + (self.example.call.owner == "Tensor")

    def __call__(self, *operands: Tensor) -> Any:
        values = [hostile.Value("an operand", lambda _, operand=operand: operand) for operand in operands]
        of = values.pop(0) if self.example.call.owner == "Tensor" else None
        new = dict(zip(self.names, values, strict=True))
        return self.example._replace(of=of).changed(new).run(operands[0].device)


class Case(NamedTuple):
    """A call that broadcasts the tensors that it takes."""

    function: Function
    dtypes: tuple[str, ...]
    is_anchored: bool
    """Whether the others stretch to the first operand, and it does not stretch to them."""

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape that operands stretch to; ValueError if there is none."""
        stretched = np.broadcast_shapes(*shapes)
        if self.is_anchored and stretched != shapes[0]:
            raise ValueError(f"{shapes[0]} is not stretched")
        return stretched

    def arrays(self, shapes: Shapes) -> list[np.ndarray]:
        """Operands of some shapes: small numbers above 0."""
        numbers = np.arange(5 * len(shapes)).reshape(-1, 5) % 7
        return [
            np.resize(line if dtype == "bool" else line + 1, shape).astype(NUMPY[dtype])
            for line, shape, dtype in zip(numbers, shapes, self.dtypes, strict=True)
        ]


def functions() -> Iterator[Function]:
    """Each function and method that may take tensors, with nothing else that it need not be given."""
    for call in (hostile.surface() | hostile.array_api_surface()).values():
        if call.owner not in (None, "Tensor"):
            continue
        example = hostile.base_of(call)
        required = {parameter.name for parameter in call.parameters if parameter.default is parameter.empty}
        keywords = {name: value for name, value in example.keywords.items() if name in required}
        names = [parameter.name for parameter in call.parameters if is_tensor(parameter)]
        yield Function(example._replace(keywords=keywords), names)


def is_tensor(parameter: inspect.Parameter) -> bool:
    """Whether a tensor must be given for a parameter, or may be instead of a number."""
    is_required = parameter.default is parameter.empty and "VAR" not in parameter.kind.name
    return is_required and re.search(r"\b(Self|Tensor)\b", str(parameter.annotation)) is not None


@cache
def cases() -> dict[str, Case]:
    """The calls that broadcast, by name."""
    all_cases = (case_of(function) for function in functions() if function.arity > 1)
    return {case.function.example.call.name: case for case in all_cases if case is not None}


def case_of(function: Function) -> Case | None:
    """The case of a call; None if it does not broadcast."""
    together: Shapes = ((2, 3),) * function.arity
    for dtypes in itertools.product(DTYPES, repeat=function.arity):
        case = Case(function, dtypes, is_anchored=False)
        if is_accepted(case, together):
            break
    else:
        return None

    def stretches(index: int, shape: tuple[int, ...]) -> bool:
        return is_accepted(case, (*together[:index], shape, *together[index + 1 :]))

    for index in range(1, function.arity):
        if stretches(index, (2,)) or not all(stretches(index, shape) for shape in ((3,), (2, 1), ())):
            return None
    return case._replace(is_anchored=not stretches(0, (3,)))


def is_accepted(case: Case, shapes: Shapes) -> bool:
    """Whether the CPU makes a call."""
    operands = [Tensor(array) for array in case.arrays(shapes)]
    try:
        case.function(*operands)
    except TallowError:
        return False
    return True


def test_every_functor_of_several_operands_is_found() -> None:
    """And each operator, and each method that writes in place."""
    listed = {f"Tensor.{op.value}" for op in (*BinaryOp, *CmpOp)} | {"Tensor.where", "Tensor.copy_"}
    listed |= {f"xp.{name}" for name in ("add", "where", "equal")}
    # Its method takes a weight for each channel.
    listed -= {"Tensor.prelu"}
    public = hostile.surface()
    operators = {name for name in public if re.fullmatch(r"Tensor\.__i?(add|floordiv|and|lshift|lt)__", name)}
    in_place = {f"{name}_" for name in listed if f"{name}_" in public}
    assert (listed | operators | in_place) & (public.keys() | cases().keys()) <= cases().keys()
    assert {name for name in cases() if cases()[name].is_anchored} >= in_place


@pytest.mark.parametrize("name", cases())
def test_operands_broadcast_as_in_numpy(device: Device, full: bool, name: str) -> None:
    case = cases()[name]
    if not {*case.dtypes} <= {*matrix.dtypes_of(device.backend)}:
        pytest.skip("the backend lacks the dtype")
    combinations = [*itertools.product(SHAPES, repeat=len(case.dtypes))]
    # Each call has other ones of them.
    first = [*cases()].index(name) % 13
    few = combinations if full and len(case.dtypes) < 3 else combinations[first :: max(len(combinations) // 15, 1)]
    calls = [case.function, *fused(case, device)] if full else [case.function]
    for shapes in few:
        arrays = case.arrays(shapes)
        operands = [Tensor(array, device=device) for array in arrays]
        try:
            shape = case.shape(shapes)
        except ValueError:
            for call in calls:
                with pytest.raises(ShapeMismatch):
                    call(*operands)
            continue
        complete = [np.broadcast_to(array, shape).copy() for array in arrays]
        stretched = [Tensor(array, device=device) for array in complete]
        expected = elements(case.function(*stretched))
        for call in calls:
            same(elements(call(*operands)), expected, f"{name} of {shapes}")
        gradients = gradients_of(case, complete, device)
        if gradients:
            actual = gradients_of(case, arrays, device)
            summed = [summed_to(gradient, array.shape) for gradient, array in zip(gradients, arrays, strict=True)]
            same(actual, summed, f"gradient of {name} of {shapes}")


def fused(case: Case, device: Device) -> list[Callable[..., Any]]:
    """The fused call; none where a call cannot be fused."""
    function = tallow.fuse(case.function)
    try:
        function(*[Tensor(array, device=device) for array in case.arrays(((2, 3),) * len(case.dtypes))])
    except FusionError:
        return []
    return [function]


def elements(result: Any) -> list[np.ndarray]:
    """The elements of a result, or of each of several."""
    results = result if isinstance(result, tuple) else [result]
    return [part.numpy() if isinstance(part, Tensor) else np.asarray(part) for part in results]


def same(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], what: str) -> None:
    """Compare arrays and their shapes."""
    assert [part.shape for part in actual] == [part.shape for part in expected], what
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=what)


def gradients_of(case: Case, arrays: Sequence[np.ndarray], device: Device) -> list[np.ndarray]:
    """The gradients of a weighted sum of the result for operands of floats; none if it has no gradient."""
    if {*case.dtypes} != {"f32"} or arrays[0].size == 0:
        return []
    variables = [Var(Tensor(array, device=device)) for array in arrays]
    # A variable itself is not written to.
    first, *remaining = [variable * 1 for variable in variables] if case.is_anchored else variables
    try:
        result = case.function(first, *remaining)
        if not isinstance(result, Tensor) or not result.dtype.is_float:
            return []
        weights = Tensor(np.resize(np.arange(7) - 2.0, result.shape), "f32", device)
        gradients = result.backward(weights)
    except GradientError:
        return []
    results = [gradients.get(variable) for variable in variables]
    return [
        np.zeros_like(array) if gradient is None else gradient.numpy()
        for gradient, array in zip(results, arrays, strict=True)
    ]


def summed_to(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of an operand of a shape, from that of what it was stretched to."""
    ahead = gradient.ndim - len(shape)
    dims = (*range(ahead), *(ahead + dim for dim, size in enumerate(shape) if size == 1))
    return gradient.sum(axis=dims).reshape(shape)


@pytest.mark.parametrize(
    "stretch",
    [Tensor.broadcast_as, Tensor.expand, array_api.broadcast_to, lambda x, shape: x.layout.broadcast_as(shape)],
    ids=["broadcast_as", "expand", "broadcast_to", "Layout.broadcast_as"],
)
def test_a_tensor_stretches_to_what_numpy_stretches_it_to(device: Device, stretch: Callable[..., Any]) -> None:
    for shape, target in itertools.product(SHAPES, SHAPES):
        array = np.resize(np.arange(6.0, dtype=np.float32), shape)
        tensor = Tensor(array, device=device)
        try:
            expected = np.broadcast_to(array, target)
        except ValueError:
            with pytest.raises(ShapeMismatch):
                stretch(tensor, target)
            continue
        actual = stretch(tensor, target)
        if isinstance(actual, Tensor):
            same([actual.numpy()], [expected], f"{shape} to {target}")
        assert actual.shape == target


def test_the_mask_of_attention_stretches_to_the_scores(device: Device) -> None:
    batch, heads, queries, keys = scores = 2, 2, 3, 4
    generator = np.random.default_rng(0)
    query, key, value = (
        Tensor(generator.normal(size=(batch, heads, count, 2)), "f32", device) for count in (queries, keys, keys)
    )
    sizes = [(), (3, 4), (2, 2, 3, 4), (2, 1, 1, 4), (1, 1), (4,), (3,), (2, 4), (3, 2, 2, 3, 4), (2, 2, 3, 4, 5)]
    for shape in sizes:
        mask = generator.normal(size=shape)
        try:
            full = np.broadcast_to(mask, scores)
        except ValueError:
            with pytest.raises(ShapeMismatch, match=r"^scaled_dot_product_attention"):
                query.scaled_dot_product_attention(key, value, Tensor(mask, "f32", device))
            continue
        actual, expected = (
            query.scaled_dot_product_attention(key, value, Tensor(array, "f32", device)).numpy()
            for array in (mask, full.copy())
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
