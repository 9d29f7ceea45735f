"""Block formats that kernels read quant by quant, or not at all: variants of each format of the spec."""

from __future__ import annotations

from dataclasses import replace

import own_spec
import pytest
from opgen.formats import Format
from opgen.problem import Problems
from opgen.rounding import check_rounding
from opgen.sources import Sources

from .project import REPOSITORY

SPEC = own_spec.read()
SCALED = [each for each in SPEC.formats if each.scale is not None]
PLAIN = [each for each in SPEC.formats if each.scale is None]


def flaws(block: Format) -> list[str]:
    return [message for _, message in block.diagnostics(f"format '{block.name}'")]


def unrounded(block: Format, *others: Format) -> list[str]:
    result = Problems()
    check_rounding(replace(SPEC, formats=(block, *others)), Sources(REPOSITORY), result)
    return [problem.message for problem in result]


def test_formats_of_the_spec_are_right() -> None:
    assert not [message for block in SPEC.formats for message in flaws(block)]
    assert not unrounded(*SPEC.formats)


@pytest.mark.parametrize("block", SCALED, ids=lambda block: block.name)
def test_quants_of_any_expression_are_read(block: Format) -> None:
    assert not block.quads.calls_quant
    # Of one bit, so that products with scales stay exact.
    for quant in ("1 - i % 2", "i // 2 % 2"):
        other = replace(block, quant=quant, let={})
        assert not flaws(other) and other.quads.calls_quant, quant
    assert any("let it be from -128 to 127" in flaw for flaw in flaws(replace(block, quant="i % 2 * 300", offset=None)))
    if block.shared is not None:
        assert flaws(replace(block, shared=8))
    odd = replace(block, elements=48, shared=None, quant="i % 2")
    assert any("'elements'" in message or "'quant'" in message for message in flaws(odd))


@pytest.mark.parametrize("block", PLAIN, ids=lambda block: block.name)
def test_blocks_of_several_numbers_have_a_scale(block: Format) -> None:
    assert any("has no scale" in message for message in flaws(replace(block, elements=4)))


@pytest.mark.parametrize("block", PLAIN, ids=lambda block: block.name)
def test_numbers_of_no_dtype(block: Format) -> None:
    (message,) = unrounded(replace(block, name="own"))
    assert "dtype of its name" in message
