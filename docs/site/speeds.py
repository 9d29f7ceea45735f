"""The measurements of each op on the pages of benchmarks."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Of each page, what names the tables of the largest sizes: their section, or the line above them.
_PAGES = {"benchmarks.md": re.compile(r"## 2\^28 elements"), "cpu.md": re.compile(r"2\^24 elements")}


@dataclass(frozen=True)
class Table:
    """A table of a page, without its name."""

    page: str
    section: str
    title: str  # the line above it
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def of(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """The rows whose first cell begins with one of the names."""
        pattern = re.compile(rf"(?:{'|'.join(map(re.escape, names))})(?:$|[ ,])")
        return [row for row in self.rows if pattern.match(row[0])]


def read_tables(docs: Path) -> list[Table]:
    """The tables of the largest sizes whose rows are ops."""
    return [table for page in _PAGES for table in _tables(page, (docs / page).read_text(encoding="utf-8"))]


def _tables(page: str, text: str) -> Iterator[Table]:
    section = title = ""
    for block in re.split(r"\n\n+", text):
        lines = block.splitlines()
        if lines and lines[0].startswith("## "):
            section = lines[0]
        elif lines and lines[0].startswith("| op |") and (_PAGES[page].match(section) or _PAGES[page].match(title)):
            head, _, *rows = (tuple(part.strip() for part in line.strip("|").split("|")) for line in lines)
            yield Table(page, section.removeprefix("## "), title, head, tuple(rows))
        title = lines[-1] if lines else ""


def note(tables: Sequence[Table], names: Sequence[str]) -> str:
    """Show the rows of an op that the tables call one of `names`, in Markdown; the text is empty where they lack it."""
    parts = []
    for table in tables:
        rows = table.of(names)
        if rows:
            title = f"[{table.section}](../../docs/{table.page}). {table.title}"
            lines = ["| " + " | ".join(row) + " |" for row in (table.head, ["---"] * len(table.head), *rows)]
            parts.append(f"{title}\n\n" + "\n".join(lines))
    return "\n\n".join(["## Speed", *parts]) if parts else ""
