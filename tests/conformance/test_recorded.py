"""A public call with recorded operands gives a recorded result with the right gradient, or raises GradientError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tallow
from tallow import BackendUnavailable, GradientError, UnsupportedDevice, UnsupportedDType

from . import hostile, recorded

# An op of integers, a device that is not there, or gradients that are asked for.
MAY_REFUSE = (UnsupportedDType, UnsupportedDevice, BackendUnavailable, GradientError)


def calls_of(device: tallow.Device, full: bool) -> list[tuple[str, hostile.Call]]:
    """The calls that are made: what records is the same on every device."""
    return list(recorded.surface().items())[:: 1 if device.is_cpu() or full else 4]


# Coprime to the number of forms.
PARTS = 11


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_operands_of_every_call(device: tallow.Device, full: bool) -> None:
    faults, count, calls = [], 0, calls_of(device, full)
    for name, call in calls:
        trial = recorded.trial(call, recorded.example(call), device)
        if trial is None or name in recorded.EXEMPT:
            continue
        if isinstance(trial, Exception):
            if not isinstance(trial, MAY_REFUSE):
                faults.append(f"{name}: no arguments fit: {trial}")
            continue
        count += 1
        every = range(len(trial.arrays))
        for indices in {frozenset(every), *(frozenset([index]) for index in every)}:
            faults.append(trial.fault(indices))
    assert not [*filter(None, faults)]
    assert count > len(calls) / 3


@pytest.mark.parametrize("part", [0, *[pytest.param(part, marks=pytest.mark.full) for part in range(1, PARTS)]])
def test_tensors_as_any_argument(part: int, device: tallow.Device) -> None:
    """Also where a number, a list or something else is expected."""
    every = [(call, *variant) for call in recorded.surface().values() for variant in recorded.variants(call)]
    faults, count = [], 0
    for call, label, result in every[part::PARTS]:
        if not recorded.is_accepted(call, result, device):
            continue
        trial = recorded.trial(call, result, device)
        if isinstance(trial, recorded.Trial):
            count += 1
            fault = trial.fault(frozenset(range(len(trial.arrays))))
            faults.append(fault and f"{label}: {fault}")
    assert not [*filter(None, faults)]
    assert count > 50


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_share_no_memory(create_graph: bool, device: tallow.Device, full: bool) -> None:
    faults, count = [], 0
    for _, call in calls_of(device, full):
        trial = recorded.trial(call, recorded.example(call), device)
        if isinstance(trial, recorded.Trial):
            count += 1
            faults += [trial.sharing(is_sum, create_graph) for is_sum in (False, True)]
    assert not [*filter(None, faults)]
    assert count > 50


def test_a_graph_works_gradients_out(device: tallow.Device, full: bool) -> None:
    try:
        tallow.Graph(device).close()
    except UnsupportedDevice as error:
        pytest.skip(error.reason)
    faults, count = [], 0
    for _, call in calls_of(device, full):
        trial = recorded.trial(call, recorded.example(call), device)
        if isinstance(trial, recorded.Trial):
            count += 1
            faults.append(trial.fault_of_capture(device))
    assert not [*filter(None, faults)]
    assert count > 50


@pytest.mark.parametrize("name", ["lines", "writes", "rewritten"])
def test_writes_and_records(name: str, device: tallow.Device, full: bool) -> None:
    """Errors name the line of a user's call, no write is missed, and what is recorded is so after a write too."""
    fault: Callable[[recorded.Trial], str] = getattr(recorded.Trial, f"fault_of_{name}")
    faults, count = [], 0
    for _, call in calls_of(device, full):
        trial = recorded.trial(call, recorded.example(call), device)
        if isinstance(trial, recorded.Trial):
            count += 1
            faults.append(fault(trial))
    assert not [*filter(None, faults)]
    assert count > 50
