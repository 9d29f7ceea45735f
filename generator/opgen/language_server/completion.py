"""Completions at a position: keys, the values of a choice, and names."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opgen.language_server.hover import of_thing
from opgen.language_server.tree import Node, nodes_of
from opgen.language_server.workspace import PYTHON_KINDS, Workspace
from opgen.loader import Document, parsed
from opgen.schema import Schema

# Stands for the unfinished text, so that the file can be read.
_HERE = "opgen_completes_here"
_WORD = re.compile(r"[\w.]*\Z")


@dataclass(frozen=True)
class Item:
    """A completion, which replaces the columns from `start` to the cursor."""

    text: str
    kind: str  # key, value, or the kind of the name
    detail: str
    doc: str
    start: int


def completions(workspace: Workspace, path: Path, line: int, column: int) -> list[Item]:
    """Return the completions at a position."""
    items: dict[str, Item] = {}
    for node, nodes in _places(workspace, path, line, column):
        for item in _items(workspace, path, node, nodes, line, column):
            items.setdefault(item.text, item)
        break
    return list(items.values())


def _places(workspace: Workspace, path: Path, line: int, column: int) -> Iterator[tuple[Node, Sequence[Node]]]:
    """The key or the value that is being written, in a file that can be read."""
    lines = [*workspace.lines(path), ""]
    if line > len(lines):  # an editor may be ahead of the text that it sent
        return
    own = lines[line - 1]
    begin = column - 1 - len(_word(own, column))
    end = column - 1 + len(own[column - 1 :]) - len(re.sub(r"^[\w.]*", "", own[column - 1 :]))
    for word in (_HERE, f"{_HERE}: 0", f"- {_HERE}"):
        lines[line - 1] = f"{own[:begin]}{word}{own[end:]}"
        document = _read("\n".join(lines), path)
        if document is None:
            continue
        nodes = nodes_of(document)
        node = next((each for each in nodes if each.text is not None and _HERE in each.text), None)
        if node is not None:
            yield node, nodes


def _read(text: str, path: Path) -> Document | None:
    document, _ = parsed(text, path)
    return document


def _word(line: str, column: int) -> str:
    match = _WORD.search(line[: column - 1])
    return match[0] if match is not None else ""


def _items(
    workspace: Workspace, path: Path, node: Node, nodes: Sequence[Node], line: int, column: int
) -> Iterator[Item]:
    word = _word(workspace.lines(path)[line - 1] if line <= len(workspace.lines(path)) else "", column)
    start = column - len(word)
    if node.value is None:
        owner = next(each for each in nodes if each.steps == node.steps[:-1] and each.value is not None)
        yield from _keys(
            owner.shapes,
            [str(each.steps[-1]) for each in nodes if each.value is None and each.steps[:-1] == owner.steps],
            start,
        )
    else:
        for shape in node.shapes:
            yield from (Item(str(value), "value", "", node.doc, start) for value in shape.get("enum", ()))
            if shape.get("type") == "boolean":
                yield from (Item(text, "value", "", node.doc, start) for text in ("true", "false"))
        # A word with a dot begins no key.
        yield from _keys(node.shapes, [], start) if "." not in word else ()
    yield from _names(workspace, path, node, word, column)


def _keys(shapes: Sequence[Schema], taken: Sequence[str], start: int) -> Iterator[Item]:
    for shape in shapes:
        required = shape.get("required", ())
        for key, value in shape.get("properties", {}).items():
            if key not in taken:
                yield Item(f"{key}: ", "key", "required" if key in required else "", value["description"], start)


def _names(workspace: Workspace, path: Path, node: Node, word: str, column: int) -> Iterator[Item]:
    tail = word.rpartition(".")[2]
    for _, kinds in node.kinds("x-names"):
        for kind in kinds:
            if kind in PYTHON_KINDS:
                names = workspace.python_names(kind, path)
                yield from (
                    Item(name, kind, detail, "", column - len(word if kind in ("function", "header") else tail))
                    for name, detail in names
                )
        for thing in workspace.index.names(kinds, path, node.steps):
            doc = (
                "\n\n".join(of_thing(workspace.spec, thing))
                if workspace.spec is not None and thing.kind != "op"
                else ""
            )
            yield Item(thing.name, thing.kind, thing.kind, doc, column - len(tail))
