"""Golden cases, found by walking: a change to a project, and the error text or the diff that opgen answers with."""

import re
from pathlib import Path

import pytest

from .project import HERE, Project

ERRORS = sorted(path for path in (HERE / "golden" / "errors").iterdir() if path.is_dir())
CHANGES = sorted(path for path in (HERE / "golden" / "changes").iterdir() if path.is_dir())


def compare(pytestconfig: pytest.Config, file: Path, actual: str) -> None:
    if pytestconfig.getoption("--update-golden"):
        file.write_text(actual, encoding="utf-8")
    assert file.is_file(), f"{file} is missing; run pytest --update-golden"
    assert actual == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_error_is_reported_and_nothing_is_written(
    small: Project, case: Path, pytestconfig: pytest.Config, full: bool
) -> None:
    before = small.files(), small.times()
    small.change(case)
    generate = small.run("generate")
    assert generate.exit_code == 1, generate.output
    assert generate.stdout == ""
    assert (small.files(), small.times()) == before
    # Both read the project alike, as some of the cases show.
    if full or ERRORS.index(case) % 8 == 0:
        check = small.run("check")
        assert (check.exit_code, check.stdout, check.stderr) == (1, "", generate.stderr)
    compare(pytestconfig, case / "stderr.txt", generate.stderr)


def without_banners(diff: str) -> str:
    """What the spec changes: a banner says no more than the lines below it, and so do their numbers."""
    lines = [line for line in diff.splitlines(keepends=True) if "Do not edit. " not in line]
    hunks = re.split(r"^(?=@@ |--- )", "".join(lines), flags=re.MULTILINE)
    kept = [hunk for hunk in hunks if not hunk.startswith("@@") or re.search(r"^[-+]", hunk, re.MULTILINE)]
    return re.sub(r"^@@ .*? @@", "@@", "".join(kept), flags=re.MULTILINE)


# Each case plans the whole package. An op and a dtype stand for the others.
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[] if case.name in ("add_op", "remove_dtype") else pytest.mark.full) for case in CHANGES],
    ids=lambda case: case.name,
)
def test_change_shows(few_ops: Project, case: Path, pytestconfig: pytest.Config) -> None:
    """A case holds expected.diff, or files.txt where the diff would be long."""
    few_ops.change(case)
    expected = [file for file in (case / "expected.diff", case / "files.txt") if file.is_file()]
    assert expected, f"write an empty expected.diff or files.txt in {case}, then run pytest --update-golden"
    for file in expected:
        result = few_ops.run("check", *(["--diff"] if file.suffix == ".diff" else []))
        assert result.exit_code == 1, result.output
        assert "files differ; run 'opgen generate'" in result.stderr
        compare(pytestconfig, file, without_banners(result.stdout))


def test_errors_are_many_and_located() -> None:
    texts = [(case / "stderr.txt").read_text(encoding="utf-8") for case in ERRORS]
    assert len(texts) >= 25
    for text in texts:
        *problems, count = text.splitlines()
        assert re.search(
            r" in the (spec|templates|runtime)(?: and the (spec|templates|runtime))*; nothing was written$", count
        )
        for problem in problems:
            file, line, column, message = problem.split(":", 3)
            assert Path(file).parts[0] in ("spec", "templates", "runtime")
            assert int(line) >= 1
            assert int(column) >= 1
            # The mend follows what is wrong.
            assert message.startswith(" ")
            assert any(mark in message for mark in ("; ", "must")), problem
