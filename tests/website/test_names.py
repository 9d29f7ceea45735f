"""What docs/site/ops.yaml says of ops: it knows the ops of the spec, and the libraries know the names."""

from __future__ import annotations

import importlib
import importlib.util
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FACTS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docs/site/ops.yaml").read_text(encoding="utf-8"))


def names(library: str) -> dict[str, str]:
    return {op: own[library] for op, own in FACTS.items() if library in own}


def recorded(library: str) -> set[str]:
    lines = (HERE / f"{library}_names.txt").read_text(encoding="utf-8").splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


def test_the_ops_are_those_of_the_spec() -> None:
    methods = {cell.method for cell in tallow.support()} | {cell.op for cell in tallow.support()}
    assert not {*FACTS} - methods
    assert list(FACTS) == sorted(FACTS)


def test_each_entry_says_something_known() -> None:
    assert {key for own in FACTS.values() for key in own} == {"numpy", "torch", "candle", "timed", "plot"}


def test_numpy_has_the_names() -> None:
    for name in names("numpy").values():
        assert callable(attrgetter(name)(np)), name


@pytest.mark.parametrize("library", ["torch", "candle"])
def test_the_recorded_names_have_those(library: str) -> None:
    assert len(names(library)) > 50
    assert not {*names(library).values()} - recorded(library)
    # Where PyTorch is installed, it is asked itself.
    if importlib.util.find_spec(library) is not None:
        module = importlib.import_module(library)
        assert all(callable(attrgetter(name)(module)) for name in names(library).values())
