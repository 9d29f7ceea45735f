"""What opgen keeps of files that did not change: what it finds with that is what it finds without."""

from __future__ import annotations

import multiprocessing
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from opgen.language_server.workspace import Workspace
from opgen.memory import once_for
from opgen.problem import Problem

from .project import REPOSITORY


def test_what_is_found_of_the_same_objects_is_kept() -> None:
    calls = []

    @once_for(lambda *given: given, size=2)
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


def edited(text: str, chance: random.Random) -> str:
    """A text with one word changed, left out, or in the place of another one."""
    words = list(re.finditer(r"\w+", text))
    word, other = chance.choice(words), chance.choice(words)
    new = chance.choice((other[0], "", f"{word[0]}x", word[0][:-1], "1", "true"))
    return text[: word.start()] + new + text[word.end() :]


def found(edits: Sequence[tuple[Path, str]]) -> list[list[Problem]]:
    """The mistakes after each edit of the repository's spec, one after another."""
    workspace = Workspace(REPOSITORY)
    mistakes = []
    for path, text in edits:
        workspace.unsaved = {path: text}
        workspace.examine()
        mistakes.append(list(workspace.problems))
    return mistakes


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
