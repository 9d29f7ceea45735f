"""The spec, which says what is tested of refusals and of edges. What results are right, the oracle alone says."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opgen.model import Spec


@cache
def read() -> Spec:
    """The spec of this repository; the test is skipped without PyYAML, which a GPU's machine may lack."""
    pytest.importorskip("yaml")
    from opgen.project import read_spec

    return read_spec(Path(__file__).parents[2])
