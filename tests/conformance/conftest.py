"""A test of a dtype runs on the backends that have it; that the others refuse it is asked for each cell.

With --some an elementwise op runs in a third of its dtypes.
"""

from __future__ import annotations

import pytest

from . import matrix
from .bench import is_of_a_third


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = {*matrix.dtypes_of(config.getoption("--device").partition(":")[0])}

    def is_lacking(item: pytest.Item) -> bool:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        names = {str(params[key]) for key in ("name", "dtype") if key in params}
        return "device" in item.fixturenames and bool(names & {*matrix.DTYPES} - there)

    def is_like_others(item: pytest.Item) -> bool:
        is_cell = isinstance(item, pytest.Function) and item.originalname == "test_cell"
        return is_cell and not is_of_a_third(item.callspec.params["cell"])

    left_out = [item for item in items if is_lacking(item) or (config.getoption("--some") and is_like_others(item))]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
