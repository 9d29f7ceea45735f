"""No link in Markdown leads nowhere: to a file that is missing, or to a heading that no page has."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Pages that Sphinx has in another folder, where it checks their links; and cases whose links are what is tested.
ELSEWHERE = ("docs/site/", "tests/generator/golden/")
FENCE = re.compile(r"^ *(`{3,})[^`]*\n.*?^ *\1`*$\n?", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"(?<!\\)\]\(\s*<?(?P<path>[^)\s>#]*)(?:#(?P<anchor>[^)\s>]*))?>?[^)]*\)")
HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)


def documents() -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if not name.startswith(ELSEWHERE) and (ROOT / name).is_file()]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(file: Path) -> set[str]:
    counts: Counter[str] = Counter()
    results = set()
    for heading in HEADING.findall(FENCE.sub("", file.read_text(encoding="utf-8"))):
        name = slug(heading)
        results.add(f"{name}-{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return results


def broken(file: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    results = []
    for match in LINK.finditer(CODE.sub("", FENCE.sub("", text))):
        path, anchor = match["path"], match["anchor"]
        if re.match(r"[a-z]+:", path):
            continue
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            results.append(match[0])
    return results


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    file = ROOT / name
    assert broken(file, file.read_text(encoding="utf-8")) == []


def test_links_that_lead_nowhere_are_found() -> None:
    text = "# A b\n[x](README.md) [y](gone.md) `[z](gone.md)`\n```\n[z](gone.md)\n```\n[w](README.md#no-such) [v](https://x)"
    assert broken(ROOT / "CONTRIBUTING.md", text) == ["](gone.md)", "](README.md#no-such)"]


def test_every_page_of_docs_is_read() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "generated/docs/formulas.md"} <= {*documents()}
