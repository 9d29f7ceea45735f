"""How commands print what has parts: as a tree on a terminal, else indented."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click

from opgen.streams import is_terminal


@dataclass
class Branch:
    """A line, where that says so, and what belongs to it."""

    text: str
    location: str = ""
    parts: "list[Branch]" = field(default_factory=list)
    colour: str | None = None


def show(branches: Sequence[Branch]) -> None:
    """Print them."""
    for branch in branches:
        for line in lines(branch, is_tree=is_terminal(sys.stdout)):
            click.echo(line)


def lines(branch: Branch, *, is_tree: bool, lead: str = "", below: str = "") -> Iterator[str]:
    """The lines of a branch: the first one begins with `lead`, the others with `below`."""
    suffix = f"  {click.style(branch.location, dim=True)}" if branch.location else ""
    yield f"{lead}{click.style(branch.text, fg=branch.colour)}{suffix}"
    for part in branch.parts:
        is_last = part is branch.parts[-1]
        ahead = ("└── " if is_last else "├── ", "    " if is_last else "│   ") if is_tree else ("  ", "  ")
        yield from lines(part, is_tree=is_tree, lead=below + ahead[0], below=below + ahead[1])
