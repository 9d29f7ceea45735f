"""The spec of this repository, which says what is tested. What results are right, the oracle alone says."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opgen.model.spec import Spec


@cache
def read() -> Spec:
    """The spec as its files have it, read once; without PyYAML, which a GPU's machine may lack, a skip."""
    pytest.importorskip("yaml")
    from opgen.build import build
    from opgen.cache import state
    from opgen.loader import load

    root = Path(__file__).parents[1]
    # What `opgen check` has left is the same, and there in a third of the time.
    state.load(root)
    # `opgen check` looks for errors, which takes as long again.
    return build(load(root, []), [])
