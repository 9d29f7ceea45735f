"""Tables, folds and means of the pages, in Markdown that GitHub and the site show alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from html import escape


def markdown(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose columns of numbers are set to the right."""
    body = [list(row) for row in rows]
    is_number = [
        bool(body) and all(row[column].replace(".", "", 1).isdecimal() or row[column] == "–" for row in body)
        for column in range(len(head))
    ]
    rule = ["---:" if right else "---" for right in is_number]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))


def fold(summary: str, *parts: str) -> str:
    """Parts of a page that are hidden until a reader opens them."""
    return "\n\n".join([f"<details>\n<summary>{escape(summary, quote=False)}</summary>", *parts, "</details>"])


def mean_text(ratios: Iterable[float | None]) -> str:
    """The geometric mean of the ratios that are known, or a dash where none is."""
    known = [ratio for ratio in ratios if ratio]
    return f"{statistics.geometric_mean(known):.2f}" if known else "–"
