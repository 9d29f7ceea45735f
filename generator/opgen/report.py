"""How errors are shown: to people with the line that each is in, and to machines in the format that each takes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from opgen import __version__
from opgen.problem import Problem, lines_of, one_line

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_KEY = re.compile(r"(\"[^\"]*\"|'[^']*'|[^\s:,\[\]{}#]+)(?=\s*:(?:\s|$))")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'")
_IN_BRACKETS = re.compile(r"[^,\]}#\s](?:[^,\]}#\s]|\s+(?=[^,\]}#\s]))*")
_TO_THE_END = re.compile(r"(?:[^\s#]|#(?<=\S#)|\s+(?=[^\s#]))+")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Rule:
    """A kind of what is wrong, as SARIF wants it."""

    id: str
    text: str


ERROR = Rule("error", "The spec, a template or the runtime has an error.")
DIFFERENCE = Rule("difference", "A generated file is not what the spec says.")
BREAK = Rule("breaking-change", "A change of the spec breaks callers, and spec/package.yaml does not say why.")
_RULES = (ERROR, DIFFERENCE, BREAK)
Findings = Sequence[tuple[Rule, Problem]]


def end_column(line: str, column: int) -> int:
    """Where what stands at a column of a line ends; both count from 1."""
    start = column - 1
    before = line[:start].strip()
    is_in_brackets = len(re.findall(r"[\[{]", before)) > len(re.findall(r"[\]}]", before))
    # A location inside a text is that of a word.
    is_whole = before in ("", "-") or before[-1] in (":[{," if is_in_brackets else ":")
    patterns = (_QUOTED, _KEY, _IN_BRACKETS if is_in_brackets else _TO_THE_END) if is_whole else (_WORD,)
    match = next(filter(None, (pattern.match(line, start) for pattern in patterns)), None)
    return max(column + 1, match.end() + 1 if match is not None else 0)


def with_source(problem: Problem, lines: Sequence[str]) -> str:
    """An error with the line that it is in, and what it means there marked; for a terminal."""
    location = problem.location
    text = f"{click.style('error', fg='red', bold=True)}: {click.style(problem.message, bold=True)}\n"
    margin = " " * len(str(location.line))
    arrow, bar = click.style("-->", fg="blue"), click.style("|", fg="blue")
    text += f"{margin}{arrow} {location}\n"
    if location.line > len(lines):
        return text
    # A tab is as wide as the terminal likes.
    line = one_line(lines[location.line - 1].expandtabs(1))
    marks = "^" * (end_column(line, location.column) - location.column)
    number = click.style(str(location.line), fg="blue")
    mark = click.style(f"{' ' * (location.column - 1)}{marks}", fg="red", bold=True)
    return f"{text}{margin} {bar}\n{number} {bar} {line}\n{margin} {bar} {mark}\n"


def with_sources(problems: Sequence[Problem], root: Path) -> Iterator[str]:
    """Each error with its line."""
    texts: dict[Path, Sequence[str]] = {}
    for problem in problems:
        path = problem.location.path
        if path not in texts:
            try:
                texts[path] = lines_of((root / path).read_text(encoding="utf-8", errors="replace"))
            except OSError:
                texts[path] = ()
        yield with_source(problem, texts[path])


def as_json(findings: Findings) -> str:
    """A list of objects."""
    rows = [
        {"rule": rule.id, "path": path_of(problem), "line": problem.location.line, "column": problem.location.column,
         "message": problem.message}
        for rule, problem in findings
    ]  # fmt: skip
    return json.dumps(rows, indent=1, ensure_ascii=False)


def as_github(findings: Findings) -> str:
    """Commands of a workflow of GitHub, which become annotations."""
    return "\n".join(
        f"::error file={_escaped(path_of(problem), ':,')},line={problem.location.line},col={problem.location.column},"
        f"title=opgen {rule.id}::{_escaped(problem.message)}"
        for rule, problem in findings
    )


def as_sarif(findings: Findings) -> str:
    """A log in SARIF 2.1.0."""
    rules = [{"id": rule.id, "shortDescription": {"text": rule.text}} for rule in _RULES]
    driver = {"name": "opgen", "version": __version__, "rules": rules}
    results = [_result(rule, problem) for rule, problem in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False)


def _result(rule: Rule, problem: Problem) -> Mapping[str, Any]:
    start = problem.location
    region = {"startLine": start.line, "startColumn": start.column}
    location = {"artifactLocation": {"uri": quote(path_of(problem))}, "region": region}
    return {
        "ruleId": rule.id,
        "ruleIndex": _RULES.index(rule),
        "level": "error",
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": location}],
    }


def path_of(problem: Problem) -> str:
    """The path of an error's file, below the project."""
    return problem.location.path.as_posix()


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)


FORMATS = {"json": as_json, "github": as_github, "sarif": as_sarif}
