"""Options and fixtures that the tests of every folder share."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import tallow

settings.register_profile("tallow", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("tallow")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tallow")
    group.addoption("--device", default="cpu", help="the device that conformance tests run on, e.g. cuda or rocm:0")
    group.addoption("--replay", action="store_true", help="cells of a GPU run plans that were recorded of copies")
    group.addoption("--full", action="store_true", help="also run the tests marked full, and larger sweeps")
    group.addoption("--third", type=int, help="cells of a method's ops in one third of their dtypes: 0, 1 or 2")
    group.addoption("--quick", action="store_true", help="at most three cases of each test, and none marked slow")
    group.addoption("--update-golden", action="store_true", help="write what golden tests expect instead of comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        keep_few(config, items)
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="a slow sweep; run it with --full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """What is collected stays to the end: to look for garbage among it takes half a second each time."""
    gc.collect()
    gc.freeze()


def keep_few(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, and all but the first, the middle and the last case of each other one."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not (item.get_closest_marker("slow") or item.get_closest_marker("full")):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(alike[position]) for alike in cases.values() for position in (0, len(alike) // 2, -1)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> tallow.Device:
    # Imported here so that the generator's own tests run without the package.
    import tallow

    return tallow.Device.parse(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--full"))
