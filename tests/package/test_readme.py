"""README and pages tell the truth: their sessions run, and their excerpts stand in the files that they name."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_SESSIONS = ("README.md", "docs/python.md", "docs/array-api.md")
WITH_EXCERPTS = ("README.md", "docs/architecture.md")

# A line that is nothing but a link to a file, and the block of code below it.
EXCERPT = re.compile(
    r"^\[(?P<path>[^]]+)\]\((?:\.\./)?(?P=path)\)\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


EXCERPTS = [(page, *match.group("path", "text")) for page in WITH_EXCERPTS for match in EXCERPT.finditer(text_of(page))]


@pytest.mark.parametrize("page", WITH_SESSIONS)
def test_sessions_give_what_they_show(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # One session in several parts: what a part names, the parts after it use.
    session = "\n".join(SESSION.findall(text_of(page)))
    test = doctest.DocTestParser().get_doctest(session, {}, page, page, 0)
    assert len(test.examples) > 5
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not failed, "".join(report)


@pytest.mark.parametrize(("page", "path", "text"), EXCERPTS)
def test_excerpt_stands_in_its_file(page: str, path: str, text: str) -> None:
    assert text in text_of(path), page


@pytest.mark.parametrize(
    ("page", "folders"), [("README.md", {"spec", "generated"}), ("docs/architecture.md", {"spec"})]
)
def test_there_are_excerpts(page: str, folders: set[str]) -> None:
    assert {path.partition("/")[0] for own, path, _ in EXCERPTS if own == page} == folders
