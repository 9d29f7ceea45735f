"""The devices that steps are taken on."""

from __future__ import annotations

import pytest
import tallow as tl


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
