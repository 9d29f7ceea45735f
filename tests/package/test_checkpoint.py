"""Functions that are called again in backward: the same gradients from less memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tallow as tl
from tallow import Device, GradientError, Tensor, Var
from tallow.runtime.storage.calls import ElementCalls

DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: tl.rand(x.shape, device=x.device),
    "randn": lambda x: tl.randn(x.shape, device=x.device),
    "randint": lambda x: tl.randint(0, 9, x.shape, device=x.device).float(),
    "randperm": lambda x: tl.randperm(x.shape[1], device=x.device).float(),
    "rand_like": lambda x: x.detach().rand_like(),
    "randn_like": lambda x: x.detach().randn_like(),
    "bernoulli": lambda x: x.detach().sigmoid().bernoulli(),
    "multinomial": lambda x: x.detach().exp().multinomial(x.shape[1]).float(),
    "dropout": lambda x: x.dropout(0.5),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("keep", [False, True])
def test_gradients_are_those_of_the_function(draw: Callable[[Tensor], Tensor], keep: bool, device: Device) -> None:
    w, x = (Var(tl.randn((4, 4), device=device)) for _ in range(2))

    def block(x: Tensor, scale: float) -> dict[str, Any]:
        y = (x @ w).tanh() * draw(x) * scale
        return {"first": y, "others": [y.exp(), y[1:, 0], None]}

    def gradients(block: Callable[..., Any]) -> Iterator[Any]:
        device.set_seed(5)
        result = block(block(x, scale=0.5)["first"], scale=2.0)
        loss = result["first"].sum() + result["others"][0].sum() + result["others"][1].sqr().sum()
        yield loss.tolist()
        for _ in range(1 + keep):
            grads = loss.backward(keep=keep)
            # Gradients are summed up in another order.
            yield from (pytest.approx(grads[it].numpy(), rel=1e-4, abs=1e-4) for it in (w, x))
        yield tl.rand(3, device=device).tolist()

    inner = tl.checkpoint(block)
    expected = list(gradients(block))
    for checkpointed in (inner, tl.checkpoint(lambda x, scale: inner(x, scale))):
        for actual, value in zip(gradients(checkpointed), expected, strict=True):
            assert getattr(actual, "expected", actual) == value


def held(loss: Tensor) -> int:
    """How many elements gradients need."""
    nodes, storages, waiting = set(), {}, [loss._storage.inner]
    while waiting:
        node = waiting.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        waiting += node.inputs[::2]
        for it in (*node.saved, node.result):
            for part in getattr(it, "read", [it]):
                if isinstance(part, ElementCalls):
                    storages[id(part.inner)] = part.inner.length
    return sum(storages.values())


def test_a_block_holds_what_it_takes_alone() -> None:
    x, count = Var(tl.randn((8, 8))), 6

    def block(x: Tensor) -> Tensor:
        for _ in range(10):
            x = (x * 0.5).tanh().exp()
        return x

    def loss(block: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = x
        for _ in range(count):
            y = block(y)
        return y.sum()

    assert held(loss(block)) > 20 * count * x.elem_count
    assert held(loss(tl.checkpoint(block))) <= (count + 1) * x.elem_count


def test_peak_of_memory(device: Device) -> None:
    statistics = getattr(getattr(device.inner, "allocator", None), "statistics", None)
    if statistics is None:
        pytest.skip("the device has no allocator that counts")
    x = Var(tl.randn((64, 1024), device=device))

    def block(x: Tensor) -> Tensor:
        for _ in range(8):
            x = (x * 0.5).tanh()
        return x

    def extra(block: Callable[[Tensor], Tensor]) -> int:
        before, y = statistics().allocated, block(block(block(block(x))))
        held = statistics().allocated - before
        y.sum().backward()
        return held

    assert 4 * extra(tl.checkpoint(block)) < extra(block)


def test_gradients_of_gradients() -> None:
    x = Var(Tensor([1.0, 2.0], dtype="f64"))
    cube = tl.checkpoint(lambda x: tl.checkpoint(lambda y: y**3)(x * 2).sum())
    slope = cube(x).backward(create_graph=True)[x]
    assert slope.tolist() == [24.0, 96.0]
    assert slope.sum().backward()[x].tolist() == [48.0, 96.0]
    assert tl.value_and_grad(cube)(x)[1][0].tolist() == [24.0, 96.0]


def test_what_is_not_computed_stays() -> None:
    x, y = Var(tl.ones(2)), tl.ones(2)
    same, plain, number = tl.checkpoint(lambda x: (x, y, 3))(x)
    assert same is x and plain is y and number == 3
    with tl.no_grad():
        assert not tl.checkpoint(lambda x: x * 2)(x).is_recorded


def test_threads_draw_their_own_numbers(device: Device) -> None:
    """What others draw between forward and backward, or meanwhile, changes nothing."""
    x = Var(tl.ones((4, 4), device=device))

    def noisy(x: Tensor) -> Tensor:
        y = x.dropout(0.5)
        thread = threading.Thread(target=lambda: tl.rand(3, device=device))
        thread.start()
        thread.join()
        return y * y.dropout(0.5)

    result = tl.checkpoint(noisy)(x)
    tl.rand(100, device=device)
    assert result.sum().backward()[x].tolist() == (2 * result).tolist()


def test_a_step_in_a_graph(device: Device) -> None:
    if not any(
        it.backend == device.backend and it.method == "graph" and it.status == "supported" for it in tl.support()
    ):
        pytest.skip("the device has no graphs")
    x = Var(tl.ones((4, 4), device=device))
    block = tl.checkpoint(lambda x: x.dropout(0.5).sqr())

    def step() -> tuple[Tensor, Tensor]:
        result = block(x)
        return result.detach(), result.sum().backward()[x]

    step()
    graph = tl.Graph(device)
    with graph.capture():
        result, gradient = step()
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(result.tolist())
        # Of 2 x, where x is 0 or 2.
        assert gradient.tolist() == (result * 2).tolist()
    assert seen[0] != seen[1]


def test_errors() -> None:
    x, calls = Var(tl.ones(2)), iter(range(9))
    with pytest.raises(tl.InvalidArgument, match="function must be a function, not 3"):
        tl.checkpoint(3)  # type: ignore[arg-type]
    result = tl.checkpoint(lambda x: x.exp())(x)
    result.sum().backward()
    with pytest.raises(GradientError, match="went back through checkpoint already"):
        result.sum().backward()
    written = tl.checkpoint(lambda x: x.exp())(x)
    x.set_(x * 2)
    with pytest.raises(GradientError, match=r"checkpoint at .*test_checkpoint.py:\d+ needs elements .* overwritten"):
        written.sum().backward()
    weight = Var(tl.ones(2))
    closed_over = tl.checkpoint(lambda x: x * weight)(x)
    weight.set_(weight * 2)
    with pytest.raises(GradientError, match="overwritten"):
        closed_over.sum().backward()
    shorter = tl.checkpoint(lambda x: x.exp()[: 2 - next(calls)])(x)
    with pytest.raises(GradientError, match="gives results of other shapes in backward"):
        shorter.sum().backward()
    for again in (lambda x: x * tl.rand(2 + next(calls)).sum(), lambda x: x * (1 if next(calls) % 2 else tl.rand(2))):
        drawn = tl.checkpoint(again)(x)
        if not next(calls) % 2:
            next(calls)
        with pytest.raises(GradientError, match="draws other random numbers"):
            drawn.sum().backward()
