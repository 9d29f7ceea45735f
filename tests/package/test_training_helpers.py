"""The scale of losses of f16, schedules of learning rates, and the tensors of a model by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor, Var

TINY = 2.0**-14


def test_scaled_gradients_do_not_vanish(device: tl.Device) -> None:
    w, x = Var(tl.ones((3, 2), device=device)), tl.ones((4, 3), device=device)
    scaler = tl.optim.LossScaler()
    with tl.autocast("f16"):
        loss = ((x @ w) * TINY).mean() * TINY
    assert loss.backward(keep=True)[w].abs().max().item() == 0.0
    grads = scaler.backward(loss)
    np.testing.assert_allclose(grads[w].numpy(), TINY**2 / 2, rtol=1e-3)
    # It is a gradient as any other one: of f32, in memory of its own, and clipped with the others.
    assert grads[w].dtype is tl.DType.F32
    tl.optim.clip_by_norm(grads, 1e-30)
    before = w.numpy()
    assert scaler.step(tl.optim.SGD([w], 1.0), grads) and scaler.scale == 2.0**16
    assert (w.numpy() <= before).all()


def test_a_scale_adapts() -> None:
    w = Var(Tensor([1.0, 2.0]))
    optimizer, scaler = tl.optim.Adam([w], 0.5), tl.optim.LossScaler(8.0, growth=4.0, backoff=0.25, interval=2)
    fine, bad = lambda: (w * w).sum(), lambda: (w * math.inf).sum()
    scales = []
    for loss, is_taken in [(fine, True), (fine, True), (fine, True), (bad, False), (fine, True), (fine, True)]:
        before = w.tolist()
        assert scaler.step(optimizer, scaler.backward(loss())) is is_taken
        assert (w.tolist() != before) is is_taken
        scales.append(scaler.scale)
    assert scales == [8.0, 32.0, 32.0, 8.0, 8.0, 32.0]
    scaler.step(optimizer, scaler.backward(fine()))
    other = tl.optim.LossScaler(interval=2, growth=4.0)
    other.load_state(scaler.state())
    assert other.scale == 32.0
    for each in (scaler, other):
        each.step(optimizer, each.backward(fine()))
        assert each.scale == 128.0
    # A gradient that is NaN in one of several variables of several dtypes leaves out the step of all.
    more = [Var(tl.ones(3, dtype="f64")), Var(tl.ones(2, dtype="f16"))]
    grads = scaler.backward((w.log() * 0).sum() + more[0].sum().float() + more[1].sum().float())
    assert scaler.step(tl.optim.SGD([w, *more], 0.1), grads)
    grads[more[1]] = grads[more[1]] * math.nan
    assert not scaler.step(tl.optim.SGD([w, *more], 0.1), grads)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"scale": 0.0}, "scale is above 0"),
        ({"scale": math.inf}, "scale is above 0"),
        ({"growth": 0.5}, "growth is 1 or more"),
        ({"backoff": 1.0}, "backoff below 1"),
        ({"interval": 0}, "interval 1 or more"),
    ],
)
def test_wrong_settings_of_a_scale(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(tl.InvalidArgument, match=text):
        tl.optim.LossScaler(**settings)


def test_schedules_follow_their_formulas() -> None:
    optim = tl.optim
    formulas: list[tuple[Callable[[int], float], Callable[[int], float]]] = [
        (optim.constant_rate(0.3), lambda t: 0.3),
        (optim.cosine_rate(0.3, 20, 0.1), lambda t: 0.2 + 0.1 * math.cos(math.pi * min(t, 20) / 20)),
        (optim.step_rate(0.3, 7, 0.5), lambda t: 0.3 * 0.5 ** (t // 7)),
        (
            optim.warm_up(5, optim.step_rate(0.3, 7), 0.2),
            lambda t: 0.3 * (0.2 + 0.16 * t) if t < 5 else 0.3 * 0.1 ** ((t - 5) // 7),
        ),
    ]
    optimizer = optim.SGD([Var(tl.ones(1))])
    for schedule, formula in formulas:
        for step in range(40):
            assert schedule(step) == pytest.approx(formula(step), rel=1e-12)
            optimizer.learning_rate = schedule(step)
    for call, text in [
        (lambda: optim.cosine_rate(0.1, 0), "steps is 1 or more"),
        (lambda: optim.step_rate(0.1, 0), "every is 1 or more"),
        (lambda: optim.constant_rate(-0.1), "learning_rate"),
        (lambda: optim.warm_up(5, 0.1), "schedule is a function of the step"),
    ]:
        with pytest.raises(tl.InvalidArgument, match=text):
            call()


class Pair(NamedTuple):
    weight: Tensor
    bias: Tensor


def model(value: float) -> dict[str, Any]:
    return {
        "layers": [{"weight": Var(tl.full((2, 3), value))}, (Var(tl.full(2, value)), tl.full(3, value, dtype="bf16"))],
        "head": Pair(Var(tl.full(1, value)), tl.full((), value)),
    }


def test_a_model_comes_back_from_a_file(tmp_path: Path, device: tl.Device) -> None:
    saved, other = model(1.5), model(0.0)
    state = tl.state_dict(saved)
    assert list(state) == ["layers.0.weight", "layers.1.0", "layers.1.1", "head.weight", "head.bias"]
    assert state["layers.0.weight"] is saved["layers"][0]["weight"]
    tl.save_safetensors(state, tmp_path / "model.safetensors")
    tl.load_state_dict(other, tl.load_safetensors(tmp_path / "model.safetensors", device))
    assert [it.tolist() for it in tl.state_dict(other).values()] == [it.tolist() for it in state.values()]
    # The tensors are written to, so what optimisers know of them stays.
    trained = {name: it for name, it in tl.state_dict(other).items() if isinstance(it, Var)}
    assert "layers.0.weight.first_moment" in tl.optim.Adam(trained).state()


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    own = model(0.0)
    state = tl.state_dict(model(1.0))
    for change, error, text in [
        ({"layers.1.0": None}, tl.InvalidArgument, "the state lacks 'layers.1.0'"),
        ({"more": tl.ones(1)}, tl.InvalidArgument, "the state has 'more'"),
        ({"head.weight": tl.ones(2)}, tl.ShapeMismatch, "'head.weight' has another shape"),
        ({"head.bias": tl.ones((), dtype="f64")}, tl.DTypeMismatch, "'head.bias' is of f32, and the state has f64"),
        ({"head.bias": 3}, tl.InvalidArgument, "head.bias must be a Tensor"),
    ]:
        changed = {name: it for name, it in {**state, **change}.items() if it is not None}
        with pytest.raises(error, match=text):
            tl.load_state_dict(own, changed)
    assert all(it.sum().item() == 0 for it in tl.state_dict(own).values())
    for wrong, text in [
        ({"a": {"b": 3}}, "'a.b' is 3"),
        (tl.ones(1), "the model is"),
        ({"a": {"b": tl.ones(1)}, "a.b": tl.ones(1)}, "two tensors are called 'a.b'"),
    ]:
        with pytest.raises(tl.InvalidArgument, match=text):
            tl.state_dict(wrong)
    with pytest.raises(tl.InvalidArgument, match="tensors must be a dict"):
        tl.load_state_dict(own, [])  # type: ignore[arg-type]
