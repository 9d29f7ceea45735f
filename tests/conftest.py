"""Options and fixtures that the tests of every folder share."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, Final, TypeGuard

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import tallow

settings.register_profile("tallow", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("full", settings.get_profile("tallow"), max_examples=60)
settings.load_profile("tallow")
# A test, or a method of a cell, with more cases is shared between the stages of GPUs.
MANY_CASES: Final = 32


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tallow")
    group.addoption("--device", default="cpu", help="the device that conformance tests run on, e.g. cuda or rocm:0")
    group.addoption(
        "--replay", action="store_true", help="cells of a GPU run on copies first, then as compiled functions"
    )
    group.addoption("--full", action="store_true", help="also run the tests marked full, and larger sweeps")
    group.addoption("--part", help="of each case on a device, its dtypes of one of several parts, e.g. 0/16")
    group.addoption("--cases", help="of tests and methods with many cases on a device, one of several parts, e.g. 0/3")
    group.addoption("--sample", type=int, default=0, help="about as many of the layouts and sizes of each cell")
    group.addoption("--quick", action="store_true", help="at most three cases of each test, and none marked slow")
    group.addoption("--update-golden", action="store_true", help="write what golden tests expect instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        settings.load_profile("full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        keep_few(config, items)
    if config.getoption("--cases"):
        keep_cases(config, items)
    if config.getoption("--part"):
        keep_part(config, items)
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="a slow sweep; run it with --full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


def pytest_collection() -> None:
    """Exclude collected tests from garbage collections, each of which would take half a second longer."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave to no later collection of garbage what modules before have cached: it holds millions of objects."""
    gc.collect()
    gc.freeze()


def keep_few(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, and all but the first, the middle and the last case of each other one."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not (item.get_closest_marker("slow") or item.get_closest_marker("full")):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    saved = {id(alike[position]) for alike in cases.values() for position in (0, len(alike) // 2, -1)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in saved])
    items[:] = [item for item in items if id(item) in saved]


def keep_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases on a device that another stage runs: of ops of a method, which share a kernel, and of calls.

    A case is here with all of its dtypes, which are parted afterwards.
    """
    part, parts = map(int, config.getoption("--cases").split("/"))
    kinds: dict[object, dict[object, list[pytest.Item]]] = {}
    for item in items:
        if is_on_device(item) and not item.get_closest_marker("whole"):
            case = case_without_dtype(item) or item.nodeid
            method = case[0] if isinstance(case, tuple) else None
            kinds.setdefault((item.nodeid.partition("[")[0], method), {}).setdefault(case, []).append(item)
    others = {
        id(item)
        for cases in kinds.values()
        if len(cases) > MANY_CASES
        for number, alike in enumerate(cases.values())
        if (number - part) % parts
        for item in alike
    }
    deselect(config, items, others)


def deselect(config: pytest.Config, items: list[pytest.Item], others: set[int]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if id(item) in others])
    items[:] = [item for item in items if id(item) not in others]


def is_on_device(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Return True for a test with parameters that runs on the device."""
    return isinstance(item, pytest.Function) and "device" in item.fixturenames and hasattr(item, "callspec")


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases on a device whose dtype is of another part.

    Dtypes differ in traits that all ops share, and ops in what they do with any dtype. So a part has every op with some
    dtypes, and every dtype with some ops; together the parts have each op with each dtype. Dtypes of an op that are
    served in another way than others are shared on their own, so that each part has each way too.
    """
    part, parts = map(int, config.getoption("--part").split("/"))
    tests: dict[str, dict[object, list[pytest.Item]]] = {}
    for item in items:
        if (case := case_without_dtype(item)) is not None:
            tests.setdefault(item.nodeid.partition("[")[0], {}).setdefault(case, []).append(item)
    others = {
        id(item)
        for cases in tests.values()
        for number, alike in enumerate(cases.values())
        for index, item in enumerate(alike)
        if (number + index - part) % min(parts, len(alike))
    }
    deselect(config, items, others)


def case_without_dtype(item: pytest.Item) -> object:
    """Return the case of a test on a device, without its dtype; None if it has no dtype."""
    from tallow.runtime.doctor.support import SupportCell

    if not is_on_device(item):
        return None
    inputs = dict(item.callspec.params)
    cell = inputs.pop("cell", None)
    if isinstance(cell, SupportCell):
        return cell.method, cell.op, cell.via, cell.reason
    names = [name for name, value in inputs.items() if str(value) in dtype_names()]
    return str([value for name, value in inputs.items() if name != names[0]]) if names else None


@cache
def dtype_names() -> set[str]:
    """The names of dtypes and of formats of blocks."""
    from tallow import DType, GgmlDType

    return {dtype.value for dtype in (*DType, *GgmlDType)}


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> tallow.Device:
    # Imported here so that the generator's own tests run without the package.
    import tallow

    return tallow.Device.parse(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--full"))
