"""Texts of the spec in Markdown."""

import re

_CODE = re.compile(r"(`[^`]*`)")
_MARKS = re.compile(r"([\\*_<>\[\]{}#$])")


def escaped(text: str) -> str:
    """A text whose words mean themselves in Markdown; what stands between backticks is code."""
    return "".join(
        part if part.startswith("`") else _MARKS.sub(r"\\\1", part) for part in _CODE.split(" ".join(text.split()))
    )


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return escaped(text).replace("|", r"\|")


def code(text: str) -> str:
    """Code in a cell of a table."""
    return f"`{text}`".replace("|", r"\|")
