"""Which line of emitted Python came from which line of the text before ruff laid it out.

ruff breaks lines, sorts imports and takes unused ones away, but keeps the order of everything else. So the words of
both texts are paired one by one, and imports by the name that they import.
"""

import tokenize
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import NamedTuple

# What the layout adds and takes away.
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_BRACKETS = ("(", ")", ",", ";")
_SORTED = ("from", "import", "__all__")


class _Word(NamedTuple):
    text: str
    first: int
    last: int


def lines_before(before: str, after: str) -> list[int]:
    """For each line of a text that ruff laid out, the line of `before` that it came from; both count from 0."""
    count = after.count("\n") + 1
    if before == after:
        return list(range(count))
    matches: dict[int, int] = {}
    (old, old_sorted), (new, new_sorted) = map(_words, (before, after))
    for word, other in _pairs(new, old):
        for line in range(word.first, word.last + 1):
            matches.setdefault(line, min(other.first + line - word.first, other.last))
    first_lines = {word.text: word.first for word in reversed(old_sorted)}
    for word in new_sorted:
        if word.text in first_lines:
            matches.setdefault(word.first, first_lines[word.text])
    # What has no words of its own, such as brackets, belongs to the line in front.
    last = 0
    lines = []
    for line in range(count):
        last = matches.get(line, last)
        lines.append(last)
    return lines


def _pairs(new: Sequence[_Word], old: Sequence[_Word]) -> Iterator[tuple[_Word, _Word]]:
    if [word.text for word in new] == [word.text for word in old]:
        yield from zip(new, old, strict=True)
        return
    matcher = SequenceMatcher(None, [word.text for word in new], [word.text for word in old], autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from zip(new[block.a : block.a + block.size], old[block.b : block.b + block.size], strict=True)


def _words(text: str) -> tuple[list[_Word], list[_Word]]:
    """The words of a text in order, and those of what is sorted: imports with their module, and names for others."""
    words: list[_Word] = []
    moved: list[_Word] = []
    statement: list[_Word] = []
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in _LAYOUT and token.string not in _BRACKETS:
            word = "" if token.type == tokenize.STRING else token.string
            statement.append(_Word(word or token.string.strip("'\""), token.start[0] - 1, token.end[0] - 1))
            if token.type == tokenize.STRING:
                statement[-1] = statement[-1]._replace(text=f'"{statement[-1].text}' if _is_sorted(statement) else '"')
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            if _is_sorted(statement):
                moved += _of_sorted(statement)
            elif [word.text for word in statement] != ["if", "TYPE_CHECKING", ":"]:
                words += statement
            else:
                moved += statement
            statement = []
    return _with_strings_merged(words), moved


def _is_sorted(statement: Sequence[_Word]) -> bool:
    return bool(statement) and statement[0].text in _SORTED


def _of_sorted(statement: Sequence[_Word]) -> Iterator[_Word]:
    """The words of an import or a list of names, each after what leads to it."""
    texts = [word.text for word in statement]
    if texts[0] == "import":
        yield statement[0]._replace(text=" ".join(texts))
        return
    head = " ".join(texts[: texts.index("import") + 1]) if "import" in texts else texts[0]
    # A module may be imported twice: the names decide which import it is.
    yield from (word._replace(text=f"{head} {word.text}") for word in statement[len(head.split()) :])
    yield statement[0]._replace(text=head)


def _with_strings_merged(words: Sequence[_Word]) -> list[_Word]:
    """Merge adjacent strings, as ruff may do."""
    merged: list[_Word] = []
    for word in words:
        if merged and merged[-1].text == word.text == '"':
            merged[-1] = merged[-1]._replace(last=word.last)
        else:
            merged.append(word)
    return merged
