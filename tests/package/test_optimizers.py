"""Optimisers: Candle's tests (candle-nn/tests/optim.rs), what formulas give, states, groups, graphs and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, GradientError, InvalidArgument, ShapeMismatch, Tensor, Var, optim
from tallow.runtime.base.bounded_cache import BoundedCache
from tallow.runtime.base.error import TallowError
from tallow.runtime.gradient import scaling
from tallow.storage import Storage

Make = Callable[[Any], optim.Optimizer]
MAKERS: dict[str, Make] = {
    "sgd": lambda variables: optim.SGD(variables, 0.05, weight_decay=0.1),
    "momentum": lambda variables: optim.SGD(variables, 0.05, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda variables: optim.SGD(variables, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda variables: optim.Adam(variables, 0.05, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw": lambda variables: optim.AdamW(variables, 0.05, betas=(0.8, 0.95), epsilon=1e-6, weight_decay=0.2),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


def variable(numbers: object, device: Device, dtype: str = "f32") -> Var:
    return Var(Tensor(numbers, dtype=dtype, device=device))


# Candle's tests. The data are y = 3 x1 + x2 - 2.


def test_sgd_optim(device: Device) -> None:
    x = variable(0.0, device)
    sgd = optim.SGD([x], 0.1)
    for _ in range(100):
        sgd.step(((x - 4.2) * (x - 4.2)).backward())
    assert x.item() == pytest.approx(4.199999, abs=1e-6)


def regressed(make: Make, steps: int, device: Device, *, by_name: bool = False) -> tuple[list[Any], float]:
    """The weights and the bias of a linear regression from zeros."""
    xs = Tensor([[2, 1], [7, 4], [-4, 12], [5, 8]], dtype="f32", device=device)
    ys = xs @ Tensor([[3], [1]], dtype="f32", device=device) - 2
    w, b = variable([[0, 0]], device), variable(0, device)
    optimizer = make({"w": w, "b": b} if by_name else [w, b])
    for _ in range(steps):
        optimizer.step((xs @ w.mT + b - ys).sqr().sum().backward())
    return w.tolist()[0], float(b.item())


def test_sgd_linear_regression(device: Device) -> None:
    w, b = regressed(lambda variables: optim.SGD(variables, 0.004), 1000, device)
    np.testing.assert_allclose([*w, b], [2.9983196, 0.99790204, -1.9796902], atol=2e-5)


def test_nesterov_sgd_linear_regression(device: Device) -> None:
    w, b = regressed(lambda variables: optim.SGD(variables, 0.004, momentum=0.1, nesterov=True), 100, device)
    np.testing.assert_allclose([*w, b], [1.07495, -9.90416, -1.8961483], rtol=1e-3)


@pytest.mark.parametrize("by_name", [False, True], ids=["adamw_linear_regression", "adamw_linear_regression_varmap"])
def test_adamw_linear_regression(by_name: bool, device: Device) -> None:
    w, b = regressed(lambda variables: optim.AdamW(variables, 0.1), 100, device, by_name=by_name)
    np.testing.assert_allclose([*w, b], [2.7257, 0.7097, 0.7873], atol=6e-5)


# What the formulas give, in NumPy.


def descended(x: np.ndarray, gradients: Sequence[np.ndarray], momentum: float, decay: float, *, nesterov: bool) -> Any:
    velocity = np.zeros_like(x)
    for g in gradients:
        g = g + decay * x
        velocity = momentum * velocity + g
        x = x - 0.05 * (g + momentum * velocity if nesterov else velocity)
    return x


def adapted(x: np.ndarray, gradients: Sequence[np.ndarray], epsilon: float, decay: float, *, decoupled: bool) -> Any:
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t, g in enumerate(gradients, 1):
        x, g = (x * (1 - 0.05 * decay), g) if decoupled else (x, g + decay * x)
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        x = x - 0.05 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + epsilon)
    return x


EXPECTED: dict[str, Callable[[Any, Any], Any]] = {
    "sgd": lambda x, gradients: descended(x, gradients, 0, 0.1, nesterov=False),
    "momentum": lambda x, gradients: descended(x, gradients, 0.9, 0.1, nesterov=False),
    "nesterov": lambda x, gradients: descended(x, gradients, 0.9, 0, nesterov=True),
    "adam": lambda x, gradients: adapted(x, gradients, 1e-8, 0.1, decoupled=False),
    "adamw": lambda x, gradients: adapted(x, gradients, 1e-6, 0.2, decoupled=True),
}


@pytest.mark.parametrize(("dtype", "bound"), [("f32", 1e-5), ("bf16", 0.05), ("f16", 0.006)])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_those_of_the_formulas(name: str, dtype: str, bound: float, device: Device) -> None:
    generator = np.random.default_rng(3)
    shapes = (3, 5), (7,), ()
    starts = [generator.normal(size=shape) for shape in shapes]
    gradients = [[generator.normal(size=shape) for shape in shapes] for _ in range(6)]
    variables = [variable(start, device, dtype) for start in starts]
    optimizer = MAKERS[name](variables)
    for step in gradients:
        optimizer.step([Tensor(g, dtype=dtype, device=device) for g in step])
    for index, (w, start) in enumerate(zip(variables, starts, strict=True)):
        expected = EXPECTED[name](start, [step[index] for step in gradients])
        np.testing.assert_allclose(w.to_dtype("f32").numpy(), expected, atol=bound, rtol=bound)


def trained(optimizer: optim.Optimizer, variables: Sequence[Var], steps: int) -> None:
    w, b = variables
    for _ in range(steps):
        optimizer.step(((w * w).sum(0) * b).sum().backward())


def numbers_of(variables: Sequence[Var]) -> list[Any]:
    return [each.tolist() for each in variables]


def two(device: Device) -> list[Var]:
    return [variable([[1.0, -2.0], [0.5, 3.0]], device), variable([0.25, 2.0], device)]


def test_a_saved_state_goes_on_with_the_same_bits(make: Make, device: Device, tmp_path: Path) -> None:
    full, first = two(device), two(device)
    trained(make(full), full, 5)
    optimizer = make(first)
    trained(optimizer, first, 2)
    tl.save_safetensors({"w": first[0], "b": first[1]}, tmp_path / "weights.safetensors")
    tl.save_safetensors(optimizer.state(), tmp_path / "state.safetensors")
    trained(optimizer, first, 1)
    weights = tl.load_safetensors(tmp_path / "weights.safetensors", device)
    second = [Var(weights["w"]), Var(weights["b"])]
    other = make(second)
    other.load_state(tl.load_safetensors(tmp_path / "state.safetensors", device))
    trained(other, second, 3)
    assert numbers_of(second) == numbers_of(full)


def test_groups_have_settings_of_their_own(device: Device) -> None:
    w, b = two(device)
    before = numbers_of([w, b])
    optimizer = optim.SGD([{"parameters": [w]}, {"parameters": b, "learning_rate": 0.0}], 0.125)
    optimizer.step((w.sum() + b.sum()).backward())
    assert numbers_of([w, b]) == [(np.array(before[0]) - 0.125).tolist(), before[1]]
    optimizer.groups[1].learning_rate = 0.5
    assert (optimizer.learning_rate, optimizer.groups[1].learning_rate) == (0.125, 0.5)
    optimizer.step((w.sum() + b.sum()).backward())
    assert b.tolist() == (np.array(before[1]) - 0.5).tolist()
    optimizer.learning_rate = 0.25
    assert [group.learning_rate for group in optimizer.groups] == [0.25, 0.25]
    assert [len(group.variables) for group in optimizer.groups] == [1, 1]


def test_parameters_of_several_dtypes(make: Make, device: Device) -> None:
    variables = [variable([0.5, 2.0], device, dtype) for dtype in ("f32", "bf16", "f32")]
    optimizer = make(variables)
    losses = sum((w.to_dtype("f32") * w.to_dtype("f32")).sum() for w in variables)
    optimizer.step(losses.backward())
    alone = variable([0.5, 2.0], device)
    make([alone]).step([alone.detach() * 2.0])
    np.testing.assert_array_equal(variables[0].numpy(), alone.numpy())
    np.testing.assert_array_equal(variables[2].numpy(), alone.numpy())
    np.testing.assert_array_equal(variables[1].to_dtype("f32").numpy(), alone.to_dtype("bf16").to_dtype("f32").numpy())


def test_a_parameter_without_a_gradient_stays(make: Make, device: Device) -> None:
    w, b, c = *two(device), variable([4.0], device)
    optimizer, alone = make([w, c, b]), two(device)
    trained(make(alone), alone, 3)
    trained(optimizer, [w, b], 2)
    state = optimizer.state()
    trained(optimizer, [w, b], 1)
    assert c.tolist() == [4.0]
    assert numbers_of([w, b]) == numbers_of(alone)
    # The steps of a group's parameters are counted together.
    names = [name for name in state if name.startswith("1.") and name != "1.steps"]
    assert all(not state[name].numpy().any() for name in names)
    with pytest.raises(GradientError, match="none of the parameters"):
        make([c]).step((w * w).sum().backward())


def test_value_and_grad_goes_with_a_step(make: Make, device: Device) -> None:
    variables, others = two(device), two(device)
    loss, grads = tl.value_and_grad(lambda w, b: ((w * w).sum(0) * b).sum())(*variables)
    make(variables).step(grads)
    trained(make(others), others, 1)
    assert numbers_of(variables) == numbers_of(others)
    assert loss.is_recorded is False


def test_a_step_changes_what_a_recorded_op_needs(device: Device) -> None:
    w, b = two(device)
    loss = (w * w).sum() + b.sum()
    optim.SGD([w], 0.1).step(loss.backward(keep=True))
    with pytest.raises(GradientError, match="overwritten"):
        loss.backward()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_gradients_are_clipped_by_their_norm(dtype: str, device: Device) -> None:
    w, b = variable([3.0, 0.0], device, dtype), variable([[0.0], [4.0]], device, dtype)
    grads = (w.sqr().sum() * 0.5 + b.sqr().sum() * 0.5).backward()
    assert optim.clip_by_norm(grads, 2.5).item() == pytest.approx(5)
    np.testing.assert_allclose(grads[w].to_dtype("f32").numpy(), [1.5, 0], rtol=1e-2)
    np.testing.assert_allclose(grads[b].to_dtype("f32").numpy(), [[0], [2]], rtol=1e-2)
    again = grads[w].tolist()
    assert optim.clip_by_norm(grads, 10.0).item() == pytest.approx(2.5, rel=1e-2)
    assert grads[w].tolist() == again


def test_clipped_gradients_have_gradients(device: Device) -> None:
    w, b = variable([1.0, 2.0], device), variable([[2.0]], device)
    grads = (w.sqr().sum() + b.sqr().sum()).backward(create_graph=True)
    norm = optim.clip_by_norm(grads, 0.5)
    # The norm is 2 |x|, and each gradient 0.5 x / |x|, at a vector x of the norm 3.
    actual = (norm + grads[w].sum()).backward()
    np.testing.assert_allclose(
        actual[w].numpy(), [2 / 3 + 0.5 * (1 / 3 - 3 / 27), 4 / 3 + 0.5 * (1 / 3 - 6 / 27)], 1e-5
    )
    np.testing.assert_allclose(actual[b].numpy(), [[4 / 3 - 0.5 * 6 / 27]], rtol=1e-5)


@pytest.mark.parametrize("most", [1 << 24, 6])
def test_gradients_are_clipped_together(most: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_MAX_TOGETHER", most)
    monkeypatch.setattr(scaling, "_batches", BoundedCache(1))
    calls: list[str] = []
    for name in ("cat", "binary_impl", "unary_impl", "reduce_op", "to_dtype"):
        method = getattr(Storage, name)
        monkeypatch.setattr(
            Storage, name, lambda *given, method=method: (calls.append(method.__name__), method(*given))[1]
        )
    counts = []
    # The first run records the plan that joins the norms, which others call without the method.
    for number in (2, 2, 9):
        numbers = [[float(i), -1.0] for i in range(number)]
        variables = [variable(each, device, "f16" if i == 1 else "f32") for i, each in enumerate(numbers)]
        grads = sum(((each * each).sum().to_dtype("f32") for each in variables), 0).backward()
        calls.clear()
        norm = optim.clip_by_norm(grads, 1.0)
        counts.append(len(calls))
        assert norm.dtype == "f32"
        assert norm.item() == pytest.approx(2 * np.linalg.norm(numbers))
        for each, given in zip(variables, numbers, strict=True):
            assert grads[each].dtype is each.dtype
            np.testing.assert_allclose(grads[each].numpy(), np.array(given) / np.linalg.norm(numbers), rtol=1e-3)
    # The number of gradients adds one call, which joins them, unless they are too many elements.
    assert (counts[2] == counts[1] + 1) is (most > 6)


REFUSED: dict[str, tuple[Callable[[Var, Var], object], type[TallowError], str]] = {
    "no variable": (lambda w, b: optim.SGD([w.detach()]), InvalidArgument, r"parameter '0' must be a Var.*tallow\.Var"),
    "one variable": (lambda w, b: optim.SGD(w), InvalidArgument, "parameters are a list of Vars"),
    "nothing": (lambda w, b: optim.Adam([]), InvalidArgument, "no parameters"),
    "twice": (lambda w, b: optim.AdamW([w, b, w]), InvalidArgument, "'2'.*given twice"),
    "twice in groups": (
        lambda w, b: optim.AdamW([{"parameters": [w]}, {"parameters": [w]}]), InvalidArgument, "given twice",
    ),
    "one name": (
        lambda w, b: optim.SGD([{"parameters": {"w": w}}, {"parameters": {"w": b}}]), InvalidArgument, "two parameters",
    ),
    "unknown setting": (
        lambda w, b: optim.SGD([{"parameters": [w], "rate": 1.0}]), InvalidArgument, "'rate' is no setting",
    ),
    "no group": (lambda w, b: optim.SGD([{"parameters": [w]}, b]), InvalidArgument, "a group is a dict"),
    "empty group": (lambda w, b: optim.SGD([{"parameters": []}]), InvalidArgument, "group has no parameters"),
    "a name of a number": (lambda w, b: optim.Adam({5: w, "5": b}), InvalidArgument, "name.*must be a str, not 5"),
    "a name of bytes in a group": (
        lambda w, b: optim.SGD([{"parameters": {"w": w}}, {"parameters": {b"b": b}}]), InvalidArgument, "must be a str",
    ),
    "rate of text": (lambda w, b: optim.SGD([w], "0.1"), InvalidArgument, "learning_rate"),
    "negative rate": (lambda w, b: optim.SGD([w], -0.1), InvalidArgument, "learning_rate is a finite number of 0"),
    "rate of NaN": (lambda w, b: optim.SGD([w], math.nan), InvalidArgument, "learning_rate is a finite number"),
    "nesterov alone": (lambda w, b: optim.SGD([w], nesterov=True), InvalidArgument, "momentum"),
    "beta of 1": (lambda w, b: optim.Adam([w], betas=(0.9, 1.0)), InvalidArgument, "betas are below 1"),
    "one beta": (lambda w, b: optim.Adam([w], betas=0.9), InvalidArgument, "betas are two numbers"),
    "a set rate": (lambda w, b: setattr(optim.SGD([w]), "learning_rate", None), InvalidArgument, "learning_rate"),
    "a loss": (lambda w, b: optim.SGD([w]).step((w * w).sum()), InvalidArgument, "loss.backward"),
    "too few gradients": (lambda w, b: optim.SGD([w, b]).step([w]), InvalidArgument, "2 parameters need as many"),
    "another order": (lambda w, b: optim.SGD([w, b]).step([b, w]), ShapeMismatch, "order of the parameters"),
    "clipping nothing": (lambda w, b: optim.clip_by_norm([w], 1.0), InvalidArgument, "loss.backward"),
    "clipping to 0": (lambda w, b: optim.clip_by_norm((w * w).sum().backward(), 0.0), InvalidArgument, "above 0"),
    "another kind of state": (
        lambda w, b: optim.Adam([w]).load_state(optim.SGD([w], momentum=0.9).state()),
        InvalidArgument, "same parameters",
    ),
    "counts that differ": (
        lambda w, b: optim.Adam([w, b]).load_state({**optim.Adam([w, b]).state(), "1.steps": Tensor(2.0)}),
        InvalidArgument, "'0' made 0 steps and '1' 2",
    ),
    "a count of halves": (
        lambda w, b: optim.Adam([w]).load_state({**optim.Adam([w]).state(), "0.steps": Tensor(0.5)}),
        InvalidArgument, r"'0\.steps' is 0\.5",
    ),
    "the state of another model": (
        lambda w, b: optim.Adam([w]).load_state(optim.Adam([b]).state()), ShapeMismatch, "another shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named(case: str, device: Device) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call(*two(device))


@pytest.mark.parametrize(
    ("name", "word"), [("zero_grad", "backward gives new"), ("state_dict", r"optimizer\.state"), ("stepp", "stepp")]
)
def test_what_other_libraries_call_differently_is_told(name: str, word: str, device: Device) -> None:
    with pytest.raises(AttributeError, match=word):
        getattr(optim.SGD(two(device)), name)


# Graphs.


@pytest.fixture
def graph(device: Device) -> tl.Graph:
    try:
        return tl.Graph(device)
    except tl.UnsupportedDevice as error:
        pytest.skip(str(error))


def test_a_captured_step_equals_the_calls(make: Make, graph: tl.Graph, device: Device) -> None:
    generator = np.random.default_rng(5)
    start = generator.normal(size=(6, 4)), generator.normal(size=4)
    batches = [Tensor(generator.normal(size=(3, 6)), dtype="f32", device=device) for _ in range(6)]
    results = []
    for is_captured in (False, True):
        w, b = (variable(each, device) for each in start)
        optimizer = make([w, b])
        x = batches[0].copy()

        def step(w: Var = w, b: Var = b, x: Tensor = x, optimizer: optim.Optimizer = optimizer) -> Tensor:
            loss = ((x @ w + b).tanh() - 0.5).sqr().mean()
            optimizer.step(loss.backward())
            return loss.detach()

        loss = step()
        if is_captured:
            with graph.capture():
                loss = step()
        losses = []
        for number, batch in enumerate(batches):
            optimizer.learning_rate = 0.05 / (number + 1)
            x.copy_(batch)
            if is_captured:
                graph.replay()
            else:
                loss = step()
            losses.append(loss.item())
        results.append((w.tolist(), b.tolist(), losses, {k: v.tolist() for k, v in optimizer.state().items()}))
    assert results[0] == results[1]


def test_a_learning_rate_is_not_set_in_a_capture(make: Make, graph: tl.Graph, device: Device) -> None:
    optimizer = make([variable(np.ones(3), device)])
    rate = optimizer.learning_rate
    with graph.capture(), pytest.raises(tl.CaptureError, match=r"learning rate .*; set it before the capture"):
        optimizer.learning_rate = rate / 2
    assert optimizer.learning_rate == rate
    optimizer.learning_rate = rate / 2


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_step_as_in_pytorch_says_what_it_needs(kind: type[optim.Optimizer]) -> None:
    w = Var(Tensor([1.0]))
    with pytest.raises(
        InvalidArgument, match=r"^step: the gradients are missing.*optimizer\.step\(loss\.backward\(\)\)$"
    ):
        kind([w]).step()
    assert w.tolist() == [1.0]


def test_variables_keep_channels_last(make: Make, device: Device) -> None:
    generator = np.random.default_rng(3)
    images, kernel = generator.standard_normal((2, 4, 5, 5), np.float32), generator.standard_normal((4, 4, 4, 4))
    last = {"memory_format": "channels_last"}
    results = []
    for change in (Tensor.contiguous, lambda x: x.contiguous(**last)):
        x, w = change(Tensor(images, device=device)), Var(change(Tensor(kernel, "f32", device)))
        is_last = w.layout.is_channels_last
        optimizer = make({"w": w})
        for _ in range(2):
            grads = (x.conv2d(w, padding=1).sqr().mean() + (w[1:, 2] * 3.0).sum()).backward()
            assert grads[w].layout.is_channels_last == is_last
            optimizer.step(grads)
        permuted = w.permute(0, 2, 3, 1)
        of_view = (permuted * Tensor.arange(4, device=device).to_dtype("f32")).sum().backward()
        if is_last:
            with pytest.raises(GradientError, match="view"):
                of_view[permuted]
        _, (gradient,) = tl.value_and_grad(lambda w, x=x: x.conv2d(w).sqr().sum())(w)
        tensors = [w, grads[w], of_view[w], gradient, *optimizer.state().values(), w.set_(w * 2.0)]
        results.append([tensor.numpy() for tensor in tensors])
        assert is_last == (change is not Tensor.contiguous)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
