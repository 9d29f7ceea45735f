"""The decoder: what the field of a record is annotated with its key may hold, and every error knows its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from opgen.decoder import Cursor, Diagnostics, decode
from opgen.loader import load
from opgen.notes import Choice, Entry, Key, LocationOf, Mark, Name, Of, Pattern, Placeholders, Range, Using
from opgen.problem import Location, Problem
from opgen.signature import Call


@dataclass(frozen=True)
class Part:
    """A record that has the name of its key."""

    name: Annotated[Name, Entry("part '{}'")]
    size: Annotated[int, Range(1, 9)]
    location: Location


@dataclass(frozen=True)
class Circle:
    """One of two records whose keys stand beside others."""

    radius: int


@dataclass(frozen=True)
class Square:
    """The other one."""

    width: int


@dataclass(frozen=True)
class Element:
    """A record of a list."""

    CALLED: ClassVar = "an element"
    text: Annotated[str, Placeholders(("dtype",))]


@dataclass(frozen=True)
class Whole:
    """A record with a key of each type."""

    name: Annotated[str, Entry("the whole {}")]
    doc: Annotated[str, "what it is for"]
    lines: Annotated[str, Mark.PARAGRAPHS, Mark.OPTIONAL]
    flag: bool
    note: str | None
    ratio: Annotated[float | None, Mark.NULL]
    kind: Annotated[str, Choice(("long", "short"))]
    version: Annotated[str | None, Pattern(r"\d+\.\d+", "1.2")]
    call: Annotated[Call | None, Key("calls")]
    parts: tuple[Part, ...]
    words: Annotated[tuple[str, ...], Mark.OPTIONAL, Mark.ONE_OR_MORE]
    places: Annotated[Mapping[str, Location], Mark.OPTIONAL]
    sizes: Annotated[Mapping[Name, tuple[int, Location]], Mark.OPTIONAL]
    either: Annotated[int | Mapping[str, int], Mark.OPTIONAL]
    elements: Annotated[tuple[Element, ...], Mark.OPTIONAL]
    shape: Annotated[Circle | Square, Mark.INLINE]
    double: Annotated[int | None, Using(lambda cursor: 2 * cursor.decode(int), int)]
    of_long: Annotated[str | None, Of(("long",))]
    of_short: Annotated[str | None, Of(("short",))]
    has_note: Annotated[bool, LocationOf("note")]
    note_place: Annotated[Location, LocationOf("note")]
    later: Annotated[tuple[int, ...], Mark.LATER]
    variant: Annotated[str, Mark.VARIANT]
    keys: Annotated[Mapping[str, Location], Mark.KEYS]
    path: Path

    def diagnostics(self, what: str) -> Diagnostics:
        """Note what is wrong between the keys."""
        if self.note == self.doc:
            yield "note", f"'note' of {what} says what 'doc' does; remove it"
        for part in self.parts:
            if part.size == self.double:
                yield ("parts", part.name, "size"), "a part must not be the double"
                yield ("parts", part.name, None), "the name of a part; it is here"
                yield (None,), "the whole; it is here"


FILE = Path("spec/file.yaml")
LEAST = "doc: a text\nratio: 1\nkind: long\nparts: {one: {size: 1}}\nwidth: 3\n"


def read(folder: Path, text: str, variant: str = "long") -> tuple[Whole, list[str]]:
    """The record that a text holds, and its errors without the file's name."""
    (folder / "spec").mkdir()
    (folder / FILE).write_text(text, encoding="utf-8")
    problems: list[Problem] = []
    full = decode(Whole, load(folder, problems)[FILE], problems, variant=variant)
    return full, [str(problem).removeprefix(f"{FILE}:") for problem in sorted(problems)]


def test_a_key_that_is_not_written_has_nothing(tmp_path: Path) -> None:
    full, errors = read(tmp_path, LEAST)
    assert errors == []
    assert (full.name, full.variant, full.path) == ("file", "long", FILE)
    assert (full.lines, full.flag, full.note, full.has_note, full.call) == ("", False, None, False, None)
    assert (full.words, full.places, full.later, full.either) == ((), {}, (), 0)
    assert full.note_place == Location(FILE)
    assert full.parts == (Part("one", 1, Location(FILE, 4, 9)),)
    assert full.shape == Square(3)
    assert full.keys["width"] == Location(FILE, 5, 1)


def test_each_type_of_a_key(tmp_path: Path) -> None:
    text = (
        "doc: |\n  two\n  lines\nlines: |\n  two\n  lines\nratio: null\nkind: short\n"
        "parts: {one: {size: 1}}\nradius: 2\nflag: true\nnote: what else\nversion: '1.5'\ncalls: same(x)\n"
        "words: one\nplaces: [here,\n  there]\n"
        "sizes: {one: 1}\neither: {one: 1}\nelements: [{text: 'a_{dtype}'}]\ndouble: 4\nof_short: only here\n"
    )
    full, errors = read(tmp_path, text, "short")
    assert errors == []
    assert (full.doc, full.lines) == ("two lines", "two\nlines")
    assert (full.ratio, full.flag, full.version, full.double) == (None, True, "1.5", 8)
    assert full.call == Call("same", ("x",))
    assert full.words == ("one",)
    assert full.places == {"here": Location(FILE, 16, 10), "there": Location(FILE, 17, 3)}
    assert full.sizes == {"one": (1, Location(FILE, 18, 14))}
    assert (full.either, full.elements, full.shape) == ({"one": 1}, (Element("a_{dtype}"),), Circle(2))
    assert (full.has_note, full.note_place) == (True, Location(FILE, 12, 7))
    assert (full.of_long, full.of_short) == (None, "only here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lines: 5\n", ["6:8: 'lines' of the whole file must be text, not an integer; put it in quotes"]),
        ("note: ''\n", ["6:7: 'note' of the whole file is empty; write its text"]),
        ('note: "\\a"\n', ["6:7: 'note' of the whole file holds U+0007, which cannot be printed; remove it"]),
        ("flag: 1\n", ["6:7: 'flag' of the whole file must be true or false, not an integer; write true"]),
        ("double: true\n", ["6:9: 'double' of the whole file must be an integer, not true or false"]),
        ("version: one\n", ["6:10: 'one' cannot be the version of the whole file; write it like '1.2'"]),
        ("calls: 1 + 1\n", ["6:8: '1 + 1' is not a call; write 'name(argument, ...)'"]),
        ("words: {one: 1}\n", ["6:8: 'words' of the whole file must be text, not a mapping; put it in quotes"]),
        ("places: one\n", ["6:9: 'places' of the whole file must be a list, not text"]),
        ("sizes: [one]\n", ["6:8: 'sizes' of the whole file must be a mapping, not a list"]),
        (
            "sizes: {One: 1, class: 1}\n",
            [
                "6:9: 'One' cannot be a name; use small letters, digits and underscores",
                "6:17: 'class' cannot be a name, it is a word of Python; use another one",
            ],
        ),
        ("either: {one: two}\n", ["6:15: 'one' of the whole file must be an integer, not text"]),
        ("places: [one, one]\n", ["6:15: 'places' of the whole file has 'one' twice; keep one"]),
        ("elements: [1]\n", ["6:12: an element must be a mapping, not an integer"]),
        (
            "elements: [{text: '{type}'}, {text: 'a}'}]\n",
            [
                "6:19: 'text' of an element has an unknown placeholder 'type'; did you mean 'dtype'?",
                "6:37: 'text' of an element has a '}' that stands alone; write '{name}'",
            ],
        ),
        ("of_lon: text\n", ["6:1: unknown key 'of_lon' in the whole file; did you mean 'of_long'?"]),
        ("note: a text\n", ["6:7: 'note' of the whole file says what 'doc' does; remove it"]),
        (
            "nota: a text\nnote: a text\n",
            [
                "6:1: unknown key 'nota' in the whole file; did you mean 'note'?",
                "7:7: 'note' of the whole file says what 'doc' does; remove it",
            ],
        ),
    ],
)
def test_an_error_in_one_key(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert read(tmp_path, LEAST + text)[1] == expected


@pytest.mark.parametrize(
    ("find", "replace", "expected"),
    [
        ("doc: a text\n", "", ["1:1: the whole file lacks the key 'doc'; add it"]),
        # It is there but misspelt, so that it is not missing as well.
        ("doc:", "dock:", ["1:1: unknown key 'dock' in the whole file; did you mean 'doc'?"]),
        ("1\nk", "1_0\nk", ["2:8: 'ratio' of the whole file must be a number or null, not text; write 10"]),
        ("1\nk", ".inf\nk", ["2:8: 'ratio' of the whole file must be a finite number, not inf"]),
        ("long", "lang", ["3:7: unknown kind 'lang' of the whole file; did you mean 'long'?"]),
        ("{one: {size: 1}}", "{}", ["4:8: 'parts' of the whole file is empty; write what it holds"]),
        ("{size: 1}", "5", ["4:14: part 'one' must be a mapping, not an integer"]),
        ("size: 1", "size: 10", ["4:21: 'size' of part 'one' must be from 1 to 9, not 10"]),
        ("width: 3\n", "", ["1:1: the whole file lacks the key 'width'; add it"]),
        # The first of two records is meant where its key is misspelt.
        ("width: 3", "radus: 3", ["1:1: the whole file lacks the key 'width'; add it",
                                  "5:1: unknown key 'radus' in the whole file; did you mean 'radius'?"]),
        ("width: 3", "width: 3\ndouble: 0.5", ["6:9: 'double' of the whole file must be an integer, not a number"]),
    ],
)  # fmt: skip
def test_an_error_in_what_must_be_written(tmp_path: Path, find: str, replace: str, expected: list[str]) -> None:
    assert LEAST.count(find) == 1
    assert read(tmp_path, LEAST.replace(find, replace))[1] == expected


def test_all_errors_are_noted_and_something_empty_takes_their_place(tmp_path: Path) -> None:
    full, errors = read(tmp_path, "doc: [x]\nkind: wide\nparts: {one: {size: two}, two: 2}\nflag: maybe\nadd: 1\n")
    assert errors == [
        "1:1: the whole file lacks the key 'ratio'; add it",
        "1:1: the whole file lacks the key 'width'; add it",
        "1:6: 'doc' of the whole file must be text, not a list; put it in quotes",
        "2:7: unknown kind 'wide' of the whole file; known are long, short",
        "3:21: 'size' of part 'one' must be an integer, not text",
        "3:32: part 'two' must be a mapping, not an integer",
        "4:7: 'flag' of the whole file must be true or false, not text",
        "5:1: unknown key 'add' in the whole file; known are doc, lines, flag, note, ratio, kind, version, calls, "
        "parts, words, places, sizes, either, elements, radius, width, double, of_long",
    ]
    assert (full.doc, full.kind, full.flag, full.shape) == ("", "", False, Square(0))
    assert [(part.name, part.size) for part in full.parts] == [("one", 0), ("two", 0)]


def test_a_key_of_another_variant_is_unknown(tmp_path: Path) -> None:
    (error,) = read(tmp_path, LEAST + "of_short: text\n")[1]
    assert error.startswith("6:1: unknown key 'of_short' in the whole file; known are")
    assert "of_long" in error


def test_places_of_errors_between_keys(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST.replace("size: 1", "size: 4") + "double: 2\n")[1] == [
        "1:1: the whole; it is here",
        "4:9: the name of a part; it is here",
        "4:21: a part must not be the double",
    ]


def test_what_is_between_keys_is_not_looked_for_where_one_has_no_value(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST + "note: a text\nflag: 7\n")[1] == [
        "7:7: 'flag' of the whole file must be true or false, not an integer"
    ]


def test_a_class_decodes_itself(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Doubled:
        number: int

        @classmethod
        def decode(cls, cursor: Cursor) -> "Doubled":
            return cls(2 * cursor.decode(int))

    (tmp_path / "spec").mkdir()
    (tmp_path / FILE).write_text("key: 4\n", encoding="utf-8")
    problems: list[Problem] = []
    root = load(tmp_path, problems)[FILE].root
    assert isinstance(root.content, dict)
    assert Cursor(root.content["key"], "key", "the file", problems).decode(Doubled) == Doubled(8)
    assert problems == []
