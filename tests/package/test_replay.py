"""Calls on the CPU that are made again with the same storages."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.backends.backend import BackendReplay
from tallow.runtime.backends.cpu_backend.replay import Replay


def replay() -> BackendReplay:
    result = tl.Device.cpu().inner.replay()
    assert isinstance(result, Replay)
    return result


def test_a_replay_writes_to_what_the_block_made() -> None:
    x, total = tl.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), tl.Tensor(np.zeros(3, np.float32))

    def step() -> tuple[tl.Tensor, tl.Tensor]:
        total.add_(x.sum(0))
        largest, _ = (x * 2).topk(2)
        return largest, total + 1

    step()
    noted = replay()
    with noted:
        largest, more = step()
    assert noted.complete
    saved = largest.numpy()
    for number in (5, 7):
        before = total.numpy().copy()
        x.fill_(number)
        noted.replay()
        assert largest.numpy().tolist() == [[2 * number] * 2] * 2
        assert total.numpy().tolist() == (before + 2 * number).tolist()
        assert more.numpy().tolist() == (before + 2 * number + 1).tolist()
    assert saved.tolist() == [[4, 2], [10, 8]], "what NumPy was given stays as it was"


def test_a_block_with_a_call_that_has_no_plan_is_not_whole() -> None:
    noted, broken, plans = replay(), replay(), tl.Device.cpu().inner.plans
    with noted:
        tl.Tensor(np.ones((3, 1, 17), np.float32)).tanh().sum(2)
    assert not noted.complete
    with pytest.raises(tl.ShapeMismatch), broken:
        tl.Tensor(np.ones(3, np.float32)).reshape(2)
    assert not broken.complete
    assert plans.observers == ()


def test_a_block_inside_of_another_one_is_part_of_both() -> None:
    x, outer, inner = tl.Tensor(np.ones(3, np.float32)), replay(), replay()
    x.exp() + 0
    with outer:
        with inner:
            y = x.exp()
        z = y + 0
    assert (outer.complete, inner.complete) == (True, True)
    x.fill_(0)
    inner.replay()
    assert (y.numpy()[0], z.numpy()[0] > 2) == (1, True)
    outer.replay()
    assert z.numpy()[0] == 1


def test_what_other_threads_do_is_no_part_of_a_block() -> None:
    x = tl.Tensor(np.ones(4, np.float32))
    x.exp()
    noted, others = replay(), []
    with noted:
        y = x.exp()
        thread = threading.Thread(target=lambda: others.append(x.exp()))
        thread.start()
        thread.join()
    assert noted.complete
    x.fill_(0)
    noted.replay()
    assert y.numpy().tolist() == [1] * 4
    assert others[0].numpy()[0] > 2
