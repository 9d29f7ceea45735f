"""`vmap` compared with a loop: each storage method of the spec that has a rule, and programs of several calls."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import BatchingError, DType, GgmlDType, Layout, Tensor
from tallow.batching import BATCHING
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.selftest import examples, trial

EXAMPLES = 3


def cells() -> Iterator[SupportCell]:
    """One cell of each op, of f32 where that is supported."""
    supported = [cell for cell in tl.support() if cell.backend == "cpu" and cell.status == "supported"]
    for (method, _), each in itertools.groupby(supported, lambda cell: (cell.method, cell.op)):
        if method in BATCHING and BATCHING[method].rule is not None:
            yield min(each, key=lambda cell: str(cell.dtype) != "f32")


@cache
def supported(backend: str) -> set[tuple[Any, ...]]:
    cells = [cell for cell in tl.support() if cell.backend == backend and cell.status == "supported"]
    return {(cell.method, cell.op, cell.dtype) for cell in cells}


def example_of(
    cell: SupportCell, device: tl.Device, seed: int, lay: Callable[[Sequence[int]], Layout]
) -> tuple[Any, Any]:
    """The owner and the arguments of a call."""
    generator = np.random.default_rng(seed)

    def make(name: str, length: int, numbers: examples.Numbers = examples.ANY) -> tl.Storage:
        return device.storage(trial.array(generator, name, length, numbers))

    if isinstance(cell.dtype, GgmlDType):
        return device.quantized_zeros(examples.block_count(cell), cell.dtype), examples.block_arguments(cell, make)
    result = examples.storage_example(cell, make, lay=lay)
    return result.owner, result.arguments


def transposed(sizes: Sequence[int]) -> Layout:
    """A layout whose elements follow each other in the order of another one."""
    return Layout.contiguous(tuple(reversed(sizes))).permute(tuple(reversed(range(len(sizes)))))


def flat(storage: tl.Storage) -> Tensor:
    return Tensor.from_storage(storage, storage.length)


def each(value: Any) -> list[tl.Storage]:
    """The storages of an operand, or of a result."""
    storages = value if isinstance(value, tuple) else (value,)
    return [it for it in storages if isinstance(it, tl.Storage)]


def results(cell: SupportCell, owner: Any, arguments: dict[str, Any]) -> list[Tensor]:
    """What a call gives, or writes to."""
    result = getattr(owner, cell.method)(*arguments.values())
    if result is None:
        # Some methods write to another operand than the storage itself.
        result = arguments.get("dst", owner)
    return [flat(storage) for storage in each(result)]


@pytest.mark.parametrize("cell", list(cells()), ids=lambda cell: f"{cell.method}-{cell.op or cell.dtype}")
def test_a_call_of_a_batch_is_a_loop(cell: SupportCell, device: tl.Device) -> None:
    if (cell.method, cell.op, cell.dtype) not in supported(device.backend):
        pytest.skip("the backend lacks the op")
    operands = [*BATCHING[cell.method].operands]
    target = "dst" if "dst" in operands else "self"
    writes = cell.method in WRITES
    for lay, batched in itertools.product(
        (examples.contiguous, transposed), dict.fromkeys([tuple(operands), tuple(operands[:1]), tuple(operands[1:])])
    ):
        # What is saved is of the elements: not all operands are another one's.
        if cell.method == "cross_entropy_gradient" and len(batched) < len(operands):
            continue
        if not batched or (writes and target not in batched) or (lay is transposed and not is_laid(cell)):
            continue
        calls = [example_of(cell, device, seed, lay) for seed in range(EXAMPLES)]
        named = [{"self": owner, **arguments} for owner, arguments in calls]
        chosen = [name for name in batched if each(named[0][name])]
        if not chosen:
            continue
        stacks = [
            [tl.stack([flat(it) for it in group]) for group in zip(*[each(it[name]) for it in named], strict=True)]
            for name in chosen
        ]

        def one(
            tensors: list[list[Tensor]], chosen: list[str] = chosen, first: dict[str, Any] = named[0]
        ) -> list[Tensor]:
            inputs = dict(first)
            for name, parts in zip(chosen, tensors, strict=True):
                storages = tuple(part.storage for part in parts)
                inputs[name] = storages if isinstance(first[name], tuple) else storages[0]
            owner = inputs.pop("self")
            return results(cell, owner, inputs)

        expected = []
        for i in range(EXAMPLES):
            # Stacks are copied, since some calls write.
            expected.append(one([[part[i].copy() for part in parts] for parts in stacks]))
        actual = tl.vmap(one)(stacks)
        for full, *parts in zip(actual, *expected, strict=True):
            values = np.stack([part.numpy() for part in parts])
            assert full.dtype is parts[0].dtype and full.shape == values.shape
            np.testing.assert_allclose(full.numpy(), values, rtol=2e-5, atol=2e-5, err_msg=f"{lay.__name__} {batched}")


WRITES = {"const_set", "assign", "binary_assign", "scatter_set", "scatter_add", "copy_strided_src", "copy2d"}


def is_laid(cell: SupportCell) -> bool:
    """Whether a call takes operands of any layout."""
    return isinstance(cell.dtype, DType) and cell.method not in ("copy2d", "try_clone", "cholesky", "eigh", "solve")


def test_each_method_has_a_rule_or_says_what_to_do() -> None:
    for name, batching in BATCHING.items():
        assert (batching.rule is None) == bool(batching.reason), name
        assert not batching.reason or ";" in batching.reason, name


@pytest.mark.parametrize("name", [name for name, batching in BATCHING.items() if batching.rule is None])
def test_a_call_without_a_rule_says_what_to_do(name: str) -> None:
    """Its other arguments are not looked at."""
    batching = BATCHING[name]
    operand = next(it for it in batching.operands if it in ("self", "src", "x"))

    def one(x: Tensor) -> Tensor:
        inputs = [x.storage if it == operand else None for it in batching.parameters]
        owner = x.storage if operand == "self" else tl.Device.cpu().quantized_zeros(256, GgmlDType.F32)
        getattr(tl.Storage.recorded.fget(x.storage), name)(owner, *inputs)  # type: ignore[attr-defined]
        return x

    with pytest.raises(BatchingError) as error:
        tl.vmap(one)(tl.ones((2, 3)))
    assert str(error.value) == f"{name}: {batching.reason}"


X = Tensor(np.random.default_rng(0).normal(size=(4, 3)))
W = Tensor(np.random.default_rng(1).normal(size=(3, 5)))


def loop(function: Callable[..., Tensor], *batches: Tensor) -> Any:
    return np.stack([function(*[batch[i] for batch in batches]).numpy() for i in range(batches[0].shape[0])])


# What tensors make of several calls, or by themselves.
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "views": lambda x: x.unsqueeze(0).transpose(0, 1).broadcast_as((3, 2)).narrow(0, 1, 2).reshape(-1),
    "steps": lambda x: x[::2].flip(0),
    "index": lambda x: x[tl.Tensor([2, 0])],
    "where": lambda x: (x > 0).where(x, -x) + tl.where(x < 0, 1.0, x),
    "einsum": lambda x: tl.einsum("i,ij,k->jk", x, W, x),
    "one_hot": lambda x: x.argsort().one_hot(3).float() @ x,
    "scatter": lambda x: (
        tl.zeros(4, dtype="f64").scatter_add(x.argsort(), x, 0)
        + tl.zeros(4, dtype="f64").scatter(x.argsort(), x, 0)[:4]
    ),
    "into": lambda x: x.zeros_like().add_(x).mul_(2.0) + x.copy().fill_(1.0).sub_(x),
    "slices": lambda x: _set(x.copy(), x),
    "pad": lambda x: x.pad_with_zeros(0, 1, 2).roll(1, 0).cumsum(0),
    "norms": lambda x: x.layer_norm(x, x) + x.rms_norm(x) + x.softmax(0) + x.log_softmax(0),
    "losses": lambda x: (x.mse_loss(x * 2) + x.unsqueeze(0).cross_entropy(x.argmax(0, keepdim=True))).reshape(1),
    "decompositions": lambda x: tl.linalg.solve(x.unsqueeze(0) * x.unsqueeze(1) + tl.eye(3, dtype="f64"), x),
    "topk": lambda x: x.topk(2)[0] + x.sort(0)[0][:2] + x.max() + x.var(0) + x.norm(),
    "fused": tl.fuse(lambda x: x.exp() * x + 1.0),
    "search": lambda x: x.sort(0)[0].searchsorted(x).float(),
    "images": lambda x: x.reshape(1, 1, 1, 3).max_pool2d((1, 2), (1, 1), (0, 1)).avg_pool2d((1, 2)).reshape(-1),
    "convolution": lambda x: x.reshape(1, 1, 3).conv1d(x[:2].reshape(1, 1, 2), padding=1).reshape(-1),
    "groups": lambda x: x.reshape(1, 3, 1).conv1d(W[:, :2].reshape(6, 1, 1), groups=3).reshape(-1),
    "channels_last": lambda x: sum(
        (_last(x).conv1d(kernel) + _last(x).conv_transpose1d(kernel.transpose(0, 1))).reshape(-1)
        for kernel in (W[:, :3].unsqueeze(2), (W[:, :3] * x).unsqueeze(2))
    ),
    "group_norm": lambda x: _last(x).group_norm(3, x, x).reshape(-1) + _last(x).group_norm(1).reshape(-1),
    "lstm": lambda x: tl.lstm(
        x.reshape(3, 1, 1),
        {"weight_ih_l0": W[:, :4].reshape(12, 1)[:4], "weight_hh_l0": x[:1] * W[0, :4].reshape(4, 1)},
    )[0].reshape(-1),
    "gru": lambda x: tl.gru(
        x.reshape(3, 1, 1), {"weight_ih_l0": W[0, :3].reshape(3, 1), "weight_hh_l0": W[1, :3].reshape(3, 1)}
    )[0].reshape(-1),
    "bicubic": lambda x: x.reshape(1, 1, 1, 3).upsample_bicubic2d(1, 5).reshape(-1),
    "class_losses": lambda x: (
        x.unsqueeze(0).cross_entropy(x.argmax(0, keepdim=True), weight=x.exp(), label_smoothing=0.1).reshape(1)
    ),
    "constant": lambda x: tl.ones(2, dtype="f64"),
}


def _last(x: Tensor) -> Tensor:
    """An image of one dim with three channels, which are last in memory."""
    return (W.T * x).reshape(1, 5, 3).transpose(1, 2)


def _set(y: Tensor, x: Tensor) -> Tensor:
    y[1:] = x[:2]
    y[0] += 1.0
    return y


@pytest.mark.parametrize("function", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(function: Callable[[Tensor], Tensor]) -> None:
    np.testing.assert_allclose(tl.vmap(function)(X).numpy(), loop(function, X), rtol=1e-6)
    nested = tl.vmap(tl.vmap(function))(X.reshape(2, 2, 3))
    np.testing.assert_allclose(nested.numpy().reshape(4, -1), loop(function, X).reshape(4, -1), rtol=1e-6)


@pytest.mark.parametrize("function", [PROGRAMS[name] for name in sorted({*PROGRAMS} - {"search", "constant", "fused"})])
def test_gradients_of_examples(function: Callable[[Tensor], Tensor]) -> None:
    """Those of a value_and_grad in a vmap, and through one."""
    slope = lambda x: tl.value_and_grad(lambda x: function(x).sqr().sum())(x)[1][0]  # noqa: E731
    expected = loop(slope, X)
    np.testing.assert_allclose(tl.vmap(slope)(X).numpy(), expected, rtol=1e-6, atol=1e-9)
    through = tl.value_and_grad(lambda x: tl.vmap(function)(x).sqr().sum())(X)[1][0]
    np.testing.assert_allclose(through.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_weights_that_all_share() -> None:
    weight = tl.Var(W)
    score = lambda w, x: (x @ w).tanh().sum()  # noqa: E731
    every = tl.vmap(score, in_dims=(None, 0))(weight, X).sum().backward()[weight]
    of_each = tl.vmap(lambda w, x: tl.value_and_grad(lambda w: score(w, x))(w)[1][0], in_dims=(None, 0))(W, X)
    assert of_each.shape == (4, 3, 5)
    np.testing.assert_allclose(of_each.sum(0).numpy(), every.numpy(), rtol=1e-9)
    # A variable of outside is a constant of what is recorded inside, whose own record goes on.
    inner = tl.vmap(lambda x: tl.value_and_grad(lambda x: score(weight, x))(x)[1][0])(X)
    assert inner.is_recorded and inner.sum().backward()[weight].shape == W.shape


def test_gradients_through_gradients_of_examples() -> None:
    def penalty(rows: Callable[[Callable[[Tensor], Tensor]], Tensor], w: Tensor) -> Tensor:
        return rows(lambda x: tl.value_and_grad(lambda w: (x @ w).tanh().sum())(w)[1][0]).sqr().sum()

    looped = tl.value_and_grad(lambda w: penalty(lambda f: tl.stack([f(X[i]) for i in range(4)]), w))(W)
    batched = tl.value_and_grad(lambda w: penalty(lambda f: tl.vmap(f)(X), w))(W)
    np.testing.assert_allclose(batched[1][0].numpy(), looped[1][0].numpy(), rtol=1e-9)


def test_dims() -> None:
    x, y = tl.arange(24.0).reshape(2, 3, 4), tl.arange(3.0)
    assert tl.vmap(lambda a, b: a + b, in_dims=(1, 0))(x, y).shape == (3, 2, 4)
    assert tl.vmap(lambda a: a * 2, in_dims=-1, out_dims=1)(x).shape == (2, 4, 3)
    assert tl.vmap(lambda a: (a, {"b": a[0]}), in_dims=1, out_dims=(0, 1))(x)[1]["b"].shape == (4, 3)
    nested = tl.vmap(lambda a, scale: a["x"] * a["y"][0] * scale, in_dims=({"x": 0, "y": [None]}, None))
    assert nested({"x": x, "y": [x[0]]}, 2.0).tolist() == (x * x[0] * 2).tolist()
    assert tl.vmap(lambda a, *, by: a * by)(y, by=y).tolist() == (y.unsqueeze(1) * y).tolist()
    assert tl.vmap(lambda a: a.T)(x[:, 1:, 1:]).tolist() == x[:, 1:, 1:].transpose(1, 2).tolist()


def test_random_numbers(device: tl.Device) -> None:
    x = tl.ones((3, 4), device=device)
    draws = {
        "rand": lambda a: a + tl.rand(4, device=device),
        "randn": lambda a: a + tl.randn(4, device=device),
        "randint": lambda a: a + tl.randint(0, 1 << 20, 4, device=device).float(),
        "randperm": lambda a: a + tl.randperm(4, device=device).float(),
        "rand_like": lambda a: a.rand_like(),
        "randn_like": lambda a: a.randn_like(),
        "dropout": lambda a: a.dropout(0.5),
        "bernoulli": lambda a: (a * 0.5).bernoulli(),
    }
    for name, draw in draws.items():
        with pytest.raises(BatchingError, match="randomness='different'"):
            tl.vmap(draw)(x)
        same = tl.vmap(draw, randomness="same")(x)
        assert same[0].tolist() == same[1].tolist() == same[2].tolist(), name
        device.set_seed(1)
        different = tl.vmap(draw, randomness="different")(tl.ones((64, 4), device=device))
        assert len({*map(tuple, different.tolist())}) > 4, name
        if name in ("rand_like", "randn_like"):
            device.set_seed(1)
            assert different.tolist() == getattr(tl.ones((64, 4), device=device), name)().tolist()


def test_errors() -> None:
    x = tl.ones((2, 3))
    saved: list[Tensor] = []
    for function, error, text in [
        (lambda x: x * x[0].item(), BatchingError, "the elements of one example cannot be read"),
        (lambda x: x if x.sum() > 0 else -x, BatchingError, "tl.where"),
        (lambda x: x[x > 0], BatchingError, "cannot be read"),
        (lambda x: x.numpy(), BatchingError, "cannot be read"),
        (lambda x: tl.zeros(3).add_(x), BatchingError, "what is written differs between examples"),
        (lambda x: saved.append(x) or x, None, ""),
        (lambda x: x + saved[0], BatchingError, "stored beyond its call"),
        (lambda x: "text", BatchingError, "gives tensors, also in lists, tuples and dicts, not 'text'"),
    ]:
        if error is None:
            tl.vmap(function)(x)
            continue
        with pytest.raises(error, match=text):
            tl.vmap(function)(x)
    for use in (lambda x: x + 1, lambda x: tl.ones(3) * x, lambda x: x.sum().item(), lambda x: tl.Var(tl.ones(3)) * x):
        with pytest.raises(BatchingError, match=r"stored beyond its call|cannot be read"):
            use(saved[0])
    saved.clear()
    gc.collect()
    assert not tl.runtime.storage.calls.live_batches
    for arguments, options, text in [
        ((x, tl.ones(3)), {}, "as many examples"),
        ((x,), {"in_dims": None}, "vmap: no argument is a batch"),
        ((x,), {"in_dims": (0, 0)}, "in_dims has 2 items for 1 arguments"),
        ((x,), {"in_dims": 2}, "dim 2"),
        ((x,), {"in_dims": ({"a": 0},)}, "a dim is an integer or None"),
        ((x,), {"out_dims": None}, "differs between examples"),
    ]:
        with pytest.raises(tl.TallowError, match=text):
            tl.vmap(lambda *x: x[0], **options)(*arguments)
    for name, dims in (("in_dims", "0"), ("in_dims", (0, [1.0])), ("out_dims", {"a": True})):
        with pytest.raises(tl.InvalidArgument, match=f"{name} is an integer or None"):
            tl.vmap(lambda x: x, **{name: dims})
    with pytest.raises(tl.InvalidArgument, match="randomness is one of"):
        tl.vmap(lambda x: x, randomness="none")
    with pytest.raises(tl.InvalidArgument, match="function must be a function"):
        tl.vmap(x)  # type: ignore[arg-type]
