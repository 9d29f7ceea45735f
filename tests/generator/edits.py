"""Random edits of texts, as people make them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
# Two items of a list or a mapping in one line.
_ITEMS = re.compile(r"(?<=[{\[(, ])([^{}\[\](),\n]+), ([^{}\[\](),\n]+)(?=[,}\])])")


def edited(text: str, chance: random.Random) -> str:
    """A text with one edit: of a word, a number, an order or a line."""
    return chance.choice((_word, _number, _order, _order, _line))(text, chance)


def _replaced(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _word(text: str, chance: random.Random) -> str:
    """One word changed, left out, or instead of another one."""
    words = list(re.finditer(r"\w+", text))
    if not words:
        return text
    word, other = chance.choice(words), chance.choice(words)
    return _replaced(text, word, chance.choice((other[0], "", f"{word[0]}x", word[0][:-1], "1", "true")))


def _number(text: str, chance: random.Random) -> str:
    """One number with another type, sign or value."""
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return _word(text, chance)
    number = chance.choice(numbers)
    other = number[0].removesuffix(".0") if number[0].endswith(".0") else f"{number[0]}.0"
    return _replaced(text, number, chance.choice((other, f"-{number[0]}".removeprefix("--"), "0", "0.0", "-0.0")))


def _order(text: str, chance: random.Random) -> str:
    """Two items, or two lines that are indented alike, exchanged."""
    lines = text.splitlines(keepends=True)
    indents = [len(line) - len(line.lstrip()) for line in lines]
    alike = [number for number in range(1, len(lines)) if indents[number] == indents[number - 1]]
    pairs: list[Callable[[], str]] = [
        lambda match=match: _replaced(text, match, f"{match[2]}, {match[1]}") for match in _ITEMS.finditer(text)
    ]
    pairs += [
        lambda number=number: "".join([*lines[: number - 1], lines[number], lines[number - 1], *lines[number + 1 :]])
        for number in alike
    ]
    return chance.choice(pairs)() if pairs else _word(text, chance)


def _line(text: str, chance: random.Random) -> str:
    """One line left out, written twice, or empty before it."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    number = chance.randrange(len(lines))
    new = chance.choice(([], [lines[number]] * 2, ["\n", lines[number]]))
    return "".join([*lines[:number], *new, *lines[number + 1 :]])
