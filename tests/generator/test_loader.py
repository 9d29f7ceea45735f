"""The loader: every value knows its line and column."""

import itertools
import json
import math
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opgen.loader import Value, load, parsed
from opgen.problem import Location, Problem, SpecError, did_you_mean

# What ends a line for Python's `str.splitlines`, and for no editor.
OTHER_LINE_ENDS = [c for c in map(chr, range(sys.maxunicode)) if c not in "\r\n" and len(f"a{c}b".splitlines()) > 1]
TEXT = """\
# A comment.
name: tallow
numbers: [1, -2.5,
  true, null, 2026-01-31]
ops:
  exp: &anchor {doc: "e to the x"}
  log: *anchor
"""


@pytest.fixture
def root(tmp_path: Path) -> Value:
    return read(tmp_path, TEXT)


def read(folder: Path, text: str) -> Value:
    (folder / "spec").mkdir()
    (folder / "spec" / "file.yaml").write_text(text, encoding="utf-8")
    problems: list[Problem] = []
    documents = load(folder, problems)
    assert not problems
    return documents[Path("spec/file.yaml")].root


def place(value: Value) -> tuple[int, int]:
    return value.location.line, value.location.column


def inner(value: Value, *keys: str) -> Value:
    for key in keys:
        assert isinstance(value.content, dict)
        value = value.content[key]
    return value


@pytest.mark.parametrize(
    ("keys", "expected", "key_place"),
    [
        ((), (2, 1), (2, 1)),
        (("name",), (2, 7), (2, 1)),
        (("numbers",), (3, 10), (3, 1)),
        (("ops",), (6, 3), (5, 1)),
        (("ops", "exp"), (6, 8), (6, 3)),
        (("ops", "exp", "doc"), (6, 22), (6, 17)),
        # An alias has its anchor's place and its own key's.
        (("ops", "log"), (6, 8), (7, 3)),
    ],
)
def test_place_of_each_value(
    root: Value, keys: tuple[str, ...], expected: tuple[int, int], key_place: tuple[int, int]
) -> None:
    value = inner(root, *keys)
    assert place(value) == expected
    assert (value.key_location.line, value.key_location.column) == key_place


def test_elements_of_a_list_have_places_and_types(root: Value) -> None:
    elements = inner(root, "numbers").content
    assert isinstance(elements, list)
    assert [place(element) for element in elements] == [(3, 11), (3, 14), (4, 3), (4, 9), (4, 15)]
    # A date has no use in a spec: it stays the text that was written.
    assert [element.content for element in elements] == [1, -2.5, True, None, "2026-01-31"]
    names = [element.type_name for element in elements]
    assert names == ["an integer", "a number", "true or false", "nothing", "text"]


def test_mappings_and_lists_name_their_types(root: Value) -> None:
    assert root.type_name == "a mapping"
    assert inner(root, "numbers").type_name == "a list"


def test_files_are_read_in_order_and_named_by_their_stems(tmp_path: Path) -> None:
    for name in ("b", "a", "folder/c"):
        file = tmp_path / "spec" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("key: value\n", encoding="utf-8")
    documents = load(tmp_path, [])
    assert [document.stem for document in documents.values()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"key: \xff\n", (1, 6), "cannot be read: it is not UTF-8; save it as a text in UTF-8"),
        ("key: 1\nä: ".encode() + b"\xff\n", (2, 4), "cannot be read: it is not UTF-8; save it as a text in UTF-8"),
        (b"one: 1\n---\ntwo: 2\n", (2, 1), "a second document begins here; remove this line"),
        (b"key: !!int word\n", (1, 6), "not a value that a spec may hold"),
        (b"? [a, b]\n: value\n", (1, 3), "a key must be a word; put it in quotes"),
        ("ä: 1\nkey: ü\x01\n".encode(), (2, 7), "not valid YAML: it holds U+0001; remove that character"),
        (b"one: 1\r\ntwo: \x00\r\n", (2, 6), "not valid YAML: it holds U+0000; remove that character"),
        *(
            (f"one: 1\r\ntwo: 2\n# {end}\n".encode(), (3, 3), f"not valid YAML: it holds U+{ord(end):04X}")
            for end in OTHER_LINE_ENDS
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path: Path, content: bytes, place: tuple[int, int], message: str) -> None:
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "file.yaml").write_bytes(content)
    problems: list[Problem] = []
    load(tmp_path, problems)
    assert [problem.location for problem in problems] == [Location(Path("spec/file.yaml"), *place)]
    assert message in problems[0].message


def scalar(text: str) -> object:
    document, problems = parsed(f"key: {text}\n", Path("file.yaml"))
    assert document is not None
    assert not problems
    content = inner(document.root, "key").content
    return [each.content for each in content] if isinstance(content, list) else content


@given(text=st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?", fullmatch=True))
def test_a_number_of_json_is_that_number(text: str) -> None:
    """YAML 1.2 has all of JSON."""
    actual, expected = scalar(text), json.loads(text)
    assert (type(actual), repr(actual)) == (type(expected), repr(expected))


@given(text=st.from_regex(r"[-+]?[0-9]{1,6}", fullmatch=True))
def test_an_integer_is_decimal_whatever_it_begins_with(text: str) -> None:
    actual = scalar(text)
    assert (type(actual), actual) == (int, int(text, 10))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("0o17 0xF 15 +15 015", 15),
        ("1e-5 1E-5 .00001 1.e-5 +1e-05", 1e-5),
        ("true True TRUE", True),
        ("~ null Null NULL", None),
        ("-.inf -.Inf -.INF", -math.inf),
        ('!!int "7" !!int 7 07', 7),
    ],
)
def test_the_core_schema_of_yaml(texts: str, expected: object) -> None:
    for text in re.findall(r"!!int \S+|\S+", texts):
        actual = scalar(text)
        assert (type(actual), actual) == (type(expected), expected), text


def test_what_older_yaml_takes_for_something_else_is_text() -> None:
    texts = "1:30 1_000 0b1 0o8 0xG 1e 1:30.5 yes no on off Yes NO y n tRUE = << 2026-01-31"
    assert scalar(f"[{', '.join(texts.split())}]") == texts.split()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise("abcdefghi")
)


def test_aliases_that_stand_for_millions_of_values_are_refused(tmp_path: Path) -> None:
    """Written out, this file of nine lines would hold 10**9 values."""
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "file.yaml").write_text(BOMB, encoding="utf-8")
    problems: list[Problem] = []
    assert load(tmp_path, problems) == {}
    message = "spec/file.yaml:5:4: it holds more than 100000 values with its aliases written out; write fewer"
    assert [str(problem) for problem in problems] == [message]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """Nobody writes to the pipe, and the device never ends."""
    (tmp_path / "spec").mkdir()
    file = tmp_path / "spec" / "file.yaml"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    problems: list[Problem] = []
    assert load(tmp_path, problems) == {}
    message = "spec/file.yaml:1:1: cannot be read: it is no regular file; write one or remove it"
    assert [str(problem) for problem in problems] == [message]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        st.one_of(
            st.integers(), st.booleans(), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9)
        ),
        min_size=1,
    )
)
def test_lines_of_a_flat_file(tmp_path_factory: pytest.TempPathFactory, items: dict[str, int | bool | str]) -> None:
    """Whatever the keys and values, the n-th key stands on line n, in column 1, and keeps its value."""
    written = {
        key: f"'{value.replace(chr(39), 2 * chr(39))}'" for key, value in items.items() if isinstance(value, str)
    }
    lines = [f"'{key}':  {written.get(key, str(value).lower())}\n" for key, value in items.items()]
    root = read(tmp_path_factory.mktemp("flat"), "".join(lines))
    assert isinstance(root.content, dict)
    assert {key: value.content for key, value in root.content.items()} == items
    for number, (key, value) in enumerate(root.content.items(), 1):
        assert (value.key_location.line, value.key_location.column) == (number, 1)
        assert place(value) == (number, len(key) + 6)


def test_problems_are_sorted_by_place_and_said_once() -> None:
    late, early = (Problem(Location(Path("a.yaml"), line, 1), "wrong") for line in (10, 9))
    other = Problem(Location(Path("B.yaml"), 1, 1), "wrong")
    error = SpecError([late, other, early, late])
    assert error.problems == (other, early, late)
    assert str(error).splitlines()[-1] == "a.yaml:10:1: wrong"


@given(st.text())
def test_a_problem_is_one_line_whatever_it_quotes(text: str) -> None:
    printed = str(Problem(Location(Path(f"spec/{text}.yaml")), f"unknown key '{text}'"))
    assert printed.isprintable()
    assert printed.splitlines() == [printed]


@pytest.mark.parametrize(
    ("word", "choices", "expected"),
    [
        ("kernal", ["kernel", "library"], "; did you mean 'kernel'?"),
        ("zzz", ["kernel", "library"], "; known are kernel, library"),
        ("zzz", [], "; remove it"),
    ],
)
def test_did_you_mean(word: str, choices: list[str], expected: str) -> None:
    assert did_you_mean(word, choices) == expected
