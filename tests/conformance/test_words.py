"""A library's words that an op calls are those that opgen finds in its code: a word that a library lacks refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import own_spec
import pytest
import tallow
from tallow.runtime.backends.array_backend.device import ArrayDevice

from . import calls, matrix
from .oracle.formats import NUMPY

if TYPE_CHECKING:
    from tallow.runtime.doctor.support import SupportCell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def called(device: tallow.Device, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The words of the device's library that ops call; what spellings call does not count."""
    if not isinstance(device.inner, ArrayDevice) or device.backend == "cpu":
        pytest.skip("it is of ops that array libraries alone compute")
    family = next(family for family in own_spec.read().backend_families if family.vocabulary)
    library = device.inner.library
    called: set[str] = set()
    depth = 0

    def noting(name: str, word: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal depth
            called.update([name] if depth == 0 else [])
            depth += 1
            try:
                return word(*arguments)
            finally:
                depth -= 1

        return call

    for name in family.vocabulary:
        if (word := getattr(library, name)) is not None:
            monkeypatch.setattr(library, name, noting(name, word))
    return called


def test_ops_call_the_words_that_opgen_finds(device: tallow.Device, called: set[str]) -> None:
    from opgen.cells import FunctionCall
    from opgen.problem import Location
    from opgen.sources import Sources
    from opgen.words import needed_words, uses_of_words

    spec = own_spec.read()
    backend = next((backend for backend in spec.backends if backend.name == device.backend), None)
    if backend is None:
        pytest.skip("its file is not in spec/")
    methods = {method.name: method for method in spec.methods}
    uses = uses_of_words(("array_backend",), Sources(ROOT))

    def make(name: str, length: int) -> tallow.Storage:
        return device.storage(np.ones(length, NUMPY[name]))

    def words_of(cell: SupportCell) -> set[str]:
        device.inner.plans.clear()
        if cell.method in matrix.DEVICE_METHODS:
            called.clear()
            calls.call_device(cell, device)
        else:
            owner, name, arguments = calls.storage_call(cell, make)
            called.clear()
            getattr(owner, name)(*arguments.values())
        return {*called}

    # One cell of each op and kind of dtypes.
    chosen: dict[object, SupportCell] = {}
    for cell in tallow.support():
        is_call = re.fullmatch(r"\w+\.\w+", cell.via or "") is not None and not calls.is_custom(cell)
        if cell.backend == device.backend and isinstance(cell.dtype, tallow.DType) and is_call:
            chosen.setdefault((cell.method, cell.op, cell.dtype.is_integer), cell)
    wrong = {}
    for cell in chosen.values():
        assert isinstance(cell.dtype, tallow.DType)
        module, _, function = str(cell.via).partition(".")
        functor = spec.functor(methods[cell.method], cell.op)
        call = FunctionCall(module, function, None, False, Location(ROOT))
        needed = needed_words(spec, uses, backend, functor, call, cell.dtype.value)
        if not_needed := words_of(cell) - needed:
            wrong[cell.method, cell.op] = not_needed
    assert not wrong
    assert len(chosen) > 300
