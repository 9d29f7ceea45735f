"""The keys and values of a file of the spec, each with what a schema says of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from opgen.build import FileKind, file_kind
from opgen.loader import Document, Value
from opgen.problem import Location
from opgen.schema import Schema, schema_of

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Node:
    """A key, or a value, and the keys and positions that lead to it."""

    steps: Steps
    location: Location
    value: Value | None  # None of a key
    doc: str  # of the key of the language that leads to it
    shapes: Sequence[Schema]  # what it may be

    @property
    def text(self) -> str | None:
        """The text of a scalar, or of a key."""
        if self.value is None:
            return str(self.steps[-1])
        return self.value.content if isinstance(self.value.content, str) else None

    def kinds(self, keyword: str) -> Iterator[tuple[Schema, Sequence[str]]]:
        """The shapes with a keyword of the server's, and its values there."""
        for shape in self.shapes:
            if keyword in shape:
                schemas = shape[keyword]
                yield shape, [schemas] if isinstance(schemas, str) else schemas


@lru_cache(maxsize=1024)
def nodes_of(document: Document) -> Sequence[Node]:
    """Every key and value of a file, each before those inside it."""
    # Paths in the spec of the base begin with the name of that package.
    kind = file_kind(Path(*document.path.parts[1:]) if document.root.location.is_of_base else document.path)
    return [] if kind is None else list(_walk(document.root, _shapes(kind).every_shape, (), "", _shapes(kind)))


class _Shapes:
    """The schema of a kind of files, as alternatives without references."""

    def __init__(self, kind: FileKind[Any]) -> None:
        schema = schema_of(kind)
        self._definitions: Mapping[str, Schema] = schema["$defs"]
        self._flat: dict[int, Sequence[Schema]] = {}
        self.every_shape = self.flat(schema)

    def flat(self, schema: Schema) -> Sequence[Schema]:
        """The alternatives."""
        if id(schema) not in self._flat:
            self._flat[id(schema)] = [*self._alternatives(schema)]
        return self._flat[id(schema)]

    def _alternatives(self, schema: Schema) -> Iterator[Schema]:
        if "$ref" in schema:
            yield from self.flat(self._definitions[schema["$ref"].rpartition("/")[2]])
            return
        yield schema
        for keyword in ("anyOf", "allOf"):
            for inner in schema.get(keyword, ()):
                yield from self.flat(inner)

    def entry(self, shapes: Sequence[Schema], key: str) -> tuple[str, Sequence[Schema], Sequence[Schema]]:
        """Yield the description of a key, and the schemas of the key and its value."""
        for shape in shapes:
            value = shape.get("properties", {}).get(key)
            if value:
                return value["description"], (), self.flat(value)
        for shape in shapes:
            value = shape.get("additionalProperties")
            if value:
                return value.get("description", ""), self.flat(shape.get("propertyNames", {})), self.flat(value)
        return "", (), ()

    def item(self, shapes: Sequence[Schema]) -> Sequence[Schema]:
        """Yield the schemas of an element of a list."""
        return next((self.flat(shape["items"]) for shape in shapes if "items" in shape), ())


@cache
def _shapes(kind: FileKind[Any]) -> _Shapes:
    return _Shapes(kind)


def _walk(value: Value, shapes: Sequence[Schema], steps: Steps, doc: str, known: _Shapes) -> Iterator[Node]:
    yield Node(steps, value.location, value, doc, shapes)
    match value.content:
        case dict() as entries:
            for key, inner in entries.items():
                own, of_key, of_value = known.entry(shapes, key)
                yield Node((*steps, key), inner.key_location, None, own or doc, of_key)
                yield from _walk(inner, of_value, (*steps, key), own or doc, known)
        case list() as elements:
            of_item = known.item(shapes)
            for position, inner in enumerate(elements):
                yield from _walk(inner, of_item, (*steps, position), doc, known)
