"""That the cases of the libraries are the same op, and how they are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tallow as tl

from benchmarks.cpu import cases as all_cases
from benchmarks.cpu import measure
from benchmarks.cpu.cases import DTYPES, Case, cases


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [8, 16])
def test_libraries_give_the_same(exponent: int, dtype: str) -> None:
    names = []
    for case in cases(exponent, dtype):
        assert measure.differing(case) == [], case.name
        names.append(case.name)
    assert len(set(names)) == len(names)
    assert ("conv2d" in names) == (exponent == 16)
    assert ("cast to f32" in names) == (dtype == "bf16")


def test_calls_give_the_same() -> None:
    pytest.importorskip("torch")
    from benchmarks.cpu.calls import calls

    names = []
    for case in calls():
        assert measure.differing(case) == [], case.name
        names.append(case.name)
    assert len(set(names)) == len(names)


def test_a_large_matrix_is_multiplied_by_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_cases, "_MIN_OF_FEW_COLUMNS", 8)
    monkeypatch.setattr(all_cases, "_COLUMNS", 4)
    products = [case for case in cases(10, "f32") if case.name.startswith("matmul")]
    assert [case.name for case in products] == ["matmul by 4 columns"]
    assert products[0].tallow().shape == (32, 4)
    assert measure.differing(products[0]) == []


def ours(values: list[float], dtype: str) -> Callable[[], tl.Tensor]:
    return lambda: tl.Tensor(np.array(values)).to_dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "values", "same"),
    [
        ("f32", [1.00001, -2], True),
        ("f32", [1.001, -2], False),
        ("bf16", [1.01, -2], True),
        ("bf16", [1.1, -2], False),
        ("f32", [1, np.nan], False),
        ("f32", [1], False),
        ("f32", [[1, -2], [1, -2]], False),
        ("i64", [1, -2], True),
        ("i64", [1, -1], False),
    ],
)
def test_results_are_compared_by_their_dtype(dtype: str, values: Any, same: bool) -> None:
    case = Case("add", ours(values, dtype), None, lambda: np.array([1, -2], np.float32))
    assert measure.differing(case) == ([] if same else ["numpy"])
    assert measure.differing(case._replace(name="randn")) == []
    # As calls that write in place do.
    assert measure.differing(case._replace(numpy=lambda: None)) == []


class Clock:
    """A clock that only calls and pauses turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def call(self, name: str, *seconds: float) -> Callable[[], None]:
        taken = iter([*seconds[:-1], *[seconds[-1]] * 10_000])

        def run() -> None:
            self.now += next(taken)
            self.calls.append(name)

        return run

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(measure, "sleep", clock.sleep)
    return clock


def test_calls_take_turns_and_the_first_of_a_turn_does_not_count(clock: Clock) -> None:
    # The first call is long, as that which makes a plan may be.
    actual = measure.time_in_turns({"tallow": clock.call("tallow", 1.0, 0.01), "torch": clock.call("torch", 0.1)})
    assert actual == pytest.approx({"tallow": 0.01, "torch": 0.1})
    assert clock.calls == [*["tallow"] * 3, *["torch"] * 2] * 4


def test_short_calls_are_measured_together(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1 << 20))
    monkeypatch.setattr(measure, "process_time", lambda: next(times) * 7e-6)
    # Each measurement is one step of the processor's clock, and has seven calls.
    actual = measure.time_in_turns({"tallow": clock.call("tallow", 0.001)}, of_processor=True)
    assert actual == pytest.approx({"tallow": 1e-6})
    assert len(clock.calls) == 4 * (1 + 3 * 7)


def test_long_calls_take_fewer_turns(clock: Clock) -> None:
    actual = measure.time_in_turns({"tallow": clock.call("tallow", 0.01), "torch": clock.call("torch", 0.3, 0.3, 0.5)})
    assert actual == pytest.approx({"tallow": 0.01, "torch": 0.4})
    assert clock.calls == [*["tallow"] * 3, *["torch"] * 2, *["tallow"] * 3, "torch"]
