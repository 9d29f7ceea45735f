"""Hostile files: whatever stands in the spec, opgen accepts it or says where the error is, and never breaks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml
from opgen.base import with_base
from opgen.loader import load
from opgen.problem import Problem, Problems, SpecError, lines_of
from opgen.project import compose
from opgen.render import render
from opgen.sources import Sources

from .project import SMALL

SAMPLE = 60
HOSTILE = (
    *('""', "null", "true", "[]", "{}", "[[]]", "{a: {b: c}}", "-", "~", "'  '", "'a b'", "''''", "\u2028", "'\u00e9'"),
    *("0", "-1", "1e308", "1e-5", ".inf", ".nan", "'9'", "9" * 400, f"'{'9' * 400}'", "9" * 5000, "0o17", "x" * 300),
    *('"\\u2028"', '"\\u0085x"', '"\\0"', "'*x'", "'x.y.z'", "'../x'", "'/'", "'.'", "class", "self", "'def'"),
    *("'{x}'", "'{'", "'{{ x }}'", "'{% raw %}'", "'\\'", "'*/'", '\'"""\'', "'f(*x)'", "'f(**x)'", "'f(x=1)'"),
    *("'f(lambda: x)'", "'x := 1'", "'x if x else x'", f"'{' * '.join(['x'] * 250)}'", f"'{'abs(' * 250}x{')' * 250}'"),
    *(f"'{'-' * 5000}x'", f"'{'(' * 90}x{')' * 90}'", f"'{'[' * 300}'", f"'{'word ' * 10_000}'", "'\U0001f600'"),
    *("!!int x", "!!binary eA==", "!tag x", "&a [*a]", "*nothing"),
)


@cache
def places() -> Sequence[tuple[Path, int, int]]:
    """Where each key and each value of the small project's spec stands, by the offsets in its file."""
    results = []
    for file in sorted((SMALL / "spec").rglob("*.yaml")):
        for node in scalars(yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)):
            results.append((file.relative_to(SMALL), node.start_mark.index, node.end_mark.index))
    return results


def scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for inner in node.value if isinstance(node, yaml.CollectionNode) else ():
        for each in inner if isinstance(inner, tuple) else (inner,):
            yield from scalars(each)


def errors(file: Path, text: str) -> Sequence[Problem]:
    """What opgen says of the small project where `file` holds `text`."""
    problems = Problems()
    documents = load(SMALL, problems, {file: text})
    try:
        project = compose(SMALL, documents, Sources(SMALL, with_base(documents, problems)), problems)
        render(project.outputs, project.sources)
    except SpecError as error:
        return error.problems
    return ()


def mutations(part: int | None) -> list[tuple[Path, str, str]]:
    every = [*itertools.product(places(), HOSTILE)]
    random.Random(0).shuffle(every)
    results = []
    for (file, start, end), value in every[:SAMPLE] if part is None else every[part::16]:
        text = (SMALL / file).read_text(encoding="utf-8")
        line = text.count("\n", 0, start) + 1
        results.append(
            (file, f"{text[:start]}{value}{text[end:]}", f"{file}:{line}: {text[start:end]} is {value[:40]}")
        )
    return results


def require_places(part: int | None) -> None:
    for file, text, what in mutations(part):
        for problem in errors(file, text):
            index = problem.location
            lines = lines_of(text if index.path == file else (SMALL / index.path).read_text(encoding="utf-8"))
            assert index.line <= len(lines), f"{what}: {problem}"
            assert len(problem.message) < 20_000, what


def test_a_sample_of_hostile_values() -> None:
    require_places(None)


@pytest.mark.full
@pytest.mark.parametrize("part", range(16))
def test_hostile_values(part: int) -> None:
    require_places(part)
