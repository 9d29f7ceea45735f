"""What opgen keeps of files that did not change: what it finds with that is what it finds without."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest
from opgen.cache.exact import Comparison, digest
from opgen.cache.memo import memoize
from opgen.formula.nodes import Number
from opgen.formula.parsing import parse
from opgen.language_server.workspace import Workspace
from opgen.problem import Problem

from .edits import edited
from .project import REPOSITORY


def test_what_is_found_of_the_same_objects_is_kept() -> None:
    calls = []

    @memoize(lambda *given: given, size=2)
    def joined(first: list[int], text: str) -> str:
        calls.append((first, text))
        return f"{first} {text}"

    one, other = [1], [1]
    assert joined(one, "a") == joined(one, "a") == "[1] a"
    assert len(calls) == 1
    joined(other, "a")
    assert len(calls) == 2, "an equal list is another one"
    joined(one, "b")
    joined(one, "a")
    assert len(calls) == 4, "two results are kept"


def test_arguments_have_their_types() -> None:
    @memoize(lambda *given: given)
    def shown(value: object) -> str:
        return repr(value)

    assert [shown(1), shown(True), shown(1)] == ["1", "True", "1"]


VALUES = [
    *(0, 1, 2, -1, 0.0, -0.0, 1.0, 2.0, float("nan"), True, False, None, 0j, 10**400),
    *("", "1", "a", b"a", b"", Path("a"), PurePosixPath("a")),
    *((), [], {}, set(), frozenset(), (1, 2), (2, 1), [1, 2], (1, 2.0), ((1,), 2), (1, (2,))),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0, "b": 2}, {1, 2}, {1, 3}, {"a": {"b": 1}}, {"a": {}, "b": 1}),
    *map(parse, ("x", "2", "2.0", "x + 2", "x + 2.0", "2 + x", "0.0", "x(2)", "x(2, 2)", "x(x(2), 2)", "x(x(2, 2))")),
]


def test_values_are_the_same_only_if_they_are_written_alike() -> None:
    for position, value in enumerate(VALUES):
        copied = pickle.loads(pickle.dumps(value))
        assert Comparison().same(value, copied) and digest(value) == digest(copied), value
        for other in VALUES[position + 1 :]:
            assert not Comparison().same(value, other) and digest(value) != digest(other), (value, other)


def test_numbers_of_formulas_are_equal_only_if_they_are_written_alike() -> None:
    numbers = [Number(value) for value in (2, 2.0, 0, 0.0, -0.0, -2)]
    assert len({*numbers, *(Number(number.value, 7) for number in numbers)}) == len(numbers)


def test_deep_values_are_compared() -> None:
    one, other = 0, 0
    for _ in range(5000):
        one, other = (one, 1), (other, 1)
    assert Comparison().same(one, other) and digest(one) == digest(other)


def found(edits: Sequence[tuple[Path, str]]) -> list[list[Problem]]:
    """The errors after each edit of the repository's spec, one after another."""
    workspace = Workspace(REPOSITORY)
    errors = []
    for path, text in edits:
        workspace.unsaved = {path: text}
        workspace.diagnose()
        errors.append(list(workspace.problems))
    return errors


@pytest.mark.full
def test_edits_one_after_another_find_what_each_finds_alone() -> None:
    chance = random.Random(0)
    files = sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "spec").rglob("*.yaml"))
    paths = [chance.choice(files) for _ in range(24)]
    edits = [(path, edited((REPOSITORY / path).read_text(encoding="utf-8"), chance)) for path in paths]
    # A process for each has kept nothing.
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        alone = pool.map(found, [[edit] for edit in edits], chunksize=1)
    together = found(edits)
    assert sum(map(bool, together)) > len(edits) / 8
    for edit, first, (second,) in zip(edits, together, alone, strict=True):
        assert first == second, edit[0]
