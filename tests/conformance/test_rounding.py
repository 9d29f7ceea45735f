"""Functions of 16-bit floats give what f32 arithmetic gives, rounded once, however many ops they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, Tensor, Var

from . import hostile
from .test_aliasing import CALLS

# What a random call draws depends on the dtype.
RANDOM = ("rand", "randn", "rand_like", "randn_like", "bernoulli", "multinomial", "dropout", "randint", "randperm")
EXEMPT = {
    "Tensor.allclose": "its tolerance is of f32",
    "xp.nextafter": "the next number of the dtype",
    "Tensor.nextafter": "the next number of the dtype",
    **dict.fromkeys(
        ["Tensor.layer_norm", "Tensor.rms_norm"], "of a residual the sum is a result, and normalised as such"
    ),
}
# Of parameters of these names, what they may be.
OWN = {
    "reduction": hostile.values("'mean'; 'sum'; 'none'"),
    "ord": hostile.values("3; 6; -2; 0.5; float('inf')"),
}
DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    # Sums and differences of these cancel, so that what was rounded before shows.
    "normal": lambda generator, shape: generator.normal(size=shape),
    "positive": lambda generator, shape: generator.uniform(0.05, 0.95, shape),
    "large": lambda generator, shape: 250 * (1 + generator.uniform(-0.5, 0.5, shape)),
}


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors among values."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def drawn(value: Any, draw: Callable[..., np.ndarray], generator: np.random.Generator, dtype: DType) -> Any:
    """The same with numbers of a 16-bit dtype in f32 instead of those of each f32 tensor."""
    if isinstance(value, Tensor) and value.dtype is DType.F32:
        return Tensor(draw(generator, tuple(value.shape))).to_dtype(dtype).to_dtype(DType.F32).to(value.device)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(drawn(item, draw, generator, dtype) for item in value)
    return value


def converted(value: Any, dtype: DType) -> Any:
    """The same with f32 tensors in a dtype, and the dtype instead of f32."""
    if isinstance(value, Tensor) and value.dtype is DType.F32:
        return value.to_dtype(dtype)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(converted(item, dtype) for item in value)
    return value.copy() if isinstance(value, Tensor) else value


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
@pytest.mark.parametrize(
    "name", [name for name in CALLS if name.rpartition(".")[2] not in RANDOM and name not in EXEMPT]
)
def test_results_are_rounded_once(device: Device, name: str, dtype: DType) -> None:
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    base, *others = examples(CALLS[name])
    check(base, device, dtype, DRAWS, 2)
    for example in others:
        check(example, device, dtype, ["normal"], 1)


def examples(call: hostile.Call) -> Iterator[hostile.Example]:
    """A call that fits, and those with other numbers, texts and flags instead of one."""
    base = hostile.base_of(call)
    yield base
    for parameter in call.parameters:
        values = OWN.get(parameter.name, [])
        if "VAR" not in parameter.kind.name and re.search(r"\b(int|float|bool|Order)\b", str(parameter.annotation)):
            values = [*values, *hostile.values("0; 1; 2; 3; -1; False; True")]
        yield from (base.changed({parameter.name: value}) for value in values)


def check(base: hostile.Example, device: Device, dtype: DType, kinds: Iterable[str], count: int) -> None:
    """Call with numbers of 16 bits, and with the same ones in f32."""
    call = base.call
    for kind in kinds:
        generator, draw = np.random.default_rng(0), DRAWS[kind]
        for _ in range(count):
            of, arguments, keywords = made(base, device)
            of, arguments, *values = drawn([of, arguments, *keywords.values()], draw, generator, dtype)
            results = []
            for computed in (dtype, DType.F32):
                own, inputs, *remaining = converted([of, arguments, *values], computed)
                try:
                    result = call.find(own)(*inputs, **dict(zip(keywords, remaining, strict=True)))
                    device.synchronize()
                except Exception as error:  # what other tests say of arguments that do not fit
                    results.append(type(error))
                else:
                    results.append([*tensors(result)])
            short, wide = results
            if not isinstance(wide, list) or not isinstance(short, list):
                continue
            for one, other in zip(short, wide, strict=True):
                if one.dtype is dtype and other.dtype is DType.F32:
                    assert_rounded(one, other.to_dtype(dtype), f"{base} of {kind} numbers")


def made(base: hostile.Example, device: Device) -> tuple[Any, list[Any], dict[str, Any]]:
    """The object of a call and its arguments, anew."""
    of = None if base.of is None else base.of.make(device)
    arguments = [value.make(device) for value in base.arguments]
    return of, arguments, {name: value.make(device) for name, value in base.keywords.items()}


def assert_rounded(actual: Tensor, expected: Tensor, where: str, slack: float = 0.0) -> None:
    """Two roundings of f32 results that differ in their last bits may be neighbours."""
    got, right = (tensor.to("cpu").to_dtype(DType.F64).numpy() for tensor in (actual, expected))
    info = ml_dtypes.finfo(actual.dtype.numpy)
    eps, least = float(info.eps), float(info.smallest_subnormal)
    with np.errstate(invalid="ignore"):
        ulp = np.maximum(eps * np.exp2(np.floor(np.log2(np.maximum(np.abs(right), 1e-300)))), least)
        is_near = (got == right) | (np.isnan(got) & np.isnan(right)) | (np.abs(got - right) <= ulp + slack)
    assert is_near.all(), f"{where}: {got[~is_near][:3]}, not {right[~is_near][:3]}"


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
@pytest.mark.parametrize("op", ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"])
@pytest.mark.parametrize(("channels", "groups"), [(8, 1), (16, 2), (3, 1), (4, 4)])
def test_convolutions_round_once_with_their_bias(
    device: Device, op: str, channels: int, groups: int, dtype: DType
) -> None:
    """Also of results near 0, and at the padding; so are their gradients."""
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    generator, dims = np.random.default_rng(0), int(op[-2])
    kernels = 2 * groups if "transpose" not in op else channels
    shapes = (2, channels, *[6] * dims), (kernels, 2 if "transpose" in op else channels // groups, *[3] * dims)
    arrays = [generator.normal(size=shape) for shape in (*shapes, (2 * groups,))]
    short = [Var(Tensor(array).to_dtype(dtype).to(device)) for array in arrays]
    wide = [Var(x.detach().to_dtype("f32")) for x in short]
    # Windows overlap, reach beyond the input, and lie side by side.
    for steps in ({}, {"padding": 1}, {"padding": 2, "stride": 2, "dilation": 2}, {"stride": 3}):
        results, gradients = [], []
        for x, kernel, bias in (short, wide):
            result = getattr(x, op)(kernel, groups=groups, bias=bias, **steps)
            actual = result.sqr().sum().backward() if dtype is DType.BF16 else result.sum().backward()
            results.append(result.detach())
            gradients.append([actual[each] for each in (x, kernel, bias)])
        assert results[0].dtype is dtype
        # Matrix cores add in another order, which shows where terms cancel.
        x, kernel, _ = (each.detach().abs() for each in wide)
        slack = 2**-22 * float(getattr(x, op)(kernel, groups=groups, **steps).max().item())
        assert_rounded(results[0], results[1].to_dtype(dtype), f"{op}, {steps}", slack)
        for got, right in zip(*gradients, strict=True):
            bound = 2**-4 * float(right.abs().max().item())
            np.testing.assert_allclose(got.to_dtype("f32").numpy(), right.numpy(), rtol=2**-6, atol=bound)


@pytest.mark.parametrize("equation", ["ij->", "ij,jk,kl->il", "ij,kl->ik", "ii,ij->j", "ij,jk->ik"])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_sums_of_products_are_rounded_once(device: Device, equation: str, dtype: DType) -> None:
    if not device.supports(dtype):
        pytest.skip(f"{device.label} lacks {dtype}")
    generator = np.random.default_rng(0)
    count = equation.count(",") + 1
    for _ in range(10):
        short = [Tensor(generator.normal(size=(4, 4))).to_dtype(dtype).to(device) for _ in range(count)]
        wide = [x.to_dtype("f32") for x in short]
        assert_rounded(tl.einsum(equation, *short), tl.einsum(equation, *wide).to_dtype(dtype), equation)
