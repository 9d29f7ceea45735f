"""What the classes and modules that users import offer: names that work, and errors of Python that name them."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor

PUBLIC = [value for name in tl.__all__ if isinstance(value := getattr(tl, name), type)]
# Of a class and of one of its objects.
OWNERS = [tl, tl.optim, tl.distributed, *PUBLIC, tl.ones((2, 2)), tl.Var(tl.ones((2, 2))), tl.Device.cpu()]


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: getattr(owner, "__name__", type(owner).__name__))
def test_each_name_that_dir_lists_is_there(owner: object) -> None:
    assert [name for name in dir(owner) if not hasattr(owner, name)] == []


def methods() -> Iterator[tuple[type, str]]:
    for owner in (Tensor, tl.Storage, tl.QStorage, tl.Device):
        for name in dir(owner):
            method = inspect.getattr_static(owner, name)
            if inspect.isfunction(method) and not name.startswith("_") and required(method):
                yield owner, name


def required(method: Callable[..., object]) -> int:
    """How many arguments a method needs besides the object."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return sum(each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD,) for each in parameters)


def test_errors_of_python_name_the_class_of_a_method() -> None:
    """And not one that it has the method from, which no user knows."""
    checked = 0
    for owner, name in methods():
        with pytest.raises((TypeError, tl.TallowError)) as error:
            getattr(owner, name)(object.__new__(object))
        if type(error.value) is TypeError and "missing" in str(error.value):
            assert str(error.value).startswith(f"{owner.__name__}.{name}() missing"), str(error.value)
            checked += 1
    assert checked > 50


def test_a_method_is_pickled_by_its_name() -> None:
    for method in (Tensor.add, Tensor.conv2d, Tensor.reshape, tl.Storage.matmul):
        assert pickle.loads(pickle.dumps(method)) is method


class Slotted:
    __slots__ = ("scale",)

    @tl.fuse
    def apply(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: x.reshape(1, 1, 2, 2).conv2d(x.reshape(1, 1, 2, 2), padding="reflect"),
            "padding is 'same', 'valid' or numbers, not 'reflect'",
        ),
        (lambda x: tl.value_and_grad(lambda p: p["x"].sum())({"x": x}), "no argument is a Tensor of floats, but {'x'"),
        (lambda x: tl.value_and_grad(lambda: x.sum())(), "no argument is a Tensor of floats, but nothing"),
        (lambda x: Slotted().apply(x), "objects of class Slotted have no weak references; add '__weakref__'"),
        (lambda x: x.__array_namespace__().broadcast_arrays(x, 3), "argument 2 must be a Tensor, not of type int"),
    ],
)
def test_what_a_function_does_not_take_is_named(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(tl.InvalidArgument, match=message):
        call(tl.ones((2, 2)))


@pytest.mark.parametrize(
    "strange",
    [[0.5], "a", 1.5, {}, (0, "a"), True, b"", object(), [[0], [0, 1]], [Tensor(0)], np.ones(1)],
    ids=lambda it: f"{type(it).__name__} {it!r:.9}",
)
@pytest.mark.parametrize("place", ["alone", "in front of a tensor", "behind a tensor", "behind None"])
def test_an_index_of_a_strange_type_is_named(strange: object, place: str) -> None:
    indexes = Tensor([0, 1])
    item = {
        "alone": (strange,),
        "in front of a tensor": (strange, indexes),
        "behind a tensor": (indexes, strange),
        "behind None": (None, strange),
    }[place]
    x = tl.ones((2, 2))
    for use in (lambda: x[item], lambda: x.__setitem__(item, 1.0)):
        with pytest.raises(tl.InvalidArgument, match=f"an index must be .*, not of type {type(strange).__name__}"):
            use()


def test_the_error_of_metal_is_at_the_top() -> None:
    """As Candle exports it, whether the library of the backend is installed or not."""
    assert issubclass(tl.MetalError, tl.TallowError)
    assert issubclass(tl.MetalError, RuntimeError)


def test_what_is_pickled_comes_back_and_what_is_not_says_so(device: tl.Device) -> None:
    """By copy, by deepcopy and by pickle, on the device of the tests."""
    x = tl.ones((2, 32), device=device) * 3
    blocks = tl.QTensor.quantize(x, "Q8_0")
    for value in (x, x.storage, blocks, blocks.storage, device, x.layout, x.shape, x.dtype, tl.QMatMul(blocks)):
        for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert type(again) is type(value)
            assert dump(again) == dump(value)
    gradients = (tl.Var(x) * 2).sum().backward()
    optimizer = tl.optim.SGD({"w": tl.Var(x)}, 0.1)
    graphs = [tl.Graph(device)] if device.backend in ("cuda", "rocm") else []
    for value in (x.storage.inner, blocks.storage.inner, gradients, optimizer, *optimizer.groups, *graphs):
        for use in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(tl.InvalidArgument, match=r"neither copied nor pickled; "):
                use(value)


def dump(value: object) -> object:
    """What two equal objects have in common."""
    match value:
        case tl.QMatMul():
            return dump(value.qtensor)
        case tl.QTensor():
            return value.shape, value.dtype, value.dequantize().tolist()
        case Tensor():
            return value.dtype, value.tolist()
        case tl.QStorage():
            return value.inner.data.tobytes()
        case tl.Storage():
            return value.to_numpy().tolist()
    return value
