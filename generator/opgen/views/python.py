"""Lays out Python as `ruff format` does, so that what is emitted is already formatted."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

LINE_LENGTH = 120
# As they are written between triple quotes.
_THREE_QUOTES = r"\"\"\""


def wrapped(head: str, items: Sequence[str], tail: str, indent: int) -> str:
    """`head`, the comma-separated `items` and `tail` on one line, or broken as ruff breaks it.

    The first line is not indented (the template does that); the others are indented from `indent` columns on.
    """
    line = head + ", ".join(items) + tail
    if indent + len(line) <= LINE_LENGTH or not items:
        return line
    inner = " " * (indent + 4)
    joined = inner + ", ".join(items)
    if len(joined) <= LINE_LENGTH and not head.endswith("["):
        return f"{head}\n{joined}\n{' ' * indent}{tail}"
    lines = "".join(f"{inner}{item},\n" for item in items)
    return f"{head}\n{lines}{' ' * indent}{tail}"


def docstring(text: str, indent: int) -> str:
    """A docstring of `text`, filled to the line length; its first line is not indented."""
    return f'"""{docstring_body(text, indent)}"""'


def docstring_body(text: str, indent: int) -> str:
    """What stands between the quotes of a docstring of `text`."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in in_triple_quotes(text).strip().split("\n\n")]
    # As ruff, keep a quote of the text away from those of the docstring.
    if paragraphs[0].startswith('"'):
        paragraphs[0] = f" {paragraphs[0]}"
    is_open = paragraphs[0].endswith('"') and not paragraphs[0].endswith(_THREE_QUOTES)
    closed = f"{paragraphs[0]} " if is_open else paragraphs[0]
    if len(paragraphs) == 1 and indent + len(closed) + 6 <= LINE_LENGTH:
        return closed
    margin = " " * indent
    # Of a paragraph alone, one line may not remain: ruff would put the closing quotes on it, beyond the line length.
    width = LINE_LENGTH - (6 if len(paragraphs) == 1 else 3)
    filled = [
        "\n".join(
            textwrap.wrap(
                paragraph,
                width,
                initial_indent=margin,
                subsequent_indent=margin,
                break_on_hyphens=False,
                break_long_words=False,
            )
        )
        for paragraph in paragraphs
    ]
    return "\n\n".join(filled).removeprefix(margin) + f"\n{margin}"


def in_triple_quotes(text: str) -> str:
    """`text` as it is written between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', _THREE_QUOTES)


def comment(text: str) -> str:
    """A comment of `text` at the left margin, filled to the line length."""
    return textwrap.fill(text, LINE_LENGTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def quoted(text: str) -> str:
    """A Python string literal with the quotes that ruff chooses."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def tuple_of(items: Sequence[str]) -> str:
    """A tuple display on one line."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def set_of(head: str, items: Sequence[str], indent: int) -> str:
    """`head` and a set display on one line, or an item a line as ruff breaks it; indented as by `wrapped`."""
    line = f"{head}{{{', '.join(items)}}}"
    if indent + len(line) <= LINE_LENGTH:
        return line
    lines = "".join(f"{' ' * (indent + 4)}{item},\n" for item in items)
    return f"{head}{{\n{lines}{' ' * indent}}}"


def frozenset_of(items: Sequence[str], indent: int, around: int) -> str:
    """A frozenset on one line, or an item a line as ruff breaks it; `around` it the line has so many characters."""
    line = f"frozenset({tuple_of(items)})"
    if indent + around + len(line) <= LINE_LENGTH:
        return line
    outer, inner = " " * indent, " " * (indent + 4)
    lines = "".join(f"{inner}    {item},\n" for item in items)
    return f"frozenset(\n{inner}(\n{lines}{inner})\n{outer})"


def import_lines(modules: Mapping[str, Iterable[str]]) -> str:
    """`from module import names` for relative modules, sorted and broken as ruff does it."""
    lines = [
        _import_line(module, sorted(names, key=_import_order))
        for module, names in sorted(modules.items(), key=lambda item: (-item[0].startswith(".."), item[0]))
    ]
    return "\n".join(lines)


def _import_line(module: str, names: list[str]) -> str:
    renamed = [name for name in names if " as " in name]
    if renamed and len(names) > 1:
        # A name that is imported under another one has a line of its own.
        plain = [name for name in names if name not in renamed]
        return "\n".join([_import_line(module, part) for part in (plain, *([name] for name in renamed)) if part])
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_LENGTH:
        return line
    lines = "".join(f"    {name},\n" for name in names)
    return f"from {module} import (\n{lines})"


def _import_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name.lower())
