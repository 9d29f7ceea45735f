"""The pages of docs/ are of the programs that render them: a change of a text or of the layout renders them anew."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "arrays": ["benchmarks.arrays"],
    "benchmarks": ["benchmarks.gpu.report", "benchmarks.gpu.causes"],
    "cpu": ["benchmarks.cpu.report"],
    "model": ["benchmarks.model.report"],
    "networks": ["benchmarks.networks.report"],
    "quantized": ["benchmarks.quantized"],
    "tokens": ["benchmarks.tokens"],
    "training-steps": ["benchmarks.training.report"],
}


def texts(module: str) -> list[str]:
    """The texts of several lines that a module has, and of those with placeholders what is between."""
    own = [value for name, value in vars(import_module(module)).items() if isinstance(value, str) and name != "__doc__"]
    return [part.strip("\n") for value in own if value.count("\n") > 1 for part in re.split(r"\{\w+\}", value)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_texts_of_its_program(page: str) -> None:
    rendered = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    actual = [text for module in PAGES[page] for text in texts(module)]
    assert actual
    assert [text for text in actual if text not in rendered] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_figures(page: str) -> None:
    rendered = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    unfolded = re.sub(r"<details>.*?</details>", "", rendered, flags=re.DOTALL)
    first, _, remaining = unfolded.partition("\n| ")
    assert len(first.splitlines()) < 25
    assert not remaining.startswith(" |"), "a table of versions has no head"
    assert rendered.count("<details>") == rendered.count("</details>")
