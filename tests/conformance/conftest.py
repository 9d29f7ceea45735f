"""A test of a dtype runs on the backends that have it; that the others refuse it is asked for each cell.

With --third an op of a method that has several runs in a third of its dtypes.
"""

from __future__ import annotations

import pytest

from . import matrix
from .bench import is_of_third


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = {*matrix.dtypes_of(config.getoption("--device").partition(":")[0])}

    def is_lacking(item: pytest.Item) -> bool:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        names = {str(params[key]) for key in ("name", "dtype") if key in params}
        return "device" in item.fixturenames and bool(names & {*matrix.DTYPES} - there)

    third: int | None = config.getoption("--third")

    def is_of_another_third(item: pytest.Item) -> bool:
        is_cell = isinstance(item, pytest.Function) and item.originalname == "test_cell"
        return third is not None and is_cell and not is_of_third(item.callspec.params["cell"], third)

    left_out = [item for item in items if is_lacking(item) or is_of_another_third(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
