"""Names of NumPy and PyTorch for parameters: axis, keepdims and lr are those of dim, keepdim and learning_rate."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, InvalidArgument, Tensor

from . import hostile
from .test_defaults import comparable

# Candle's own terms, which are those of the spec.
_OF_CANDLE = ("Storage.", "Layout.", "Shape.", "QStorage.", "Kernel.")
SECOND_NAMES = {first: second for second, firsts in hostile.SECOND_NAMES.items() for first in firsts}


def functions() -> dict[str, hostile.Call]:
    """The public calls, and the optimisers'."""
    results = {name: call for name, call in hostile.surface().items() if not name.startswith(_OF_CANDLE)}
    for name in tl.optim.__all__:
        function = getattr(tl.optim, name)
        results[f"optim.{name}"] = hostile.Call(name, None, lambda _, it=function: it, hostile._parameters(function))
    return results


def signature(call: hostile.Call) -> inspect.Signature:
    """The whole signature, in which the second names are."""
    owner = getattr(tl, call.owner) if call.owner else None
    return inspect.signature(call.find(owner))


CASES = [
    (name, first)
    for name, call in functions().items()
    for first in ("dim", "keepdim", "learning_rate")
    if first in signature(call).parameters
]


def test_the_sweep_finds_its_functions() -> None:
    assert len(CASES) > 55
    assert {name for name, _ in CASES} >= {"cat", "stack", "Tensor.sum", "Tensor.softmax", "Tensor.narrow", "optim.SGD"}


def example(name: str) -> hostile.Example:
    call = functions()[name]
    if name.startswith("optim."):
        keywords = hostile.values("[variable(d)]; 0.5")
        return hostile.Example(call, None, (), dict(zip(("parameters", "learning_rate"), keywords, strict=True)))
    return hostile.base_of(call)


def outcome(output: hostile.Example, device: Device) -> object:
    result = output.run(device)
    return repr(result) if isinstance(result, tl.optim.Optimizer) else comparable(result)


@pytest.mark.parametrize(("name", "first"), CASES)
def test_the_second_name_means_the_first(device: Device, name: str, first: str) -> None:
    second = "axis" if first == "dim" else SECOND_NAMES[first]
    base = example(name)
    values = {"dim": "0", "keepdim": "True", "learning_rate": "0.5"}
    value = base.keywords.get(first, hostile.values(values[first])[0])
    named = base._replace(keywords={**base.keywords, first: value})
    others = {key: it for key, it in base.keywords.items() if key != first}
    renamed = base._replace(keywords={**others, second: value})
    assert outcome(renamed, device) == outcome(named, device)
    # The number that is the default as well.
    texts = {repr(value), repr(signature(functions()[name]).parameters[first].default)} & {"0", "-1", "0.01", "0.001"}
    for inputs in [value, *hostile.values(";".join(texts))]:
        both = named._replace(keywords={**named.keywords, first: inputs, second: value})
        with pytest.raises(InvalidArgument, match=f"{first} and {second} are two names of one argument; give one of"):
            both.run(device)


@pytest.mark.parametrize("kind", [list, lambda dims: [np.int64(dim) for dim in dims], range])
@pytest.mark.parametrize("name", [name for name, first in CASES if first == "keepdim"])
def test_dims_in_a_list_are_those_of_a_tuple(device: Device, kind: Any, name: str) -> None:
    x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 5, device=device)
    method = getattr(x, name.partition(".")[2])
    dims = range(2) if kind is range else kind([0, 1])
    for keepdim in (False, True):
        expected = comparable(method((0, 1), keepdim))
        assert comparable(method(dims, keepdim)) == expected
        assert comparable(method(axis=dims, keepdims=keepdim)) == expected


def test_methods_that_take_several_dims_take_a_list(device: Device) -> None:
    x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device)
    for by_list, by_tuple in (
        (x.permute([2, 0, 1]), x.permute((2, 0, 1))),
        (x[:1, :, None].squeeze([0, -2]), x[0]),
        (x[:1, :, None].squeeze(axis=(0, 2)), x[0]),
        (x.flip([0, 1]), x.flip(0, 1)),
        (x.flip(axis=[0, 1]), x.flip(0, 1)),
        (x.flip(axis=0), x.flip(0)),
        (x.roll([1, 2], [0, 1]), x.roll((1, 2), (0, 1))),
        (x.roll(1, axis=0), x.roll(1, 0)),
        (x.movedim([0, 1], [1, 2]), x.movedim((0, 1), (1, 2))),
        (x.tensordot(x, axes=[[1, 2], [1, 2]]), x.tensordot(x, ((1, 2), (1, 2)))),
    ):
        assert by_list.tolist() == by_tuple.tolist()


def test_the_rate_of_a_group_has_both_names() -> None:
    w = tl.Var(Tensor([1.0, 2.0]))
    optimizer = tl.optim.SGD([{"parameters": [w], "lr": 0.25}], lr=0.5)
    assert (optimizer.lr, optimizer.groups[0].lr) == (0.25, 0.25)
    optimizer.lr = 0.125
    assert (optimizer.learning_rate, optimizer.groups[0].learning_rate) == (0.125, 0.125)
    with pytest.raises(InvalidArgument, match="learning_rate and lr are two names of one argument"):
        tl.optim.Adam([{"parameters": [w], "lr": 0.25, "learning_rate": 0.25}])
