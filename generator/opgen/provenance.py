"""The origin of emitted lines: the line of a template, and the locations of the records in its view.

A template is rendered once more with marks in its text. Jinja's syntax tree knows the line of each piece of text and of
each expression, and which names are defined around it, so the marks say both: the line that wrote a piece, and the rows
of the view that it shows. Rows hold records of the spec, or their locations in `made_from`.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from opgen.folders import TEMPLATES
from opgen.plan import Output
from opgen.problem import Location
from opgen.render import environment
from opgen.sources import Sources, location_of

# What stands around what a mark is of: the text of an expression ends, that of a template goes on to the next mark.
_TEXT, _EXPRESSION, _END = "\x00", "\x01", "\x02"
_MARK = re.compile("\x00(\\d+)\x00|\x01(\\d+)\x01|(\x02)")
_VIEW = "view"
Read: TypeAlias = tuple[str, ...]  # a name of a template, and the attributes of it that an expression reads


@dataclass(frozen=True)
class Source:
    """An entry of the spec that a line depends on, and the keys that the template names, if it has them."""

    location: Location
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where an emitted line comes from."""

    template: Location
    callers: tuple[Location, ...] = ()  # the lines that called the macro, the innermost first
    values: tuple[Source, ...] = ()  # the entries in its text
    around: tuple[Source, ...] = ()  # what loops around it go over, the innermost first


@dataclass(frozen=True)
class _Mark:
    template: str
    line: int
    rows: Mapping[str, object]
    reads: tuple[Read, ...]

    @cached_property
    def location(self) -> Location:
        """The line of the template."""
        return location_of(TEMPLATES / self.template, self.line)

    @cached_property
    def around(self) -> tuple[Source, ...]:
        """The entries of its rows."""
        return tuple(Source(location) for row in self.rows.values() for location in _locations(row))


def marked(output: Output, sources: Sources) -> tuple[str, list[Origin]]:
    """The body of an output before it is formatted, and the origin of each of its lines."""
    marking = _marking(sources)
    marking.marks.clear()
    text = marking.get_template(str(output.template.relative_to(TEMPLATES))).render(view=output.view())
    return _MARK.sub("", text), [*_origins(text, marking.marks, location_of(output.template))]


def template_line(output: Output, sources: Sources, line: int) -> Location:
    """Return the origin of a line of an output's body; that of the last one for a line past the end."""
    _, origins = marked(output, sources)
    return origins[min(line, len(origins)) - 1].template


class _Marking(jinja2.Environment):
    """An environment whose templates mark what they write."""

    def __init__(self, sources: Sources) -> None:
        plain = environment(sources)
        settings = ("undefined", "trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape", "loader")
        super().__init__(**{setting: getattr(plain, setting) for setting in settings})
        self.filters = plain.filters
        self.marks: list[_Mark] = []

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _Marker(self, name or "").visit(template)
        return template

    def mark(self, kind: str, template: str, line: int, names: Sequence[str], reads: Sequence[Read], *rows: Any) -> str:
        """Record a mark, and return the text that stands in front of a piece of output."""
        self.marks.append(_Mark(template, line, dict(zip(names, rows, strict=True)), tuple(reads)))
        return f"{kind}{len(self.marks) - 1}{kind}"


@lru_cache(maxsize=1)
def _marking(sources: Sources) -> _Marking:
    return _Marking(sources)


class _Marker(NodeTransformer):
    """Puts marks into the tree of a template."""

    def __init__(self, environment: _Marking, template: str) -> None:
        self._environment, self._template = environment, template
        self._names: tuple[str, ...] = (_VIEW,)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 -- as Jinja calls it
        return self._inside(node, [each.name for each in [node.target, *node.target.find_all(nodes.Name)]
                                   if isinstance(each, nodes.Name)])  # fmt: skip

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 -- as Jinja calls it
        return self._inside(node, [each.name for each in reversed(node.args)], ())

    def _inside(self, node: Any, names: Sequence[str], around: tuple[str, ...] | None = None) -> nodes.Node:
        before = self._names
        self._names = tuple(dict.fromkeys((*names, *(before if around is None else around))))
        self.generic_visit(node)
        self._names = before
        return node  # type: ignore[no-any-return]

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802 -- as Jinja calls it
        pieces: list[nodes.Expr] = []
        for child in node.nodes:
            if isinstance(child, nodes.TemplateData):
                for number, text in enumerate(io.StringIO(child.data)):
                    line = child.lineno + number
                    pieces += [self._mark(_TEXT, line, ()), nodes.TemplateData(text, lineno=line)]
            else:
                reads = tuple(dict.fromkeys(_reads(child)))
                end = nodes.TemplateData(_END, lineno=child.lineno)
                pieces += [self._mark(_EXPRESSION, child.lineno, reads), child, end]
        node.nodes = pieces
        for piece in pieces:
            piece.set_environment(self._environment)
        return node

    def _mark(self, kind: str, line: int, reads: tuple[Read, ...]) -> nodes.Expr:
        known = [nodes.Const(value) for value in (kind, self._template, line, self._names, reads)]
        rows = [nodes.Name(name, "load") for name in self._names]
        return nodes.Call(nodes.EnvironmentAttribute("mark"), [*known, *rows], [], None, None, lineno=line)


def _reads(node: nodes.Node) -> Iterator[Read]:
    """Yield the attributes that an expression reads, with their names."""
    match node:
        case nodes.Name(name=name):
            yield (name,)
        case nodes.Getattr(node=inner, attr=attribute):
            yield from ((*read, attribute) for read in _reads(inner))
        case _:
            for child in node.iter_child_nodes():
                yield from _reads(child)


@dataclass
class _Level:
    """An expression of a template, and the text of the macro that it calls, if it does."""

    call: _Mark | None = None
    text: _Mark | None = None


def _origins(text: str, marks: Sequence[_Mark], start: Location) -> Iterator[Origin]:
    """The origin of each line of a text with marks: of the first thing in it that can be seen."""
    levels = [_Level()]
    last = Origin(start)
    for line in text.split("\n"):
        seen: Origin | None = None
        values: dict[Source, None] = {}
        position = 0
        for match in (*_MARK.finditer(line), None):
            if line[position : match.start() if match else len(line)].strip():
                seen = seen or _origin(levels)
                own = levels[-1]
                values |= dict.fromkeys(_values(own.call) if own.call is not None and own.text is None else ())
            if match is None:
                break
            position = match.end()
            if match[1]:
                levels[-1].text = marks[int(match[1])]
            elif match[2]:
                levels.append(_Level(marks[int(match[2])]))
            else:
                levels.pop()
        # What cannot be seen is of the last text.
        last = seen or (_origin(levels) if levels[-1].text is not None else last)
        yield replace(last, values=tuple(values))


def _origin(levels: Sequence[_Level]) -> Origin:
    """Return the origin of a text at some depth of macros."""
    marks = [levels[-1].text, *(level.call for level in reversed(levels))]
    chain = [mark for mark in marks if mark is not None]
    locations = [mark.location for mark in chain]
    around = dict.fromkeys(source for mark in chain for source in mark.around)
    return Origin(locations[0], tuple(dict.fromkeys(locations[1:])), (), tuple(around))


def _values(mark: _Mark) -> Iterator[Source]:
    """Yield the entries that an expression reads: the last records on its path, and the keys that it names."""
    for name, *attributes in mark.reads:
        value = mark.rows.get(name)
        sources = [Source(location, tuple(attributes)) for location in _locations(value)]
        for number, attribute in enumerate(attributes, 1):
            value = getattr(value, attribute, None)
            inner = [Source(location, tuple(attributes[number:])) for location in _locations(value)]
            sources = inner or sources
        yield from sources


def _locations(row: object) -> Iterator[Location]:
    """Yield the locations of the records from which a row of a view was built."""
    for value in (row, *(vars(row).values() if isinstance(row, SimpleNamespace) else ())):
        path = getattr(value, "path", None)
        location = getattr(value, "location", Location(path) if isinstance(path, Path) else None)
        if isinstance(location, Location):
            yield location
    yield from getattr(row, "made_from", ())
