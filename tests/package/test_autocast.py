"""`autocast`: the dtypes of all ops that it concerns, which the spec and the names of methods list, and its casts."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import own_spec
import pytest
import tallow as tl
from tallow import DType, Tensor
from tallow.runtime.transforms import autocast

generator = np.random.default_rng(0)
SELECTIONS = {"min", "max", "any", "all", "argmin", "argmax"}


def numbers(*shape: int, dtype: str = "f32") -> Tensor:
    return Tensor(generator.random(shape), dtype=dtype)


def lstm_weights(gates: int, dtype: str, ending: str = "_l0") -> dict[str, Tensor]:
    shapes = {
        "weight_ih": (gates * 2, 3),
        "weight_hh": (gates * 2, 2),
        "bias_ih": (gates * 2,),
        "bias_hh": (gates * 2,),
    }
    return {f"{name}{ending}": numbers(*shape, dtype=dtype) for name, shape in shapes.items()}


def convolved(name: str, dtype: str) -> Tensor:
    dims = int(name[-2])
    x, kernel = numbers(2, 4, *[5] * dims, dtype=dtype), numbers(4, 4, *[2] * dims, dtype=dtype)
    result: Tensor = getattr(x, name)(kernel, bias=numbers(4, dtype=dtype))
    return result


# Calls of products and convolutions with operands of a dtype; those of convolutions follow from their names.
PRODUCTS: dict[str, Callable[[str], Any]] = {
    "matmul": lambda d: numbers(2, 3, dtype=d).matmul(numbers(3, 2, dtype=d)),
    "__matmul__": lambda d: numbers(2, 3, dtype=d) @ numbers(3, dtype=d),
    "linear": lambda d: numbers(2, 3, dtype=d).linear(numbers(4, 3, dtype=d), numbers(4, dtype=d)),
    "dot": lambda d: numbers(3, dtype=d).dot(numbers(3, dtype=d)),
    "tensordot": lambda d: numbers(2, 3, dtype=d).tensordot(numbers(3, 2, dtype=d), 1),
    "einsum": lambda d: tl.einsum("ij,jk,kl->il", *[numbers(3, 3, dtype=d) for _ in range(3)]),
    "scaled_dot_product_attention": lambda d: numbers(1, 2, 3, 4, dtype=d).scaled_dot_product_attention(
        numbers(1, 2, 3, 4, dtype=d), numbers(1, 2, 3, 4, dtype=d), numbers(3, 3, dtype=d)
    ),
    "lstm": lambda d: tl.lstm(numbers(4, 2, 3, dtype=d), lstm_weights(4, d), (numbers(1, 2, 2), numbers(1, 2, 2)))[0],
    "gru": lambda d: tl.gru(numbers(4, 2, 3, dtype=d), lstm_weights(3, d))[0],
    "lstm_cell": lambda d: tl.lstm_cell(numbers(2, 3, dtype=d), lstm_weights(4, d, ""))[1],
    "gru_cell": lambda d: tl.gru_cell(numbers(2, 3, dtype=d), lstm_weights(3, d, "")),
    **{name: partial(convolved, name) for name in dir(Tensor) if name.startswith("conv")},
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_of_16_bits(name: str) -> None:
    for dtype in ("bf16", "f16"):
        with tl.autocast(dtype):
            assert PRODUCTS[name]("f32").dtype.value == dtype
            assert PRODUCTS[name]("bf16").dtype.value == dtype
            with tl.autocast("f32"):
                assert PRODUCTS[name]("f32").dtype is DType.F32
    with tl.autocast("bf16"):
        if "lstm" not in name:
            assert PRODUCTS[name]("f64").dtype is DType.F64
    assert PRODUCTS[name]("f32").dtype is DType.F32


def sums() -> dict[str, bool]:
    """Reductions, scans and ops of rows, and whether they are in f32."""
    functors = own_spec.read().functors
    results = {it.name: it.name not in SELECTIONS for it in functors["reduce"].chosen if it.has_front}
    results |= {it.name: not it.positions for it in functors["scan"].chosen}
    rows = {it.name: True for it in functors["row"].chosen if it.name in dir(Tensor) and len(it.operands) == 1}
    return results | rows | {"sum": True, "prod": True, "mean": True, "var": True, "std": True}


@pytest.mark.parametrize(("name", "is_wide"), sums().items())
def test_sums_are_of_f32(name: str, is_wide: bool) -> None:
    method = getattr(Tensor, name)
    with tl.autocast("bf16"):
        actual = [method(numbers(3, 4, dtype=dtype), 1) for dtype in ("bf16", "f16", "f32", "f64")]
    actual = [it[0] if isinstance(it, tuple) else it for it in actual]
    if actual[0].dtype.is_float:
        assert [it.dtype.value for it in actual] == (["f32"] * 3 if is_wide else ["bf16", "f16", "f32"]) + ["f64"]


def layers() -> list[str]:
    """Norms and losses, by their names."""
    names = [name for name in dir(Tensor) if name.endswith(("_norm", "_loss")) or "cross_entropy" in name]
    elementwise = {it.name for it in own_spec.read().functors["binary"].chosen}
    return [name for name in names if not name.startswith("_") and name not in elementwise]


@pytest.mark.parametrize("name", layers())
def test_norms_and_losses_are_of_f32(name: str) -> None:
    method = getattr(Tensor, name)
    parameters = inspect.signature(method).parameters
    options: dict[str, Any] = {"training": True} if "training" in parameters else {}
    options |= {name: 2 for name in ("groups", "size") if name in parameters}
    for dtype, expected in (("bf16", "f32"), ("f32", "f32"), ("f64", "f64")):
        options |= {
            other: numbers(4, dtype=dtype) for other in ("weight", "bias") if other in parameters and "norm" in name
        }
        options |= {"target": numbers(3, 4, dtype=dtype)} if "target" in parameters else {}
        options |= {"targets": Tensor([0, 1, 2])} if "targets" in parameters else {}
        with tl.autocast("bf16"):
            sizes = (3, 4, 2) if name == "instance_norm" else (3, 4)
            assert method(numbers(*sizes, dtype=dtype), **options).dtype.value == expected


def test_other_ops_take_operands_as_they_are() -> None:
    x, short = numbers(3), numbers(3, dtype="bf16")
    with tl.autocast("f16"):
        assert (x + x).dtype is DType.F32 and (short * short).dtype is DType.BF16 and short.exp().dtype is DType.BF16
        assert (Tensor([[1, 2]]) @ Tensor([[1], [2]])).item() == 5


def test_values_and_gradients_are_those_of_conversions() -> None:
    w, b, x = tl.Var(numbers(3, 2)), tl.Var(numbers(2)), numbers(4, 3)

    def loss_of(w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return (x @ w + b).tanh().softmax(1).mse_loss(x[:, :2])

    def by_hand(w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        product = x.to_dtype("bf16") @ w.to_dtype("bf16")
        return (product + b).tanh().softmax(1).mse_loss(x[:, :2])

    expected = by_hand(w, b, x)
    for function in (loss_of, tl.checkpoint(loss_of), tl.fuse(loss_of)):
        with tl.autocast("bf16"):
            loss = function(w, b, x)
            inside = loss.backward(keep=True)
        for grads in (inside, loss.backward()):
            assert loss.item() == expected.item()
            assert grads[w].tolist() == expected.backward(keep=True)[w].tolist() and grads[w].dtype is DType.F32
            assert grads[b].tolist() == expected.backward(keep=True)[b].tolist()
    with tl.autocast("bf16"):
        assert tl.vmap(lambda x: x @ w)(x).tolist() == (x.to_dtype("bf16") @ w.to_dtype("bf16")).tolist()
        fused = tl.fuse(lambda x: x.softmax(0))
        assert fused(numbers(3, dtype="bf16")).dtype is DType.F32
    assert fused(numbers(3, dtype="bf16")).dtype is DType.BF16


def test_backward_keeps_the_dtypes_of_forward() -> None:
    w, b, x = tl.Var(numbers(3, 2)), tl.Var(numbers(2, dtype="bf16")), numbers(4, 3)
    loss = (x @ w).sqr().sum() + (numbers(4, 2, dtype="bf16") + b).sqr().sum().float()
    with tl.autocast("bf16"):
        inside = loss.backward(keep=True)
    outside = loss.backward()
    assert inside[w].tolist() == outside[w].tolist() and inside[b].tolist() == outside[b].tolist()


def test_a_variable_is_converted_once_until_it_changes() -> None:
    w, x = tl.Var(numbers(3, 3)), numbers(2, 3)
    optimizer = tl.optim.SGD([w], 0.5)
    with tl.autocast("bf16"):
        block = autocast._block.get()
        assert block is not None

        def cast(w: tl.Var = w) -> Any:
            y = x @ w.T @ w
            return block.casts[w._storage].storage, y

        first, _ = cast()
        assert cast()[0] is first
        with tl.no_grad():
            plain, y = cast()
            assert plain is not first and not y.is_recorded and cast()[0] is plain
        again, y = cast()
        assert again is not plain and y.is_recorded
        grads = y.sum().backward()
        later, y = cast()
        assert later is not again and y.sum().backward()[w].tolist() == grads[w].tolist()
        optimizer.step(grads)
        with tl.no_grad():
            assert cast()[1].tolist() == (x.to_dtype("bf16") @ w.T.to_dtype("bf16") @ w.to_dtype("bf16")).tolist()
            w.mul_(2.0)
            assert cast()[1].tolist() == (x.to_dtype("bf16") @ w.T.to_dtype("bf16") @ w.to_dtype("bf16")).tolist()
        del w, optimizer, grads, y, first, plain, again, later, cast
        gc.collect()
        assert not block.casts


def test_a_replayed_graph_converts_variables_as_they_are(device: tl.Device) -> None:
    w, x = tl.Var(tl.ones((3, 3), device=device)), tl.ones((2, 3), device=device)
    with tl.autocast("bf16"), tl.no_grad():
        assert (x @ w)[0, 0].item() == 3.0
        try:
            graph = tl.Graph(device)
        except tl.UnsupportedDevice as error:
            pytest.skip(str(error))
        with graph.capture():
            y = x @ w
        w.mul_(2.0)
        graph.replay()
        assert y.tolist() == (x @ w).tolist() == [[6.0] * 3] * 2


def test_errors() -> None:
    for dtype in ("f64", "i64", "f8e4m3"):
        with pytest.raises(tl.InvalidArgument, match="autocast: dtype is bf16 or f16, or f32 for none"):
            tl.autocast(dtype)
    with pytest.raises(ZeroDivisionError), tl.autocast("bf16"):
        raise ZeroDivisionError
    assert (numbers(2, 2) @ numbers(2, 2)).dtype is DType.F32
    assert not tl.runtime.storage.calls.live_autocasts
