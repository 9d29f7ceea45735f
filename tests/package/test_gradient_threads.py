"""Several threads that go back through one graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
import tallow as tl
from tallow import CustomOp1, Tensor


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns all the time, not each for five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Waiting(CustomOp1):
    """A copy, whose gradient lets another thread go on, and waits for it."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()

    def cpu_fwd(self, storage, layout):
        return storage.device.storage(storage.view(layout).copy()), layout.shape

    def bwd(self, x: Tensor, result: Tensor, g: Tensor) -> Tensor:
        if not self.is_reached.is_set():
            self.is_reached.set()
            assert self.may_go_on.wait(60)
        return g * x


@pytest.mark.parametrize("keeps", [(False, False), (True, False), (False, True), (True, True)])
def test_two_threads_at_one_call(keeps: tuple[bool, bool]) -> None:
    """The second one gets an error before anything is freed or overwritten; if both keep the graph, both are right."""
    x = tl.Var(Tensor([2.0, 3.0]))
    op = Waiting()
    loss = (x * 1).apply_op1(op).sum()
    results: list[object] = []

    def work() -> None:
        results.append(loss.backward(keep=keeps[0])[x].tolist())

    thread = threading.Thread(target=work)
    thread.start()
    assert op.is_reached.wait(60)
    if all(keeps):
        assert loss.backward(keep=True)[x].tolist() == [2.0, 3.0]
    else:
        with pytest.raises(tl.GradientError, match=r"another thread goes back through|went back through sum already"):
            loss.backward(keep=keeps[1])
    op.may_go_on.set()
    thread.join()
    assert results == [[2.0, 3.0]]


def test_threads_at_a_part_that_losses_share(switching: None) -> None:
    """Of threads that meet at some call of many, one has gradients and the others an error; none has others."""
    for _ in range(40):
        meet()


def meet() -> None:
    x = tl.Var(tl.ones(4))
    shared = x
    for _ in range(12):
        shared = (shared * 1.5).tanh().exp()
    losses = [(shared * factor).sum() for factor in range(1, 4)]
    expected = [loss.backward(keep=True)[x].tolist() for loss in losses]
    start = threading.Barrier(len(losses))
    results: dict[int, object] = {}

    def work(index: int) -> None:
        start.wait()
        try:
            results[index] = losses[index].backward()[x].tolist()
        except tl.GradientError:
            results[index] = None

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(losses))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(losses)
    assert [value for index, value in results.items() if value not in (None, expected[index])] == []
    assert sum(value is not None for value in results.values()) <= 1
