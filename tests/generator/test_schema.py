"""The schemas of the spec's files: they are what the records say, and agree with them on files of any content."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from opgen import decoder
from opgen.banner import SCHEMA
from opgen.build import FILE_KINDS, file_kind
from opgen.decoder import decode
from opgen.loader import Document, Value, load
from opgen.problem import Location, Problem
from opgen.schema import modeline, schema_of, stale_files

from .project import REPOSITORY, Project

SAMPLE, ALL = 400, 5_000
# What a record refuses that no schema can say; besides these the rules between the keys of a record.
BEYOND_SCHEMAS = (
    # Grammars: of formulas, of expressions, of signatures and calls, of Python.
    r" is no formula | cannot stand in | cannot be chained in |nothing is written in | has more than 500 parts",
    r" is no expression| is not a signature| is not a call| lacks its type| would be emitted as | is no Python ",
    r"' is no primitive; | is no edge of ",
    # Words that are like keys: a key of a cell that is misspelt, a library of such a name.
    r"^unknown key '.*' in '.*' of (family|backend) | is like a key of cells; ",
    # JSON takes 2.0 for an integer and has no number that is none; texts are the same if only space tells them apart.
    r" must be (an|a name or an) integer, not a number$| must be a finite number, not nan",
    r" has '.*' twice; keep one| must be 3 names, not [12]$",
    # Words of C++.
    r" cannot be a name in kernels, ",
    # A text that a terminal does not print.
    r" which cannot be printed; | characters; write at most ",
)
VALIDATORS = {kind: Draft202012Validator(schema_of(kind)) for kind in FILE_KINDS}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 8, 64, 65, 2.0, 0.5, -1.5, 10**30, float("inf"), float("nan")),
    *("", " ", "  x ", "x", "X", "x y", "0", "1.5", "all", "float", "same", "unary", "class", "self", "g", "{", "{x}"),
    *("{ordinal}", "{target}", "a.b", "A.b", "a.b.c", "f(x)", "f(", "x + y", "numpy", "bool", "highest", "inf"),
    *("a\nb", "\a", [], {}, [[]], [None], ["x"], ["x", "x"], ["x", " x"], [1, 2, 3]),
    *({"x": "y"}, {"x": None}, {"": 1}, {"unsupported": "x"}),
)


def plain(value: Value) -> Any:
    """What a value of a file is in JSON."""
    match value.content:
        case dict() as entries:
            return {key: plain(entry) for key, entry in entries.items()}
        case list() as elements:
            return [plain(element) for element in elements]
    return value.content


def valued(data: Any, index: Location) -> Value:
    """The value of a file that has some data."""
    if isinstance(data, dict):
        return Value(index, {key: valued(entry, index) for key, entry in data.items()}, index)
    return Value(index, [valued(element, index) for element in data] if isinstance(data, list) else data, index)


FILES = {path: plain(document.root) for path, document in load(REPOSITORY, []).items()}


def copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: copied(entry) for key, entry in data.items()}
    return [copied(element) for element in data] if isinstance(data, list) else data


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key, or position, in some data."""
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from places(data[key])


def mutated(data: Any, chance: random.Random) -> Any:
    """Some data with one change, or with two."""
    data = copied(data)
    for _ in range(chance.choice((1, 1, 1, 2))):
        if not (inner := list(places(data))):
            break
        holder, key = chance.choice(inner)
        value = holder[key]
        other_holder, other_key = chance.choice(inner)
        match chance.randrange(8):
            case 0:
                del holder[key]
            case 1:
                holder[key] = chance.choice(ODD)
            case 2:
                holder[key] = copied(other_holder[other_key])
            case 3 if isinstance(holder, dict):
                name = chance.choice((f"{key}s", key[1:], key.upper(), f" {key}", str(other_key), "x", "unsupported"))
                entries = {name if each == key else each: entry for each, entry in holder.items()}
                holder.clear()
                holder.update(entries)
            case 4 if isinstance(value, str):
                at = chance.randrange(len(value) + 1)
                holder[key] = (
                    value[:at] + chance.choice((" ", ".", "{", "}", "-", "A", "1", "(", "  ", "é")) + value[at:]
                )
            case 5:
                holder[key] = [value]
            case 6 if isinstance(holder, dict):
                holder[chance.choice((str(other_key), "x", "X", "class", "dtypes"))] = chance.choice((value, *ODD))
            case 7 if isinstance(value, list):
                value.append(chance.choice((*value, *ODD)))
            case _:
                holder[key] = str(value) if isinstance(value, int | float) else chance.choice(ODD)
    return data


def refused(path: Path, data: Any) -> list[Problem]:
    """What the record of a file refuses."""
    kind = file_kind(path)
    assert kind is not None
    # Entries are kept by their places, of which all that is made here has one.
    decoder._KEPT.clear()
    problems: list[Problem] = []
    decode(kind.record, Document(path, valued(data, Location(path))), problems, kind.variant)
    return problems


@pytest.fixture
def disagreement(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Any], str]:
    """How the schema and the record of a file disagree."""
    noted: list[Problem] = []
    note_diagnostics = decoder._Keys.note_diagnostics

    def note(keys: Any, record: Any) -> None:
        before = len(keys.cursor.problems)
        note_diagnostics(keys, record)
        noted.extend(keys.cursor.problems[before:])

    monkeypatch.setattr(decoder._Keys, "note_diagnostics", note)

    def found(path: Path, data: Any) -> str:
        noted.clear()
        kind = file_kind(path)
        assert kind is not None
        problems = refused(path, data)
        is_valid = VALIDATORS[kind].is_valid(data)
        if not problems and not is_valid:
            return f"only the schema refuses {path}: {next(VALIDATORS[kind].iter_errors(data))}"
        for problem in problems if is_valid else ():
            if problem not in noted and not any(re.search(rule, problem.message) for rule in BEYOND_SCHEMAS):
                return f"only the record refuses {problem}"
        return ""

    return found


def test_schemas_are_schemas_and_explain_each_key() -> None:
    def keys(schema: Any) -> Iterator[tuple[str, Any]]:
        for record in (schema, *schema["$defs"].values()):
            yield from record.get("properties", {}).items()

    for kind in FILE_KINDS:
        schema = schema_of(kind)
        Draft202012Validator.check_schema(schema)
        assert [key for key, inner in keys(schema) if not inner["description"].endswith(".")] == [], kind
        assert schema["description"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_schemas_take_the_spec(path: Path) -> None:
    kind = file_kind(path)
    assert kind is not None
    VALIDATORS[kind].validate(FILES[path])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_schemas_and_records_agree(seed: int, disagreement: Callable[[Path, Any], str]) -> None:
    chance = random.Random(seed)
    wrong = []
    for _ in range(ALL if seed else SAMPLE):
        path = chance.choice(list(FILES))
        wrong.append(disagreement(path, mutated(FILES[path], chance)))
    assert [text for text in wrong if text] == []


def test_spec_names_its_schemas_which_are_written() -> None:
    assert stale_files(REPOSITORY) == [], "run 'opgen schema'"
    for path in FILES:
        kind = file_kind(path)
        assert kind is not None
        assert (REPOSITORY / path).read_text(encoding="utf-8").startswith(f"{modeline(kind)}\n")
        assert (REPOSITORY / path.parent / modeline(kind).partition("=")[2]).is_file()


def test_check_says_when_schemas_are_out_of_date(small: Project) -> None:
    assert "files, all up to date" in small.run("check").stdout, "a project need not have schemas"
    written = small.run("schema")
    assert written.exit_code == 0
    assert written.stdout.endswith(f"\n{len(FILE_KINDS) + 1} files changed\n")
    assert small.run("check").exit_code == 0
    # What an earlier opgen would have written.
    dtypes = small.root / "spec/schema/dtypes.json"
    body = dtypes.read_text(encoding="utf-8").partition("\n")[2].replace("integer", "number")
    old = SCHEMA.line(body, '{ "$comment": "', '",') + body
    for name in ("dtypes", "old"):
        dtypes.with_stem(name).write_text(old, encoding="utf-8")
    checked = small.run("check")
    assert checked.exit_code == 1
    assert checked.stdout.splitlines() == ["differs spec/schema/dtypes.json", "left over spec/schema/old.json"]
    assert "run 'opgen schema'" in checked.stderr
    assert small.run("schema").stdout.splitlines()[-1] == "2 files changed"
    assert small.run("check").exit_code == 0


def test_a_new_file_names_its_schema(small: Project) -> None:
    small.run("schema")
    result = small.run("new", "method", "trace", "--file", "linear")
    assert result.exit_code == 0, result.output
    text = (small.root / "spec/storage/linear.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=../schema/storage.json\n")
