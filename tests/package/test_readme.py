"""The README tells the truth: its sessions run, and its excerpts stand in the files that it names."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

# A line that is nothing but a link to a file, and the block of code below it.
EXCERPT = re.compile(r"^\[(?P<path>[^]]+)\]\((?P=path)\)\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<path>[^)#]+)\)")


def readme() -> str:
    return README.read_text(encoding="utf-8")


def test_sessions_give_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # One session in several parts: what a part names, the parts after it use.
    session = "\n".join(SESSION.findall(readme()))
    test = doctest.DocTestParser().get_doctest(session, {}, README.name, str(README), 0)
    assert len(test.examples) > 5
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not failed, "".join(report)


@pytest.mark.parametrize(("path", "text"), [match.group("path", "text") for match in EXCERPT.finditer(readme())])
def test_excerpt_stands_in_its_file(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text(encoding="utf-8")


def test_there_are_excerpts_of_spec_and_package() -> None:
    folders = {match["path"].partition("/")[0] for match in EXCERPT.finditer(readme())}
    assert folders == {"spec", "generated"}


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/architecture.md",
        "docs/benchmarks.md",
        "docs/custom-ops.md",
        "docs/training.md",
    ],
)
def test_links_lead_somewhere(document: str) -> None:
    file = ROOT / document
    for match in LINK.finditer(file.read_text(encoding="utf-8")):
        path = match["path"]
        assert path.startswith("https://") or (file.parent / path).exists(), f"{document} links to {path}"
