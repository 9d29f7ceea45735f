"""What people of PyTorch and NumPy type: methods under those names, and errors that name tallow's word."""

from __future__ import annotations

import functools
import inspect
import math
import pickle
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pytest
import tallow
from tallow import (
    BackendUnavailable,
    Device,
    DType,
    DTypeMismatch,
    InvalidArgument,
    ShapeMismatch,
    Tensor,
    UnsupportedDType,
    Var,
)
from tallow.runtime.core.argument import REQUIRED
from tallow.runtime.tensor import names
from tallow.runtime.tensor.equivalents import EQUIVALENTS

from .arrays import numbers, same

ARRAY = numbers((2, 3, 4))


def on(device: Device, array: np.ndarray = ARRAY) -> Tensor:
    return Tensor(array, device=device)


def test_facts_under_other_names(device: Device) -> None:
    x = on(device)
    assert (x.ndim, x.numel(), x.nbytes, x.is_contiguous(), x.T.is_contiguous()) == (3, 24, 96, True, False)
    assert x.half().dtype is DType.F16
    assert x.half().float().dtype is DType.F32
    copied = x.clone()
    assert copied.storage is not x.storage
    same(copied, ARRAY)


def test_a_view_copies_nothing(device: Device) -> None:
    x = on(device)
    seen = x.view(4, -1)
    assert seen.storage is x.storage
    same(seen, ARRAY.reshape(4, 6))
    with pytest.raises(InvalidArgument, match=r"^view: .*use reshape, which copies"):
        x.T.view(24)
    with pytest.raises(ShapeMismatch, match=r"^view: "):
        x.view(5, 5)


def test_expand_keeps_the_sizes_that_are_minus_1(device: Device) -> None:
    x = on(device, ARRAY[:, :1])
    same(x.expand(5, -1, 3, -1), np.broadcast_to(ARRAY[:, :1], (5, 2, 3, 4)))
    for sizes in ((3, 4), (-1, 2, 1, 4)):
        with pytest.raises(ShapeMismatch, match=r"^expand: "):
            x.expand(*sizes)


def test_parts_along_a_dim_are_views(device: Device) -> None:
    x = on(device)
    for size, bounds in ((3, [3]), ([1, 0, 3], [1, 1]), (9, [])):
        parts = x.split(size, dim=2)
        expected = np.split(ARRAY, bounds, axis=2)
        assert len(parts) == len(expected)
        for part, array in zip(parts, expected, strict=True):
            assert part.storage is x.storage
            same(part, array)
    for index, part in enumerate(x.unbind(1)):
        same(part, ARRAY[:, index])
    for wrong in (0, [1, 2], [5, -1]):
        with pytest.raises(InvalidArgument, match=r"^split: "):
            x.split(wrong, 2)


def test_more_parts_than_anybody_has_memory_for_are_refused(device: Device) -> None:
    x = Tensor([1.0], device=device).broadcast_as(2**40)
    for call in (lambda: x.split(1), x.unbind, lambda: x.chunk(2**40)):
        with pytest.raises(InvalidArgument, match=r"it would make 1099511627776 views, .*index the tensor"):
            call()


@pytest.mark.parametrize(("source", "destination"), [(0, -1), (2, 0), ((0, 1), (2, 0)), ((), ())])
def test_movedim_is_numpys_moveaxis(device: Device, source: tuple[int, ...], destination: tuple[int, ...]) -> None:
    same(on(device).movedim(source, destination), np.moveaxis(ARRAY, source, destination))


def test_movedim_moves_each_dim_once(device: Device) -> None:
    for source, destination in (((0, 0), (1, 2)), ((0, 1), (2,)), (3, 0)):
        with pytest.raises(InvalidArgument, match=r"^movedim: "):
            on(device).movedim(source, destination)


def test_products_of_matrices_have_their_ranks(device: Device) -> None:
    x = on(device)
    same(x[0].mm(x[1].T), ARRAY[0] @ ARRAY[1].T)
    same(x.bmm(x.mT), ARRAY @ ARRAY.swapaxes(1, 2))
    for call in (lambda: x.mm(x.mT), lambda: x.bmm(x[0].T), lambda: x.bmm(x[:1].mT)):
        with pytest.raises(ShapeMismatch, match=r"^b?mm: .*matmul broadcasts"):
            call()


def test_allclose_is_numpys(device: Device) -> None:
    ends = np.array([0.0, 1.0, 1.000005, 1.0001, -1.0, 1e30, np.inf, -np.inf, np.nan], np.float32)
    for left in ends:
        for right in ends:
            x, y = on(device, np.array([1.0, left])), on(device, np.array([1.0, right]))
            for equal_nan in (False, True):
                expected = np.allclose([left], [right], equal_nan=equal_nan)
                assert x.allclose(y, equal_nan=equal_nan) is expected, (left, right)
    integers = Tensor([2**62, 5], device=device)
    assert integers.allclose(integers)
    assert not integers.allclose(integers + 1, rtol=0, atol=0.5)
    assert integers.allclose(integers + 1, rtol=0, atol=2)


def test_equal_is_one_truth(device: Device) -> None:
    x = on(device)
    assert x.equal(x.clone()) is True
    assert x.equal(x + 1) is False
    assert x.equal(x[0]) is False
    assert Tensor([np.nan], device=device).equal(Tensor([np.nan], device=device)) is False
    assert x.equal(x.half()) is True
    assert x.round().equal(x.round().to_dtype("i64")) is True
    with pytest.raises(DTypeMismatch):
        x.to_dtype("complex64").equal(x.to_dtype("i64"))


def test_round_takes_decimals(device: Device) -> None:
    x = Tensor([0.125, -2.375, 1234.5, -0.0, math.inf, math.nan], device=device)
    for decimals, expected in (
        (0, [0.0, -2.0, 1235.0, -0.0, math.inf, math.nan]),
        (2, [0.13, -2.38, 1234.5, -0.0, math.inf, math.nan]),
        (-2, [0.0, -0.0, 1200.0, -0.0, math.inf, math.nan]),
        (-400, [0.0, -0.0, 0.0, -0.0, math.inf, math.nan]),
    ):
        rounded = x.round(decimals).numpy()
        np.testing.assert_array_equal(rounded, np.array(expected, np.float32))
        np.testing.assert_array_equal(np.signbit(rounded[:5]), np.signbit(x.numpy()[:5]))
    for fine in (40, 400):
        np.testing.assert_array_equal(x.round_to(fine).numpy(), x.numpy())
    full = Tensor([125, -7], dtype="i32", device=device)
    assert full.round(3).tolist() == [125, -7]
    with pytest.raises(UnsupportedDType, match="round"):
        full.round(-1)
    with pytest.raises(InvalidArgument, match="decimals must be an integer"):
        x.round(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_numbers_of_few_bits_are_rounded_to_any_decimals(device: Device, dtype: str) -> None:
    if device.is_metal() and dtype == "f64":
        pytest.skip("metal has no f64")
    numbers = [sign * full / 8 for full in (0, 1, 3, 4, 12, 20, 500, 1999, 8008, 12345) for sign in (1, -1)]
    x = Var(Tensor(numbers, dtype, device))
    for decimals in (*range(-5, 4), -400, 30, 300, 308, 309, 400):
        rounded = x.round(decimals)
        step = Decimal(1).scaleb(-decimals)
        expected = [
            # What is finer than the last place leaves a number as it is.
            number if decimals > 3 else float((Decimal(number) / step).quantize(Decimal(1), ROUND_HALF_UP) * step)
            for number in numbers
        ]
        epsilon = float(np.finfo(rounded.dtype.numpy).eps)
        np.testing.assert_allclose(rounded.numpy(), expected, rtol=2 * epsilon)
        assert np.signbit(rounded.numpy()).tolist() == np.signbit(x.numpy()).tolist()
        gradient = rounded.sum().backward().get(x)
        assert gradient is None or gradient.count_nonzero().item() == 0


def test_nan_to_num_takes_the_largest_numbers_by_default(device: Device) -> None:
    x = Tensor([math.nan, math.inf, -math.inf, 2.0], device=device)
    largest = float(np.finfo(np.float32).max)
    assert x.nan_to_num().tolist() == [0.0, largest, -largest, 2.0]
    assert x.nan_to_num(1.5, posinf=3, neginf=-4).tolist() == [1.5, 3.0, -4.0, 2.0]
    assert x.to_dtype("f16").nan_to_num().tolist() == [0.0, 65504.0, -65504.0, 2.0]
    assert Tensor([7], dtype="u8", device=device).nan_to_num().tolist() == [7]


def test_clamp_has_one_bound_or_two(device: Device) -> None:
    for array in (ARRAY, ARRAY.astype(np.int64)):
        x = on(device, array)
        same(x.clamp(max=1), np.minimum(array, 1))
        same(x.clamp(min=1), np.maximum(array, 1))
        same(x.clamp(-1, 1), np.clip(array, -1, 1))
    with pytest.raises(InvalidArgument, match=r"^clamp: give min, max or both"):
        on(device).clamp()


INTEGERS = [dtype for dtype in DType if dtype.is_integer]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_clamp_of_integers_rounds_bounds_inwards(device: Device, dtype: DType) -> None:
    limits = np.iinfo(dtype.numpy)
    elements = [max(number, int(limits.min)) for number in (int(limits.min), -3, -1, 0, 1, 2, 3, int(limits.max))]
    x = Tensor(np.array(elements, dtype.numpy), device=device)
    bounds = (None, -math.inf, -1e30, limits.min - 1, -1.5, -0.5, 0, 0.5, 1.5, 2, limits.max + 1, 1e30, math.inf)
    for low in bounds:
        for high in bounds:
            if (low, high) == (None, None):
                continue
            # In the order of real numbers; a bound that the dtype lacks is its nearest number.
            least = limits.min if low is None or low == -math.inf else limits.max if low == math.inf else math.ceil(low)
            most = (
                limits.max
                if high is None or high == math.inf
                else limits.min
                if high == -math.inf
                else math.floor(high)
            )
            least, most = (min(max(bound, int(limits.min)), int(limits.max)) for bound in (least, most))
            assert x.clamp(low, high).tolist() == [min(max(e, least), most) for e in elements], (low, high)
    for bounds in ((math.nan, None), (None, math.nan), (math.nan, 1), (0, np.float32("nan"))):
        with pytest.raises(InvalidArgument, match=r"^clamp: m(in|ax) is NaN"):
            x.clamp(*bounds)
    clamp = tallow.fuse(lambda x, low: x.clamp(low, 3) + 0)
    for low in (1.5, -0.5, math.inf):
        assert clamp(x, low).tolist() == x.clamp(low, 3).tolist(), low


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_powers_of_integers(device: Device, dtype: DType) -> None:
    """Products that wrap; a negative number is no exponent, in whatever way it is written."""
    least, bits = (np.iinfo(dtype.numpy).min, 8 * dtype.itemsize)
    x = Tensor(np.array([max(least, n) for n in (-3, -2, -1, 0, 1, 2, 3, 7)], dtype.numpy), device=device)
    power = tallow.array_api.pow
    variants = (lambda x, n: x**n, Tensor.pow, power, tallow.fuse(lambda x, n: x**n + 0))
    for exponent in (0, 1, 2, 3, 40, 63, 100):
        expected = [pow(element, exponent) for element in x.tolist()]
        wrapped = [(number - least) % 2**bits + least for number in expected]
        for variant in (*variants, lambda x, n: x.pow(Tensor(np.array(n, dtype.numpy), device=device))):
            assert variant(x, exponent).tolist() == wrapped, exponent
    for exponent in (-1, np.int8(-3)):
        for variant in variants:
            with pytest.raises((InvalidArgument, DTypeMismatch)):
                variant(x, exponent)
    if least:
        negative = Tensor(np.full(8, -3, dtype.numpy), device=device)
        assert x.pow(negative).tolist() == [0, 0, -1, 0, 1, 0, 0, 0]


def test_to_takes_a_device_a_dtype_or_both(device: Device) -> None:
    x = Tensor(ARRAY)
    assert x.to("f16").dtype is DType.F16
    assert x.to(dtype=np.float64).dtype is DType.F64
    assert x.to(x.dtype) is x
    for moved in (x.to(device, "f16"), x.to(device.label, DType.F16), x.to(device=device, dtype="f16")):
        assert (moved.device, moved.dtype) == (device, DType.F16)
    assert x.to(device).cpu().device == Device.cpu()
    assert x.is_cpu
    with pytest.raises(InvalidArgument, match=r"^to: give a device, its label, or a dtype"):
        x.to()


def test_the_properties_of_backends_are_those_of_the_spec(device: Device) -> None:
    for backend in {cell.backend for cell in tallow.support()}:
        is_own = backend == device.backend
        assert getattr(device, f"is_{backend}")() is is_own
        assert getattr(on(device), f"is_{backend}") is is_own
        if not Device.is_available(backend):
            with pytest.raises(BackendUnavailable):
                getattr(on(device), backend)()


def test_devices_are_those_that_open(device: Device) -> None:
    assert device in tallow.devices()
    assert tallow.devices()[0] == Device.default()
    assert Device.is_available(device.label)
    assert not Device.is_available(f"{device.backend}:999999")
    assert Device(device.label) == device
    assert device.location() == (device.backend, device.ordinal)
    assert device.same_device(Device.parse(device.label))
    assert device.supports("f32")
    assert device.supports_bf16()
    with pytest.raises(InvalidArgument, match="unknown backend 'gpu'; known are"):
        Device("gpu")


def test_creators_are_at_the_top(device: Device) -> None:
    for name in ("zeros", "ones", "rand", "randn"):
        assert getattr(tallow, name)((2, 3), device=device).shape == (2, 3)
    same(tallow.tensor([1, 2], device=device), np.array([1, 2]))
    same(tallow.arange(3, device=device), np.arange(3))
    same(tallow.full((2,), 7, device=device), np.array([7, 7]))
    same(tallow.eye(2, device=device), np.eye(2, dtype=np.float32))
    same(tallow.from_numpy(ARRAY, device), ARRAY)


def test_a_dtype_is_equal_to_its_names() -> None:
    assert DType.F32 == "f32" == DType.F32
    assert DType.F32 == "float32"
    assert np.float32 == DType.F32
    assert np.dtype(np.float32) == DType.F32
    assert DType.F32 != "f16"
    assert DType.F32 != DType.F16
    assert DType.F32 != 32
    for name in ("f31", "F32", "Float32", "half", "double", "long", "single", "torch.float16", "<f4"):
        with pytest.raises(InvalidArgument, match=f"'{name}' is no DType; use one of"):
            name == DType.F32  # noqa: B015
    for other in ("object", "category", "str", "longdouble", "datetime64[ns]", ""):
        assert other != DType.F32


def test_wrong_calls_name_the_fix(device: Device) -> None:
    x, indexes = Tensor([[1.0, 2.0]], device=device), Tensor([[0]], device=device)
    for message, call in {
        r"^gather: indexes must be a Tensor, not of type int; the dim comes after them: gather\(indexes, dim\)": (
            lambda: x.gather(0, indexes)
        ),
        "^tensor: nested lists have different lengths; make them of one length": lambda: Tensor([[1], [1, 2]]),
        r"^int: .*shape \(1, 2\).*; index it, reduce it or use tolist\(\)": lambda: int(x),
        r"^float: .*shape \(1, 2\).*; index it, reduce it or use tolist\(\)": lambda: float(x),
        r"^bool: .*shape \(1, 2\).*; use any\(\) or all\(\)": lambda: bool(x),
    }.items():
        with pytest.raises(InvalidArgument, match=message):
            call()


def test_only_methods_with_a_dim_say_where_it_comes() -> None:
    x = Tensor([[1.0]])
    saying = set()
    for name in dir(Tensor):
        method = inspect.getattr_static(Tensor, name)
        if name.startswith("_") or isinstance(method, classmethod | staticmethod) or not callable(getattr(x, name)):
            continue
        for others in range(3):
            try:
                getattr(x.copy(), name)(0, *[x] * others)
            except Exception as error:
                if "the dim comes after" in str(error):
                    saying.add(name)
                    assert "dim" in inspect.signature(getattr(Tensor, name)).parameters, error
    assert {"gather", "scatter_add", "index_select"} <= saying


def test_names_of_other_libraries_name_ours() -> None:
    x = Tensor([1.0])
    lacking = {name: word for name, word in names.OF_TENSORS.items() if not hasattr(Tensor, name)}
    for name, word in lacking.items():
        own = getattr(Tensor, word.removeprefix("x."), None)
        expected = re.escape(names.as_call(word, own))
        with pytest.raises(AttributeError, match=f"^a Tensor has no attribute '{name}'; use {expected}$"):
            getattr(x, name)
    assert len(lacking) > 80
    assert not set(lacking) & set(dir(x))
    # It would take a third of a small call.
    assert not hasattr(Tensor, "__getattr__")
    elsewhere = [name for name in names.OF_THE_PACKAGE if not hasattr(tallow, name)]
    for name in elsewhere:
        word = names.of_the_package(name, tallow)
        assert word is not None
        with pytest.raises(AttributeError, match=f"'tallow' has no attribute '{name}'; use {re.escape(word)}$"):
            getattr(tallow, name)
    assert len(elsewhere) > 100
    # What the words name is there.
    for word in (*names.OF_TENSORS.values(), *names.OF_THE_PACKAGE.values()):
        for attribute in re.findall(r"\bx\.(\w+)", word):
            assert hasattr(Tensor, attribute), word
        for attribute in re.findall(r"tallow\.(\w+)", word):
            assert hasattr(tallow, attribute), word


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Tensor([1.0]), "arctan2", "x.atan2(other)"),
        (Tensor([1.0]), "clip", "x.clamp(min, max)"),
        (Tensor([1.0]), "broadcast_to", "x.broadcast_as(shape)"),
        (Tensor([1.0]), "matrix_transpose", "x.mT"),
        (tallow, "concatenate", "tallow.cat(tensors)"),
        (tallow, "Parameter", "tallow.Var(tensor)"),
        (tallow, "arcsin", "the method x.asin() of a Tensor"),
        (tallow, "maximum", "the method x.maximum(other) of a Tensor"),
        (tallow, "repeat", "the method x.repeat_interleave(repeats) of a Tensor"),
    ],
)
def test_the_errors_show_calls_with_what_they_need(owner: object, name: str, call: str) -> None:
    with pytest.raises(AttributeError, match=f"; use {re.escape(call)}$"):
        getattr(owner, name)


def test_the_errors_name_what_is_called_alike_and_does_the_same() -> None:
    functions: dict[str, set[str]] = {}
    for ours, libraries in EQUIVALENTS.items():
        for theirs in (each for each in " ".join(libraries).split() if not each.startswith(("Tensor.", "ndarray."))):
            functions.setdefault(theirs.rpartition(".")[2], set()).add(ours)
    lacking = {name: ours for name, ours in functions.items() if not hasattr(tallow, name)}
    assert len(lacking) > 150
    for name, ours in lacking.items():
        word = names.of_the_package(name, tallow)
        assert word is not None
        if f"Tensor.{name}" in ours:
            assert re.search(rf"\bx\.{name}\b", word), (name, word)


def test_a_package_with_fewer_ops_names_none_that_it_lacks() -> None:
    class Small:
        __name__ = "small"
        Tensor, Device, DType = type("Tensor", (), {"exp": Tensor.exp}), tallow.Device, DType

    assert names.of_the_package("arcsin", Small()) is None
    assert names.of_the_package("concatenate", Small()) is None
    assert names.of_the_package("exp", Small()) == "the method x.exp() of a Tensor"


def test_other_names_are_as_unknown_as_ever() -> None:
    for owner, name in ((Tensor([1.0]), "reshap"), (tallow, "Tensr")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'$") as caught:
            getattr(owner, name)
        # So Python looks for a name that is spelled alike.
        assert (caught.value.name, caught.value.obj) == (name, owner)
    for name, word in {
        "float32": "the dtype 'f32'",
        "exp": r"the method x\.exp\(\)",
        "all": r"the method x\.all\(dim, keepdim\)",
        "cpu": r"Device\.cpu\(\)",
        "synchronize": r"the method device\.synchronize\(\) of a Device",
    }.items():
        with pytest.raises(AttributeError, match=word):
            getattr(tallow, name)


def test_what_pytorch_does_otherwise_says_what_to_use(device: Device) -> None:
    x = Tensor([[1.0, 2.0]], device=device)
    with pytest.raises(InvalidArgument, match=r"requires_grad out and make a variable of it: tallow\.Var\(Tensor"):
        tallow.tensor([1.0], requires_grad=True)
    assert Tensor([1.0], requires_grad=False).tolist() == [1.0]
    assert x.size == 2
    for arguments in ((), (0,)):
        with pytest.raises(TypeError, match=r"size: .* no method; use x\.shape, or x\.shape\[dim\]"):
            x.size(*arguments)  # type: ignore[operator]


def test_a_device_is_equal_to_its_label(device: Device) -> None:
    """As `parse` reads labels, and no other text."""
    cpu = Device.cpu()
    assert (cpu == "cpu", cpu == "cpu", cpu == "cpu:0", cpu != "cpu") == (True, True, True, False)
    for label in ("", "cpu:1", "cpu:", "cpu:-0", "CPU", "abacus", "cuda", "rocm:0"):
        assert (cpu == label, label == cpu, cpu != label) == (False, False, True)
    assert (cpu == 0, cpu == None) == (False, False)  # noqa: E711
    assert device in ("abacus", device.label)
    for other in Device.all():
        assert (other == device) is (other == device.label) is (other.label == device)
        assert (other == other.backend) is (other.ordinal == 0)


class OfAnotherLibrary:
    """Like a tensor of PyTorch with one element."""

    ndim, shape = 1, (1,)

    def __index__(self) -> int:
        return 0

    def __dlpack__(self, **options: object) -> object:
        raise NotImplementedError


OfAnotherLibrary.__name__, OfAnotherLibrary.__module__ = "Tensor", "torch._tensor"


def test_tensors_of_other_libraries_are_named_with_the_library(tmp_path: Path) -> None:
    foreign = OfAnotherLibrary()
    calls = {
        "x[foreign]": lambda: Tensor([1.0, 2.0])[foreign],
        "Var": lambda: tallow.Var(foreign),
        "SGD": lambda: tallow.optim.SGD([foreign]),
        "save_safetensors": lambda: tallow.save_safetensors({"x": foreign}, tmp_path / "x.safetensors"),
        "cat": lambda: tallow.cat([foreign]),
        "stack": lambda: tallow.stack(foreign),
    }
    for name in sorted(name for name in dir(Tensor) if not name.startswith("_")):
        method = inspect.getattr_static(Tensor, name)
        if not inspect.isfunction(method):
            continue
        needed = [
            each
            for each in list(inspect.signature(method).parameters.values())[1:]
            if each.default in (each.empty, REQUIRED) and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        if needed:
            bound = getattr(Tensor([[1.0]]), name)
            calls[name] = functools.partial(bound, *[foreign] * len(needed))
    assert len(calls) > 60
    for name, call in calls.items():
        with pytest.raises((tallow.TallowError, TypeError)) as caught:
            call()
        assert not re.search(r"(of type|is a|not a) Tensor\b", str(caught.value)), (name, str(caught.value))


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_tensors_to_join_that_are_not_in_a_list_are_refused_with_the_call(name: str) -> None:
    x = Tensor([1, 2])
    with pytest.raises(tallow.InvalidArgument, match=rf"; pass the tensors as one list: {name}\(\[x, y\], dim\)$"):
        getattr(tallow, name)(x, x)


def test_a_pickled_size_is_an_integer() -> None:
    assert type(pickle.loads(pickle.dumps(Tensor([1.0, 2.0]).size))) is int
