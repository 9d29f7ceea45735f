"""Recurrent layers: PyTorch's formulas in NumPy, gradients, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, Tensor
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
from tallow.runtime.backends.gpu_backend.ops import recurrent
from tallow.runtime.program.program import LibraryCall
from tallow.storage import Storage

from .gradcheck import Gradcheck, rand
from .programs import LARGE, Stored, at, built, call_of, grids, kernels

GATES = {"lstm": 4, "gru": 3}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"lstm": tl.lstm, "gru": tl.gru}
CELLS: Mapping[str, Callable[..., Any]] = {"lstm": tl.lstm_cell, "gru": tl.gru_cell}

Weights = dict[str, np.ndarray[Any, Any]]


def random_weights(
    kind: str, features: int, units: int, layers: int, directions: int, *, has_bias: bool = True
) -> Weights:
    """The state dict of a module."""
    rng, weights, rows = np.random.default_rng(0), Weights(), GATES[kind] * units
    for layer in range(layers):
        for ending in ("", "_reverse")[:directions]:
            sizes = {"ih": features if layer == 0 else directions * units, "hh": units}
            for part, size in sizes.items():
                weights[f"weight_{part}_l{layer}{ending}"] = rng.normal(0, 0.6, (rows, size))
                if has_bias:
                    weights[f"bias_{part}_l{layer}{ending}"] = rng.normal(0, 0.6, rows)
    return weights


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step_of(kind: str, x: Any, h: Any, last: Sequence[Any]) -> list[Any]:
    """The new states from both parts of the gates."""
    if kind == "lstm":
        i, f, g, o = np.split(x + h, 4, -1)
        cell = sigmoid(f) * last[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(cell), cell]
    (r, z, n), (hr, hz, hn) = np.split(x, 3, -1), np.split(h, 3, -1)
    update = sigmoid(z + hz)
    return [(1 - update) * np.tanh(n + sigmoid(r + hr) * hn) + update * last[0]]


def expected(kind: str, x: Any, weights: Weights, states: Sequence[Any], lengths: Sequence[int]) -> tuple[Any, Any]:
    """The output and the last states, one sequence at a time, cut at its length."""
    layers = 1 + max(int(name.split("_l")[1][0]) for name in weights)
    endings = [ending for ending in ("", "_reverse") if f"weight_hh_l0{ending}" in weights]
    units = weights["weight_hh_l0"].shape[1]
    last = np.array(states, float)
    output = np.zeros((*x.shape[:2], len(endings) * units))
    for row, length in enumerate(lengths):
        values = x[:length, row]
        for layer in range(layers):
            outputs = np.zeros((length, len(endings) * units))
            for direction, ending in enumerate(endings):
                ih, hh, of_x, of_h = [
                    weights.get(f"{part}_l{layer}{ending}", 0)
                    for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                number = layer * len(endings) + direction
                own = [state[number, row] for state in last]
                for step in range(length)[:: -1 if direction else 1]:
                    gates, products = ih @ values[step] + of_x, hh @ own[0] + of_h
                    own = step_of(kind, gates, products, own)
                    outputs[step, direction * units : (direction + 1) * units] = own[0]
                last[:, number, row] = own
            values = outputs
        output[:length, row] = values
    return output, last


def tensors_of(weights: Weights, device: Device, dtype: str = "f32") -> dict[str, Tensor]:
    return {name: Tensor(each, dtype=dtype, device=device) for name, each in weights.items()}


def states_of(state: Any) -> list[Tensor]:
    return list(state) if isinstance(state, tuple) else [state]


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(("layers", "directions", "has_bias"), [(1, 1, True), (2, 2, True), (1, 2, False)])
@pytest.mark.parametrize("lengths", [None, (3, 0, 4)])
def test_layers_directions_and_lengths(
    kind: str, layers: int, directions: int, has_bias: bool, lengths: tuple[int, ...] | None, device: Device
) -> None:
    rng, count = np.random.default_rng(1), 1 if kind == "gru" else 2
    weights = random_weights(kind, 5, 6, layers, directions, has_bias=has_bias)
    x, states = rng.normal(size=(4, 3, 5)), rng.normal(size=(count, layers * directions, 3, 6))
    reference, last = expected(kind, x, weights, states, lengths or (4, 4, 4))
    function, own = FUNCTIONS[kind], tensors_of(weights, device)
    initial = [Tensor(each, dtype="f32", device=device) for each in states]
    state = tuple(initial) if kind == "lstm" else initial[0]
    for is_transposed in (False, True):
        operand = Tensor(x.transpose(1, 0, 2) if is_transposed else x, dtype="f32", device=device)
        ends = (
            None if lengths is None else Tensor(list(lengths), dtype="u8", device=device) if is_transposed else lengths
        )
        output, actual = function(operand, own, state, lengths=ends, batch_first=is_transposed)
        np.testing.assert_allclose(
            output.transpose(0, 1).numpy() if is_transposed else output.numpy(), reference, atol=2e-6
        )
        for one, other in zip(states_of(actual), last, strict=True):
            np.testing.assert_allclose(one.numpy(), other, atol=2e-6)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_one_sequence_and_no_state(kind: str, device: Device) -> None:
    own = tensors_of(random_weights(kind, 5, 6, 2, 1), device)
    x = Tensor(np.random.default_rng(1).normal(size=(4, 5)), dtype="f32", device=device)
    output, last = FUNCTIONS[kind](x, own)
    many, of_many = FUNCTIONS[kind](x.unsqueeze(1), own)
    assert output.shape == (4, 6)
    np.testing.assert_array_equal(output.numpy(), many.squeeze(1).numpy())
    for one, other in zip(states_of(last), states_of(of_many), strict=True):
        assert one.shape == (2, 6)
        np.testing.assert_array_equal(one.numpy(), other.squeeze(1).numpy())
    again, _ = FUNCTIONS[kind](x, own, last)
    assert not np.array_equal(again.numpy(), output.numpy())
    # States are not views of the output.
    before = [each.numpy().copy() for each in states_of(last)]
    output.zero_()
    for one, values in zip(states_of(last), before, strict=True):
        np.testing.assert_array_equal(one.numpy(), values)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_cells_are_steps_of_layers(kind: str, device: Device) -> None:
    own = tensors_of(random_weights(kind, 5, 6, 1, 1), device)
    of_cell = {name.removesuffix("_l0"): each for name, each in own.items()}
    x = Tensor(np.random.default_rng(1).normal(size=(3, 2, 5)), dtype="f32", device=device)
    output, last = FUNCTIONS[kind](x, own)
    state: Any = None
    for step in range(3):
        state = CELLS[kind](x[step], of_cell, state)
        np.testing.assert_allclose(states_of(state)[0].numpy(), output[step].numpy(), atol=1e-6)
    for one, other in zip(states_of(state), states_of(last), strict=True):
        np.testing.assert_allclose(one.numpy(), other[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 2, 5), (3, 0, 5)])
def test_no_steps_and_no_batch(kind: str, shape: tuple[int, ...], device: Device) -> None:
    """The last states are the initial ones, with their gradient; the other gradients are 0."""
    own = {name: tl.Var(each) for name, each in tensors_of(random_weights(kind, 5, 6, 1, 1), device).items()}
    initial = [
        tl.Var(Tensor.full((1, shape[1], 6), 0.5 + number, device=device))
        for number in range(1 if kind == "gru" else 2)
    ]
    x = tl.Var(Tensor.zeros(shape, device=device))
    output, last = FUNCTIONS[kind](x, own, initial[0] if kind == "gru" else tuple(initial))
    assert output.shape == (*shape[:2], 6)
    grads = (output.sum() + sum(each.sum() for each in states_of(last))).backward()
    for each, first in zip(states_of(last), initial, strict=True):
        np.testing.assert_array_equal(each.numpy(), first.numpy())
        np.testing.assert_array_equal(grads[first].numpy(), np.ones(first.shape))
    for each in own.values():
        np.testing.assert_array_equal(grads[each].numpy(), np.zeros(each.shape))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients(kind: str, gradcheck: Gradcheck) -> None:
    count = 1 if kind == "gru" else 2

    def operands(steps: int, batch: int, units: int) -> list[Tensor]:
        rows, sizes = GATES[kind] * units, [(1, batch, units)] * count
        shapes = (steps, batch, 2), (rows, 2), (rows, units), (rows,), (rows,), *sizes
        return [rand(*shape, seed=number) for number, shape in enumerate(shapes)]

    def of_layer(lengths: Sequence[int] | None, ending: str) -> Callable[..., Tensor]:
        def function(x: Tensor, ih: Tensor, hh: Tensor, of_x: Tensor, of_h: Tensor, *state: Tensor) -> Tensor:
            names = (f"{part}_l0" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            weights = dict(zip(names, (ih, hh, of_x, of_h), strict=True))
            if ending:
                weights |= {f"{name}{ending}": each for name, each in weights.items()}
                state = tuple([tl.cat([each, each * 0.5]) for each in state])
            output, last = FUNCTIONS[kind](x, weights, state if count > 1 else state[0], lengths=lengths)
            return tl.cat([output.flatten(), *(each.flatten() for each in states_of(last))])

        return function

    gradcheck(of_layer(None, ""), *operands(3, 2, 2), second=False)
    gradcheck(of_layer((2, 1), "_reverse"), *operands(2, 2, 1))


# So many sequences of so few units are computed by two blocks, which exchange gradients; 9 units are not aligned.
@pytest.mark.parametrize(("batch", "units"), [(20, 16), (31, 9)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("bf16", 0.05), ("f16", 0.005)])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients_of_many_sequences_are_those_in_f64(
    kind: str, dtype: str, tolerance: float, batch: int, units: int, device: Device
) -> None:
    rng = np.random.default_rng(2)
    arrays = [0.3 * rng.normal(size=shape) for shape in ((4, batch, 3), (4, batch, units))]
    weights = random_weights(kind, 3, units, 1, 1, has_bias=True)

    def gradients(dtype: str) -> list[Tensor]:
        x, seed = (Tensor(array, dtype="f32", device=device).to_dtype(dtype) for array in arrays)
        variables = [tl.Var(tensor.to_dtype(dtype)) for tensor in tensors_of(weights, device).values()]
        operands = [tl.Var(x), *variables]
        result = FUNCTIONS[kind](operands[0], dict(zip(weights, variables, strict=True)))[0].backward(seed)
        return [result[operand].to_dtype("f64") for operand in operands]

    for ours, exact in zip(gradients(dtype), gradients("f64"), strict=True):
        scale = abs(exact.numpy()).max()
        np.testing.assert_allclose(ours.numpy(), exact.numpy(), rtol=0, atol=tolerance * scale)


def in_steps(kind: str, x: Tensor, own: Mapping[str, Tensor], lengths: Sequence[int]) -> Tensor:
    """The output of both directions of a layer, by a cell per step."""
    steps, batch, _ = x.shape
    outputs = []
    for ending in ("", "_reverse"):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = {name: own[f"{name}_l0{ending}"] for name in names}
        states = [Tensor.zeros((batch, weights["weight_hh"].shape[1]), dtype=x.dtype)] * (1 if kind == "gru" else 2)
        of_steps = [states[0]] * steps
        for step in reversed(range(steps)) if ending else range(steps):
            runs = Tensor([[length > step] for length in lengths])
            new = states_of(CELLS[kind](x[step], weights, tuple(states) if kind == "lstm" else states[0]))
            states = [runs.where(after, before) for after, before in zip(new, states, strict=True)]
            of_steps[step] = runs.where(states[0], 0)
        outputs.append(tl.stack(of_steps))
    return tl.cat(outputs, -1)


# Threads have their own sequences or, with the weight of so many units, share steps; 35 and 481 units fill neither
# vectors nor tiles.
@pytest.mark.parametrize(("batch", "units"), [(1, 35), (13, 16), (70, 35), (70, 9), (3, 481)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("bf16", 0.05), ("f16", 0.005), ("f64", 1e-12)])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_long_sequences_on_any_number_of_threads(
    kind: str, dtype: str, tolerance: float, batch: int, units: int
) -> None:
    rng, steps = np.random.default_rng(3), 9
    weights = {name: each / units**0.5 for name, each in random_weights(kind, 3, units, 1, 2).items()}
    arrays = [rng.normal(size=(steps, batch, size)) for size in (3, 2 * units)]
    lengths = [int(length) for length in rng.integers(0, steps + 1, batch)]

    def results(dtype: str, function: Callable[..., Tensor]) -> list[Any]:
        x, seed, *own = [Tensor(array, dtype="f32").to_dtype(dtype) for array in (*arrays, *weights.values())]
        operands = [tl.Var(each) for each in (x, *own)]
        output = function(operands[0], dict(zip(weights, operands[1:], strict=True)))
        gradients = output.backward(seed)
        return [each.to_dtype("f64").numpy() for each in (output, *[gradients[operand] for operand in operands])]

    reference, before = results("f64", lambda x, own: in_steps(kind, x, own, lengths)), tl.get_threads()
    of_threads = []
    try:
        for threads in (1, 2, 5):
            tl.set_threads(threads)
            of_threads.append(results(dtype, lambda x, own: FUNCTIONS[kind](x, own, lengths=lengths)[0]))
    finally:
        tl.set_threads(before)
    for first, *others, exact in zip(*of_threads, reference, strict=True):
        np.testing.assert_allclose(first, exact, rtol=0, atol=tolerance * abs(exact).max())
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients_of_cells(kind: str, gradcheck: Gradcheck) -> None:
    rows, count = GATES[kind] * 2, 1 if kind == "gru" else 2
    operands = [rand(1, 2), rand(rows, 2, seed=1), rand(rows, 2, seed=2), rand(rows, seed=3), rand(rows, seed=4)]
    states = [rand(1, 2, seed=5 + number) for number in range(count)]

    def function(x: Tensor, ih: Tensor, hh: Tensor, of_x: Tensor, of_h: Tensor, *state: Tensor) -> Tensor:
        weights = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (ih, hh, of_x, of_h), strict=True))
        return tl.cat(states_of(CELLS[kind](x, weights, state if count > 1 else state[0])))

    gradcheck(function, *operands, *states)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients_of_some_operands(kind: str, device: Device) -> None:
    """The gradient of one operand has the bits that it has among all gradients."""
    own = tensors_of(random_weights(kind, 3, 2, 1, 1), device)
    x = Tensor(np.random.default_rng(1).normal(size=(3, 2, 3)), dtype="f32", device=device)

    def of(names: Sequence[str]) -> dict[str, Any]:
        variables = {name: tl.Var(own[name]) for name in names}
        output, _ = FUNCTIONS[kind](x, {**own, **variables})
        grads = output.sqr().sum().backward()
        return {name: grads[each].numpy() for name, each in variables.items()}

    every = of(list(own))
    for name in own:
        np.testing.assert_array_equal(of([name])[name], every[name])


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients_of_constants_are_not_computed(kind: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tensors_of(random_weights(kind, 3, 2, 1, 1), device)
    x = tl.Var(Tensor(np.random.default_rng(1).normal(size=(3, 2, 3)), dtype="f32", device=device))
    state = Tensor.zeros((2, 2), device=device)
    of_cell = {name.removesuffix("_l0"): weight for name, weight in weights.items()}
    of_layer, _ = FUNCTIONS[kind](x, weights)
    of_step = CELLS[kind](x[0], of_cell, state if kind == "gru" else (state, state))
    calls: list[str] = []
    for method in (Storage.matmul, Storage.reduce_op):

        def counted(storage: Storage, *operands: Any, method: Callable[..., Any] = method) -> Any:
            calls.append(method.__name__)
            return method(storage, *operands)

        monkeypatch.setattr(Storage, method.__name__, counted)
    for result in (of_layer, of_step if kind == "gru" else of_step[0]):
        calls.clear()
        result.backward(result.detach().ones_like())
        assert calls == ["matmul"]


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_dropout_is_between_layers(kind: str) -> None:
    own = tensors_of(random_weights(kind, 5, 6, 2, 1), Device.cpu())
    x = Tensor(np.random.default_rng(1).normal(size=(4, 3, 5)), dtype="f32")
    Device.cpu().set_seed(1)
    dropped, _ = FUNCTIONS[kind](x, own, dropout=0.5)
    first, _ = FUNCTIONS[kind](x, {name: each for name, each in own.items() if "_l0" in name})
    Device.cpu().set_seed(1)
    second = {name.replace("_l1", "_l0"): each for name, each in own.items() if "_l1" in name}
    reference, _ = FUNCTIONS[kind](first.dropout(0.5), second)
    np.testing.assert_array_equal(dropped.numpy(), reference.numpy())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_operands_of_different_dtypes_are_promoted_together(kind: str, device: Device) -> None:
    own, x = tensors_of(random_weights(kind, 5, 6, 2, 1), device), Tensor.ones((4, 3, 5), device=device)
    wide = {name: weight.to_dtype("f64") for name, weight in own.items()}
    reference, _ = getattr(tl, kind)(x.to_dtype("f64"), wide)
    for name in own:
        actual, _ = getattr(tl, kind)(x, {**own, name: wide[name]})
        assert (actual.dtype, actual.tolist()) == (tl.DType.F64, reference.tolist())


def test_errors(device: Device) -> None:
    own, x = tensors_of(random_weights("lstm", 5, 6, 2, 1), device), Tensor.zeros((4, 3, 5), device=device)
    state = Tensor.zeros((2, 3, 6), device=device)
    for function, match in (
        (lambda: tl.lstm(x, {}), "no weight_ih_l0"),
        (lambda: tl.lstm(x, {**own, "weight_hr_l0": state}), "weight_hr_l0"),
        (lambda: tl.lstm(x, {name: own[name] for name in own if name != "weight_hh_l1"}), "no weight_hh_l1"),
        (lambda: tl.lstm(x, [own]), "dict of tensors"),
        (lambda: tl.lstm(x, {**own, "bias_hh_l0": 1}), "bias_hh_l0"),
        (lambda: tl.lstm(x, own, lengths=[5, 1, 1]), "from 0 to 4"),
        (lambda: tl.lstm(x, own, lengths=[1, -1, 1]), "from 0 to 4"),
        (lambda: tl.lstm(x, own, lengths=Tensor([1.0, 1.0, 1.0], device=device)), "lengths are integers, not f32"),
        (lambda: tl.lstm(x, own, state), "state is a pair of tensors"),
        (lambda: tl.lstm_cell(x[0], own), "no weight_ih and no weight_hh"),
    ):
        with pytest.raises(tl.InvalidArgument, match=match):
            function()
    for function in (
        lambda: tl.gru(x, own),
        lambda: tl.lstm(x[0, 0], own),
        lambda: tl.lstm(x, own, (state, state[:1])),
        lambda: tl.lstm(x, own, lengths=[1, 1]),
        lambda: tl.lstm(x[..., :4], own),
        lambda: tl.lstm(x, {**own, "bias_ih_l0": state[0, 0]}),
    ):
        with pytest.raises(tl.ShapeMismatch, match=r"lstm|gru"):
            function()
    with pytest.raises(tl.InvalidIndex):
        tl.lstm(x, own, lengths=Tensor([5, 1, 1], device=device))[0].numpy()


@pytest.fixture(params=[True, False], ids=["tiles", "floats"])
def has_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether the CPU multiplies states of bf16 in tiles."""
    kernels = HostKernels.open()
    if kernels is None or not kernels.has_tiles:
        pytest.skip("the CPU has no tiles")
    plans = Device.cpu().inner.plans
    monkeypatch.setitem(vars(kernels), "has_tiles", request.param)
    plans.clear()
    yield request.param
    plans.clear()


# Around the rows and the units of a tile.
@pytest.mark.parametrize("batch", [1, 3, 8, 16, 17, 33, 50])
@pytest.mark.parametrize("units", [1, 16, 31, 33, 100])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_layers_of_bf16(kind: str, batch: int, units: int, has_tiles: bool) -> None:
    rng, count, (steps, directions) = np.random.default_rng(1), 1 if kind == "gru" else 2, (9, 2)
    random = random_weights(kind, 5, units, 1, directions)
    own = tensors_of({name: 2 / units**0.5 * each for name, each in random.items()}, Device.cpu(), "bf16")
    weights = {name: each.to_dtype("f64").numpy() for name, each in own.items()}
    arrays = [rng.normal(size=(steps, batch, 5)), *(rng.normal(size=(count, directions, batch, units)) / 2)]
    x, *initial = [Tensor(each, dtype="f64").to_dtype("bf16") for each in arrays]
    lengths = [int(length) for length in rng.integers(0, steps + 1, batch)]
    state = tuple(initial) if kind == "lstm" else initial[0]
    output, last = FUNCTIONS[kind](x, own, state, lengths=lengths)
    states = [each.to_dtype("f64").numpy() for each in initial]
    reference, of_states = expected(kind, x.to_dtype("f64").numpy(), weights, states, lengths)
    for ours, exact in zip((output, *states_of(last)), (reference, *of_states), strict=True):
        np.testing.assert_allclose(ours.to_dtype("f64").numpy(), exact, rtol=0, atol=0.06 * max(1, abs(exact).max()))


@pytest.mark.parametrize("batch", [3, 20])
def test_a_sequence_of_bf16_without_a_number_is_alone(batch: int, has_tiles: bool) -> None:
    own = tensors_of(random_weights("lstm", 5, 33, 1, 1), Device.cpu(), "bf16")
    array = np.random.default_rng(1).normal(size=(9, batch, 5))
    before = tl.lstm(Tensor(array, dtype="f32").to_dtype("bf16"), own)[0].to_dtype("f32").numpy()
    array[4, 1], array[4, 2] = np.nan, np.inf
    after = tl.lstm(Tensor(array, dtype="f32").to_dtype("bf16"), own)[0].to_dtype("f32").numpy()
    assert np.isnan(after[4:, 1]).all()
    others = [row for row in range(batch) if row not in (1, 2)]
    np.testing.assert_array_equal(after[:, others], before[:, others])
    np.testing.assert_array_equal(after[:4], before[:4])


METHODS = ("sequence", "sequence_with_products", "sequence_gradient")


def operands_of(kind: str, steps: int, batch: int, units: int) -> tuple[tuple[Any, ...], ...]:
    """The operands of each of METHODS."""
    x, width, count = Stored(DType.F32, 1 << 24), GATES[kind] * units, 1 if kind == "gru" else 2
    gates, weight, bias = at(x, (steps, batch, width)), at(x, (width, units)), at(x, (width,))
    initial, states = at(x, (count, batch, units)), at(x, (count, steps, batch, units))
    forward = gates, weight, bias, initial, None, False
    return forward, forward, (gates, weight, bias, initial, states, gates, None, states, False)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_step_on_a_gpu_is_a_product_and_a_kernel(kind: str) -> None:
    class Library:
        def multiply(self, *arguments: Any) -> LibraryCall:
            return LibraryCall(self.multiply, arguments)

    steps = 5
    for method, operands in zip(METHODS, operands_of(kind, steps, 3, 513), strict=True):
        program = built(getattr(recurrent, f"{method}_by_library"), Library(), *operands)
        kernel = f"{kind}_{'gradient' if method.endswith('gradient') else 'step'}_f32_1"
        own = sum(isinstance(step, LibraryCall) for step in program.steps)
        assert own == steps
        # The direct gradient of the initial state of a GRU is added at the end.
        assert kernels(program)[:steps] == [kernel] * steps
        assert len(kernels(program)) - steps == (method == "sequence_gradient" and kind == "gru")


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(
    ("batch", "units", "blocks", "keys"),
    [
        (1, 128, 1, 0),  # a block computes all units of a sequence
        (64, 100, 64, 0),
        (8 * 132, 1, 132, 0),
        (8 * 132 + 1, 1, 118, 8),  # more than 8 sequences after another: 9 are a group
        (16 * 132 + 1, 1, 0, 0),
        (1, 129, 9, 8),  # 16 units are those of a block
        (64, 256, 8 * 16, 8),  # 8 groups of 8 sequences
        (64, 512, 4 * 32, 16),
        (65, 512, 0, 0),  # more sequences than so many blocks take
        (1, 513, 0, 0),  # more weights than registers hold
    ],
)
def test_all_steps_are_one_launch_of_blocks_that_run_together(
    kind: str, batch: int, units: int, blocks: int, keys: int
) -> None:
    facts = LARGE._replace(concurrent_blocks=132)
    for method, operands in zip(METHODS, operands_of(kind, 2, batch, units), strict=True):
        program = built(getattr(recurrent, method), *operands, facts=facts)
        by_library = call_of(getattr(recurrent, f"{method}_by_library"), None, *operands)
        assert not blocks or by_library.program(facts, may_refuse=True) is None
        ending = "_gradient_f32" if method == "sequence_gradient" else "_f32"
        kernel = f"{kind}_sequence{ending}_{keys}" if keys else f"{kind}_block{ending}"
        assert grids(program) == [(kernel, blocks)] if blocks else len(grids(program)) > 2
