"""A test of a dtype runs on the backends that have it; that the others refuse it is asked for each cell."""

from __future__ import annotations

import pytest
from compilers import compile_host_kernels

from . import matrix, subnormals
from .bench import Bench
from .oracle.formats import NUMPY


def pytest_configure(config: pytest.Config) -> None:
    compile_host_kernels()
    Bench.sample = config.getoption("--sample")
    subnormals.use_device(config.getoption("--device").partition(":")[0])


# Before what is left is shared between parts.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = {*NUMPY} - {*matrix.dtypes_of(config.getoption("--device").partition(":")[0])}

    def is_lacking(item: pytest.Item) -> bool:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        names = {str(params[key]) for key in ("name", "dtype") if key in params}
        return "device" in item.fixturenames and bool(names & lacking)

    config.hook.pytest_deselected(items=[item for item in items if is_lacking(item)])
    items[:] = [item for item in items if not is_lacking(item)]
