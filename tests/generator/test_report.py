"""What is wrong, in every format: with its line on a terminal, as JSON, as annotations, as SARIF."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator
from opgen.problem import Location, Problem
from opgen.report import ERROR, FORMATS, end_column, with_source

from .project import Project
from .test_cli import on_a_terminal

# What consumers of SARIF 2.1.0 require of a log, and what such a log may have of all else.
TEXT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string"}},
}
SARIF = {
    "type": "object",
    "required": ["version", "$schema", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"pattern": "/sarif-schema-2.1.0.json$"},
        "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}},
    },
    "additionalProperties": False,
    "$defs": {
        "run": {
            "required": ["tool", "results"],
            "properties": {
                "tool": {"required": ["driver"], "properties": {"driver": {"$ref": "#/$defs/driver"}}},
                "columnKind": {"enum": ["unicodeCodePoints", "utf16CodeUnits"]},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
            "additionalProperties": False,
        },
        "driver": {
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "version": {"type": "string"},
                "rules": {
                    "type": "array",
                    "items": {
                        "required": ["id"],
                        "properties": {"id": {"type": "string"}, "shortDescription": TEXT},
                        "additionalProperties": False,
                    },
                },
            },
            "additionalProperties": False,
        },
        "result": {
            "required": ["message"],
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "message": TEXT,
                "locations": {
                    "type": "array",
                    "items": {
                        "properties": {
                            "physicalLocation": {
                                "required": ["artifactLocation"],
                                "properties": {
                                    "artifactLocation": {"properties": {"uri": {"pattern": r"^[^\s\\:]+$"}}},
                                    "region": {
                                        "required": ["startLine"],
                                        "additionalProperties": {"type": "integer", "minimum": 1},
                                    },
                                },
                                "additionalProperties": False,
                            }
                        },
                        "additionalProperties": False,
                    },
                },
            },
            "additionalProperties": False,
        },
    },
}
PROBLEM = Problem(Location(Path("spec/functors/a b.yaml"), 3, 11), "100% wrong, 'x': no; fix it")


def findings(style: str, output: str) -> list[tuple[str, str, int]]:
    """The rule, the file and the line of each finding."""
    match style:
        case "json":
            return [(each["rule"], each["path"], each["line"]) for each in json.loads(output)]
        case "sarif":
            log = json.loads(output)
            Draft202012Validator(SARIF).validate(log)
            (run,) = log["runs"]
            rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
            assert [rules[each["ruleIndex"]] for each in run["results"]] == [each["ruleId"] for each in run["results"]]
            indices = [each["locations"][0]["physicalLocation"] for each in run["results"]]
            return [
                (each["ruleId"], index["artifactLocation"]["uri"], index["region"]["startLine"])
                for each, index in zip(run["results"], indices, strict=True)
            ]
    lines = [line.removeprefix("::error ").split("::")[0].split(",") for line in output.splitlines() if line]
    parts = [dict(part.split("=", 1) for part in line) for line in lines]
    return [(part["title"].removeprefix("opgen "), part["file"], int(part["line"])) for part in parts]


@pytest.mark.parametrize("style", FORMATS)
def test_formats(small: Project, style: str) -> None:
    clean = small.run("check", "--format", style)
    assert (clean.exit_code, findings(style, clean.stdout)) == (0, [])
    (small.output / "tallow/limits.py").unlink()
    outdated = small.run("check", "--format", style)
    assert (outdated.exit_code, outdated.stderr) == (1, "")
    assert findings(style, outdated.stdout) == [("difference", "generated/tallow/limits.py", 1)]
    assert "missing; run 'opgen generate'" in outdated.stdout
    small.edit("spec/package.yaml", "max_rank: ", "most_rank: ")
    text, result = small.run("check"), small.run("check", "--format", style)
    assert (result.exit_code, result.stderr) == (1, "")
    lines = [line.split(":") for line in text.stderr.splitlines()[:-1]]
    assert findings(style, result.stdout) == [("error", path, int(line)) for path, line, *_ in lines]
    assert len(lines) >= 1


def test_diff_is_for_people(small: Project) -> None:
    result = small.run("check", "--diff", "--format", "json")
    assert result.exit_code == 2
    assert "--diff is for people; leave --format out" in result.stderr


def test_texts_are_escaped() -> None:
    actual = [(ERROR, PROBLEM)]
    assert FORMATS["github"](actual) == (
        "::error file=spec/functors/a b.yaml,line=3,col=11,title=opgen error::100%25 wrong, 'x': no; fix it"
    )
    log: dict[str, Any] = json.loads(FORMATS["sarif"](actual))
    assert findings("sarif", json.dumps(log)) == [("error", "spec/functors/a%20b.yaml", 3)]


@pytest.mark.parametrize(
    "line",
    [
        "  dtypes: «floats»",
        "  dtypes: [f32, «f33», f64]",
        "    «kernal»: unary.exp",
        "  doc: «what it is, in a word»  # a comment",
        '  label: «"a: b, c"»',
        "  x: {«edges»: {f(0): 1}}",
        "  formula: where(x > 0, «sgn»(x), x)",
        "  formula: x «$» x",
        "  - «last»",
        "a:« »",
    ],
)
def test_what_is_marked(line: str) -> None:
    begin, end = line.index("«") + 1, line.index("»")
    text = line.replace("«", "").replace("»", "").rstrip()
    assert end_column(text, begin) == end


def test_the_line_is_shown() -> None:
    lines = ["ops:", "  exp:", "    dtype: floats, and more"]
    text = click.unstyle(with_source(Problem(Location(Path("spec/a.yaml"), 3, 5), "unknown key 'dtype'"), lines))
    assert text == (
        "error: unknown key 'dtype'\n --> spec/a.yaml:3:5\n  |\n3 |     dtype: floats, and more\n  |     ^^^^^\n"
    )
    beyond = click.unstyle(with_source(Problem(Location(Path("spec/a.yaml"), 9), "nothing is here"), lines))
    assert beyond == "error: nothing is here\n --> spec/a.yaml:9:1\n"


def test_a_terminal_shows_lines_and_elsewhere_an_error_is_a_line(small: Project) -> None:
    small.edit("spec/package.yaml", "max_rank: ", "most_rank: ")
    shown = on_a_terminal([sys.executable, "-m", "opgen", "--root", str(small.root), "check"], {})
    plain = click.unstyle(shown).replace("\r", "")
    assert "| ^^^^^^^^^\n" in plain
    assert "\x1b[31m" in shown
    assert "-->" not in small.run("check").stderr
