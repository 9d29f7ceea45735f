"""The rules by which changes of a spec break callers: each finds what it should, alone, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from opgen.comparison.breaks import breaks
from opgen.comparison.changes import compare
from opgen.comparison.rules import RULES
from opgen.model.spec import Spec
from opgen.project import read_spec_alone

from .project import HERE, REPOSITORY, SMALL, Project, copy_project

PAGE = REPOSITORY / "docs" / "rules.md"
HEAD = """\
# Changes that break callers

<!-- Made by pytest tests/generator/test_rules.py --update-golden of generator/opgen/comparison/rules. -->

`opgen diff REF` prints how the spec has changed since a commit, and what breaks callers. `opgen check --against REF`
fails if something does. Compare with the last release: unreleased changes have no callers.

Each break is reported by a rule and names its subject, as in `OP_REMOVED unary.gelu`. To break callers on purpose,
write an exception with its reason to `spec/package.yaml`:

    breaking:
      OP_REMOVED:
        unary.gelu: every caller meant gelu_erf

An exception that no longer applies is an error. Remove it after the release.
"""
CASES: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "golden" / "breaking.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has something for every rule; each test leaves it as it was."""
    project = copy_project(SMALL, tmp_path_factory.mktemp("callers") / "project")
    project.apply({"overlay": "callers"})
    return project


@pytest.fixture(scope="module")
def before(callers: Project) -> Spec:
    return read_spec_alone(callers.root)


def edited(project: Project, *edits: dict[str, Any]) -> Spec:
    """The spec after some edits, which are undone."""
    files = {path: path.read_text("utf-8") for path in {project.root / edit["file"] for edit in edits}}
    try:
        for edit in edits:
            project.apply(edit)
        return read_spec_alone(project.root)
    finally:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")


def test_each_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(RULES)
    assert len(RULES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_its_change_and_no_other(name: str, callers: Project, before: Spec) -> None:
    case = CASES[name]
    after = edited(callers, case, *case.get("besides", ()))
    # A new parameter is one that a formula names, or opgen refuses it.
    expected = [(name, case["what"]), *case.get("also", {}).items()]
    assert sorted((actual.rule, actual.what) for actual in breaks(compare(before, after))) == sorted(expected)
    if "harmless" in case:
        find, replace = case["harmless"]
        other = compare(before, edited(callers, {"file": case["file"], "find": find, "replace": replace}))
    else:
        other = compare(after, before)
    assert other.changes
    assert breaks(other) == []


def page() -> str:
    """docs/rules.md."""
    rules = [f"## {rule.name}\n\n{rule.doc}\n" for rule in RULES.values()]
    return f"{HEAD}\n{chr(10).join(rules)}"


def test_the_page_of_rules_is_what_the_rules_say(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run pytest --update-golden"
    for rule in RULES.values():
        assert rule.doc, rule.name
