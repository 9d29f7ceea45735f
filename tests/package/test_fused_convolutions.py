"""Fused functions with convolutions: their bits, and what convolutions compute of them without `precise`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import DType, InvalidArgument, Tensor, UnaryOp
from tallow.runtime.base.error import FusionError
from tallow.runtime.core.conv import ParamsConvolution

Layer = Callable[..., Any]
EPILOGUE: Final = "scale", "bias", "residual"
PARAMS: Final = ParamsConvolution((2, 16, 5, 6), (16, 16, 3, 3), (5, 6), (1, 1), (1, 1), (1, 1))
ACTIVATIONS: Final = [op.value for op in UnaryOp if DType.F32 in op.dtypes and op.result_of(DType.F32) is DType.F32]


def normed(x: Any, kernel: Any, mean: Any, variance: Any, weight: Any, bias: Any, residual: Any) -> Any:
    return (x.conv2d(kernel, 1).batch_norm(mean, variance, weight, bias) + residual).relu()


def block(x: Any, kernel: Any, shortcut: Any, scale: Any, residual: Any) -> Any:
    """Two convolutions of one input, of which one is the residual of the other, and a third of what they give."""
    y = (x.conv2d(kernel, 1) * scale + x.conv2d(shortcut)).relu()
    return y.conv2d(kernel, 1) + residual, y


# What is fused in part, or where something else reads a value.
FUNCTIONS: Final[dict[str, Layer]] = {
    "a computed input": lambda x, kernel, y: x.relu().conv2d(kernel * 2, 1) - y,
    "a row op behind": lambda x, kernel, y: (x.conv2d(kernel, 1) * 3 + y).softmax(1),
    "results of each op": lambda x, kernel, y: [z := x.conv2d(kernel, 1), z, z + y, z + x],
    "a value that is stretched": lambda x, kernel, y: x.narrow(0, 0, 1).conv2d(kernel, 1) + y,
    "a result that is stretched": lambda x, kernel, y: x.narrow(0, 0, 1).conv2d(kernel, 1).broadcast_as(y.shape),
    "a number after it": lambda x, kernel, y: x.conv2d(kernel, 1) + 3,
    "one after the other": lambda x, kernel, y: (x.conv2d(kernel, 1).conv2d(kernel, 1) + y).exp(),
    "a view of arguments": lambda x, kernel, y: x.transpose(2, 3).conv2d(kernel.transpose(0, 1), 1).tanh(),
    "with a bias": lambda x, kernel, y: x.conv2d(kernel, 1, bias=kernel[:, 0, 0, 0]).relu() / y,
    "numbers": lambda x, kernel, y: 1 - (2 * x.conv2d(kernel, 1) + 3).relu(),
    "twice the same": lambda x, kernel, y: x.conv2d(kernel, 1) * x.conv2d(kernel, 1) + y,
    "an unused one": lambda x, kernel, y: (x.conv2d(kernel, 1), x + y)[1],
}


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tl.Device:
    """A device whose convolutions are those of this package."""
    if request.param == "cpu":
        return tl.Device.cpu()
    gpu = request.getfixturevalue("gpu")
    for name, kind in gpu.library_classes().items():
        if hasattr(kind, "convolution"):
            monkeypatch.setattr(type(gpu), name, None)
    return tl.Device(gpu)


def tensors(device: tl.Device, dtype: str, *shapes: tuple[int, ...], last: bool = False) -> list[Tensor]:
    normal = np.random.default_rng(0).standard_normal
    result = [Tensor(normal(shape) / 4, device=device).to_dtype(dtype) for shape in shapes]
    return [x.contiguous(memory_format="channels_last") if last and x.rank == 4 else x for x in result]


def same_bits(one: Any, other: Any) -> bool:
    pairs = zip(*[it if isinstance(it, list | tuple) else [it] for it in (one, other)], strict=True)
    return all(x.dtype is y.dtype and np.array_equal(x.numpy(), y.numpy(), equal_nan=True) for x, y in pairs)


def layer(activation: str | None, *names: str) -> Layer:
    """A convolution and the parts of an epilogue, as ops."""

    def ops(x: Any, kernel: Any, *operands: Any) -> Any:
        inputs, y = dict(zip(names, operands, strict=True)), x.conv2d(kernel, 1)
        y = y * inputs["scale"] if "scale" in inputs else y
        y = inputs["bias"] + y if "bias" in inputs else y
        y = y + inputs["residual"] if "residual" in inputs else y
        return y if activation is None else y._unary(UnaryOp(activation))

    return ops


def launched(profile: Any) -> list[str]:
    return [launch.name for launch in profile.launches]


def families(profile: Any) -> list[str]:
    """The families of kernels, without those that change order or dtype of operands."""
    names = [name.partition("/")[0] for name in launched(profile)]
    return [name.partition("_")[0] for name in names if name not in ("copy", "unary")]


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_precise_functions_have_the_bits_of_their_ops(function: Layer, last: bool, full: bool) -> None:
    for dtype in ("f32", "bf16", "f64") if full else ("bf16",):
        operands = tensors(tl.Device.cpu(), dtype, PARAMS.input_dims, PARAMS.kernel_dims, PARAMS.input_dims, last=last)
        fused = tl.fuse(function)
        for _ in range(2):
            results = fused(*operands)
            assert same_bits(results, function(*operands))
        # None of them shares memory with another.
        several = results if isinstance(results, list) else [results]
        assert len({id(x._storage.inner) for x in several}) == len(several)
        rounded = tl.fuse(function, precise=False)(*operands)
        ops = function(*[x.to_dtype("f64") for x in operands])
        for x, y in zip(*[it if isinstance(it, list) else [it] for it in (rounded, ops)], strict=True):
            np.testing.assert_allclose(x.to_dtype("f64").numpy(), y.numpy(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.full), "f32"])
def test_an_epilogue_is_the_one_of_the_convolution(device: tl.Device, dtype: str, full: bool) -> None:
    """Each combination of its parts, where the device has such a kernel, gives the bits of the call that names them."""
    channels = 16, 1, 1
    x, kernel, *parts = tensors(
        device, dtype, PARAMS.input_dims, PARAMS.kernel_dims, channels, channels, PARAMS.out_dims
    )
    subsets = list(itertools.product([False, True], repeat=3))
    for activation in (None, *(ACTIVATIONS if full or device.backend == "cpu" else ("relu", "hardswish"))):
        for has in subsets if activation is None else subsets[-1:]:
            inputs = {name: part for name, part, is_given in zip(EPILOGUE, parts, has, strict=True) if is_given}
            if not device.inner.has_epilogue(x.dtype, PARAMS, activation, has[-1]) or not (inputs or activation):
                continue

            vectors = {name: part if name == "residual" else part.reshape(16) for name, part in inputs.items()}
            with tl.profile() as reference:
                expected = x.conv2d(kernel, 1, activation=activation, **vectors)
            with tl.profile() as profile:
                actual = tl.fuse(layer(activation, *inputs), precise=False)(x, kernel, *inputs.values())
            assert same_bits(actual, expected), (activation, inputs)
            assert launched(profile) == launched(reference), (activation, inputs)


def test_a_batch_norm_is_a_scale_and_a_bias(device: tl.Device) -> None:
    channels = [(16,)] * 4
    operands = tensors(device, "bf16", PARAMS.input_dims, PARAMS.kernel_dims, *channels, PARAMS.out_dims)
    operands[3] = operands[3].abs()
    exact = normed(*[x.to_dtype("f64") for x in operands]).numpy()
    by_ops, fused = normed(*operands), tl.fuse(precise=False)(normed)
    with tl.profile() as profile:
        result = fused(*operands)
    errors = [abs(x.to_dtype("f64").numpy() - exact).max() for x in (result, by_ops)]
    assert errors[0] < errors[1]
    if device.backend != "cpu":
        assert families(profile) == ["normed", "conv"]


def test_a_residual_may_be_a_later_convolution(device: tl.Device) -> None:
    operands = tensors(
        device, "bf16", PARAMS.input_dims, PARAMS.kernel_dims, (16, 16, 1, 1), (16, 1, 1), PARAMS.out_dims
    )
    with tl.profile() as profile:
        result = tl.fuse(block, precise=False)(*operands)
    if device.backend != "cpu":
        assert families(profile) == ["conv"] * 3
    for x, y in zip(result, block(*[x.to_dtype("f64") for x in operands]), strict=True):
        np.testing.assert_allclose(x.to_dtype("f64").numpy(), y.numpy(), rtol=0.02, atol=0.02)


def test_recorded_convolutions_have_the_gradients_of_their_ops() -> None:
    operands = tensors(tl.Device.cpu(), "f32", PARAMS.input_dims, PARAMS.kernel_dims, *[(16,)] * 4, PARAMS.out_dims)
    operands[3] = operands[3].abs()
    gradients = []
    for function in (normed, tl.fuse(normed), tl.fuse(normed, precise=False)):
        variables = [tl.Var(x) if index not in (2, 3) else x for index, x in enumerate(operands)]
        by_variable = function(*variables).sum().backward()
        gradients.append([by_variable[x] for x in variables if isinstance(x, tl.Var)])
    assert same_bits(gradients[0], gradients[1])
    assert same_bits(gradients[0], gradients[2])


def test_other_convolutions_are_refused() -> None:
    x, kernel = tensors(tl.Device.cpu(), "f32", (1, 2, 4, 4), (2, 2, 2, 2))
    with pytest.raises(FusionError, match="conv_transpose2d is no elementwise op"):
        tl.fuse(lambda x, kernel: x.conv_transpose2d(kernel))(x, kernel)
    with pytest.raises(FusionError, match="conv2d is given a tensor that is no argument"):
        tl.fuse(lambda x: x.conv2d(kernel))(x)
    with pytest.raises(InvalidArgument, match="precise"):
        tl.fuse(lambda x: x, precise="no")  # type: ignore[call-overload]
