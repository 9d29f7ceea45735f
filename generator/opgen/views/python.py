"""Texts of the spec as Python holds them. How lines are broken is left to the formatter."""

import textwrap
from collections.abc import Iterable
from functools import lru_cache

LINE_LENGTH = 120
# What a session at Python's prompt begins with.
PROMPT = ">>> "
# As they are written between triple quotes.
_THREE_QUOTES = r"\"\"\""


# Of what does not change, a process that goes on fills the lines once.
@lru_cache(maxsize=4096)
def docstring(text: str, indent: int) -> str:
    """A docstring of `text`, filled to the line length; its first line is not indented. Sessions keep their lines."""
    paragraphs = [
        paragraph if paragraph.startswith(PROMPT) else " ".join(paragraph.split())
        for paragraph in in_triple_quotes(text).strip().split("\n\n")
    ]
    # As ruff, keep a quote of the text away from those of the docstring.
    if paragraphs[0].startswith('"'):
        paragraphs[0] = f" {paragraphs[0]}"
    is_open = paragraphs[0].endswith('"') and not paragraphs[0].endswith(_THREE_QUOTES)
    closed = f"{paragraphs[0]} " if is_open else paragraphs[0]
    if len(paragraphs) == 1 and indent + len(closed) + 6 <= LINE_LENGTH:
        return f'"""{closed}"""'
    margin = " " * indent
    # Of a paragraph alone, one line may not remain: ruff would put the closing quotes on it, beyond the line length.
    width = LINE_LENGTH - (6 if len(paragraphs) == 1 else 3)
    filled = "\n\n".join(_filled(paragraph, width, margin) for paragraph in paragraphs)
    return f'"""{filled.removeprefix(margin)}\n{margin}"""'


def _filled(paragraph: str, width: int, margin: str) -> str:
    if paragraph.startswith(PROMPT):
        return textwrap.indent(paragraph, margin)
    lines = textwrap.wrap(
        paragraph,
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(lines)


def in_triple_quotes(text: str) -> str:
    """`text` as it is written between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', _THREE_QUOTES)


@lru_cache(maxsize=4096)
def comment(text: str, indent: int = 0, mark: str = "#") -> str:
    """A comment of `text`, filled to the line length; its first line is not indented."""
    margin = " " * indent
    head = f"{margin}{mark} "
    filled = textwrap.fill(text, LINE_LENGTH, initial_indent=head, subsequent_indent=head, break_long_words=False)
    return filled.removeprefix(margin)


def cpp_comment(text: str) -> str:
    """`text` as one line of a comment in C++, which a backslash at its end would continue on the next line."""
    return f"{text}." if text.endswith(("\\", "??/")) else text


def quoted(text: str) -> str:
    """A Python string literal, with the quotes that the formatter chooses."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def tuple_text(items: Iterable[str]) -> str:
    """Return a tuple of expressions as Python writes it."""
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
