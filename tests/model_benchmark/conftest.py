"""The devices that the decoder runs on, and how long it is timed."""

from __future__ import annotations

import pytest
import tallow as tl

from benchmarks.model import measure as model
from benchmarks.networks import timing
from benchmarks.training import measure as training


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "label" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--device")
        metafunc.parametrize("label", ["cpu", "rocm"] if chosen == "cpu" else [chosen])


@pytest.fixture
def device(label: str) -> tl.Device:
    try:
        return tl.Device.parse(label)
    except tl.BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each variant a few times, however long that takes."""
    for module in (model, training):
        monkeypatch.setattr(module, "_BUDGET", 0.0)
    monkeypatch.setattr(timing, "_TURNS", 1)
    monkeypatch.setattr(timing, "_TURN", 0.0)
