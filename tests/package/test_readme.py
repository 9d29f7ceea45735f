"""README and pages tell the truth: their sessions run, and their excerpts stand in the files that they name."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_SESSIONS = (
    "README.md",
    "docs/site/index.md",
    "docs/python.md",
    "docs/array-api.md",
    "docs/from-pytorch.md",
    "docs/from-numpy.md",
)
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


def test_python_and_how_to_install_come_before_any_other_language() -> None:
    for page in ("README.md", "docs/site/index.md"):
        text = text_of(page)
        others = [text.find(fence) for fence in ("```yaml", "```cpp", "```python") if fence in text]
        assert 0 < text.index("pip install ./generated") < text.index("```pycon") < min(others, default=len(text)), page
        assert 8 <= len(SESSION.search(text)[1].splitlines()) <= 12, page


def test_readme_has_the_accuracy_that_the_example_prints() -> None:
    program = [sys.executable, str(ROOT / "examples/digits.py")]
    *epochs, said = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    losses = [re.fullmatch(rf"epoch {number} of 12: loss (\d\.\d{{4}})", line) for number, line in enumerate(epochs, 1)]
    assert len(losses) == 12
    assert float(losses[-1][1]) < 0.1 * float(losses[0][1])
    # How long it took differs.
    (shown,) = re.findall(r"^    (accuracy .*)$", text_of("README.md"), re.MULTILINE)
    assert re.sub(r", [\d.]+ s\)$", "", shown) == re.sub(r", [\d.]+ s\)$", "", said)


def test_readme_lists_the_guides_as_the_site_does() -> None:
    guides = re.search(r"<!-- guides -->\n\n(.*?)\n\n<!-- end", text_of("docs/site/guides.md"), re.DOTALL)
    assert guides is not None
    assert guides[1] in text_of("README.md")


def test_every_page_has_a_place_on_the_site() -> None:
    listed = "".join(text_of(f"docs/site/{page}.md") for page in ("guides", "measurements", "reference", "index"))
    pages = {file.relative_to(ROOT).with_suffix("").as_posix() for file in (ROOT / "docs").glob("*.md")}
    assert sorted(page for page in pages if not re.search(rf"(?:\(|^){page}(?:\.md|$)", listed, re.MULTILINE)) == []


def test_pages_with_examples_say_what_these_need() -> None:
    own = {"tallow", *sys.stdlib_module_names}
    imported: set[str] = set()
    for path in (ROOT / "examples").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            imported |= {name.partition(".")[0] for name in names} - own
    command = "pip install " + " ".join(
        sorted({"sklearn": "scikit-learn"}.get(name, name) for name in imported - {"numpy"})
    )
    pages = ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    shown = [
        page
        for page in pages
        if re.search(r"\]\((\.\./)?examples/\w+\.py|^ +python .*examples/", text_of(page), re.MULTILINE)
    ]
    assert len(shown) >= 4
    assert [page for page in shown if command not in text_of(page)] == []
