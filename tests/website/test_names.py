"""The tables of equivalent names: the package has tallow's names, and the libraries the others."""

from __future__ import annotations

import importlib
import importlib.util
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import tallow
import tallow.array_api
import tallow.gguf
import tallow.models
import tallow.tokenizer
from tallow.runtime.tensor.equivalents import EQUIVALENTS

from docs.site import api
from docs.site import names as pages

HERE = Path(__file__).parent
# Methods for other devices and ops of one's own, and fused ops of networks, which neither NumPy nor PyTorch has.
OURS_ALONE = {
    "affine",
    "from_storage",
    "gelu_mul",
    "is_cpu",
    "is_metal",
    "is_rocm",
    "metal",
    "rocm",
    "rope",
    "silu_mul",
}
OURS_ALONE |= {f"{name}{count}" for name in ("apply_op", "inplace_op") for count in (1, 2, 3)}


def names(library: str) -> set[str]:
    if library == "candle":
        return {own["candle"] for own in pages.facts().values() if "candle" in own}
    return {name for own in EQUIVALENTS.values() for name in getattr(own, library).split()}


def recorded(library: str) -> set[str]:
    lines = (HERE / f"{library}_names.txt").read_text(encoding="utf-8").splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


def test_our_names_are_public() -> None:
    for name in EQUIVALENTS:
        assert attrgetter(name)(tallow) is not None
    assert [*EQUIVALENTS] == sorted(EQUIVALENTS, key=str.lower)


def test_each_method_of_a_tensor_has_its_names_or_is_listed_here() -> None:
    """NumPy and PyTorch have most of them: who adds one says how they call it, or that they do not."""
    lacking = {name for page in api.pages() for name in page.names if name.startswith("Tensor.")} - {*EQUIVALENTS}
    assert lacking == {f"Tensor.{name}" for name in OURS_ALONE}


def test_the_ops_are_those_of_the_spec() -> None:
    methods = {cell.method for cell in tallow.support()} | {cell.op for cell in tallow.support()}
    assert not {*pages.facts()} - methods
    assert [*pages.facts()] == sorted(pages.facts())


def test_each_entry_says_something_known() -> None:
    assert {key for own in pages.facts().values() for key in own} == {"api", "candle", "timed", "plot"}
    assert {own["api"] for own in pages.facts().values() if "api" in own} <= {*EQUIVALENTS}


def test_numpy_has_the_names() -> None:
    for name in names("numpy"):
        attrgetter(name)(np)


def test_functions_of_one_operand_give_what_those_of_numpy_give() -> None:
    numbers = np.array([-3.7, -2.5, -1.5, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, np.inf, -np.inf, np.nan])
    compared = 0
    cells = [cell for cell in tallow.support() if cell.method == "unary_impl" and cell.dtype == "f64"]
    for op in {cell.op for cell in cells if cell.backend == "cpu" and cell.status == "supported"}:
        ours = pages.public_name(str(op))
        for theirs in EQUIVALENTS[ours].numpy.split() if ours is not None else ():
            if isinstance(function := attrgetter(theirs)(np), np.ufunc) or theirs in ("round", "around"):
                with np.errstate(all="ignore"):
                    expected = function(numbers)
                result = attrgetter(str(ours))(tallow)(tallow.Tensor(numbers)).numpy()
                np.testing.assert_allclose(result, expected, rtol=1e-12, err_msg=f"{ours}, {theirs}")
                compared += 1
    assert compared > 40


@pytest.mark.parametrize("library", ["torch", "candle"])
def test_the_recorded_names_have_those(library: str) -> None:
    assert len(names(library)) > 50
    known = recorded(library)
    assert {name for name in names(library) if name not in known and f"Tensor.{name}" not in known} == set()
    # Where PyTorch is installed, it is asked itself.
    if importlib.util.find_spec(library) is not None:
        module = importlib.import_module(library)
        for name in names(library):
            assert attrgetter(name)(module) is not None


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_the_guides_list_the_names_that_differ(library: str, pytestconfig: pytest.Config) -> None:
    page = HERE.parents[1] / f"docs/from-{pages.LIBRARIES[library].lower()}.md"
    text = page.read_text(encoding="utf-8")
    start, end = "<!-- Made by pytest tests/website/test_names.py --update-golden. -->\n", "<!-- End. -->\n"
    expected = f"{text.partition(start)[0]}{start}\n{pages.differing(library)}\n\n{end}"
    if pytestconfig.getoption("--update-golden"):
        page.write_text(expected, encoding="utf-8")
    assert text.endswith(end)
    assert page.read_text(encoding="utf-8") == expected, "run pytest --update-golden"
