"""Jinja's sandbox with a bound on what a template computes: the template comes from a file that somebody else wrote."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import GeneratorType
from typing import Any, Final

from jinja2 import nodes, pass_context
from jinja2.environment import Template
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MOST_WORK: Final = 1 << 24
"""What a template may compute, in units of about a quarter of a microsecond."""
MOST_CHARACTERS: Final = 1 << 18
"""Of a template."""
_CALL: Final = 4
"""The work of a call. An element of what it is given or gives is a unit, and so are sixteen characters."""
_LARGEST_SIZE: Final = 1 << 12
_MOST_BITS: Final = 1 << 12
_SIZED: Final = ("batch", "center", "indent", "ljust", "rjust", "round", "slice", "tojson", "zfill")
"""What takes a number that its result may be as large as."""
_FORMATS: Final = ("%", "format", "format_map", "strftime_now")
_WIDE: Final = re.compile(r"%[^%a-zA-Z]*(\d{5}|\*)|\{[^{}]*:[^{}]*(\d{5}|\{)")
"""A format with a width of five digits, or one that is an argument."""
_REFUSED: Final = ("expandtabs", "to_bytes", "translate")
"""Methods whose results may be far larger than what they are given, and that no conversation needs."""
_SHALLOW_FILTERS: Final = (
    *("attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map"),
    *("reject", "rejectattr", "reverse", "select", "selectattr", "slice"),
)
"""Filters that don't look into the elements of a list."""
_SHALLOW_TESTS: Final = ("defined", "undefined", "none", "mapping", "sequence", "iterable", "string")
_BODIES: Final = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


class TooMuch(Exception):
    """A template computes more than it may."""


class Generation(Extension):
    """`{% generation %}` blocks, which mark what an assistant said for training, and are what is in them."""

    tags = {"generation"}  # noqa: RUF012 -- so declared by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """Make the block a call, so that its variables are its own, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller: Callable[[], str]) -> str:
        return caller()


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one run of one template. Raises TooMuch.

    Work is counted before it is done. A body of a loop or a macro counts its nodes each time; calls, filters, tests and
    operators count what they are given and what they give; and those whose result may be far larger count that too.
    """

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], finalize=self._printed
        )
        self.left = MOST_WORK
        """The work that it may still do."""
        del self.globals["lipsum"], self.filters["urlize"]
        self.globals.update(functions)
        self.filters["tojson"] = self._json
        for known, shallow in ((self.filters, _SHALLOW_FILTERS), (self.tests, _SHALLOW_TESTS)):
            known.update({name: self._counted(name, function, shallow) for name, function in known.items()})
        for function in (self._enter, self._made, self._joined, self._seen):
            self.filters[function.__name__] = function

    def from_string(self, source: Any, *arguments: Any, **options: Any) -> Template:
        """The template that a text is."""
        if len(source) > MOST_CHARACTERS:
            raise TooMuch
        return super().from_string(source, *arguments, **options)

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_Counting().visit(source), *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may have an attribute."""
        return attr not in _REFUSED and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        """What a call gives."""
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        arguments = tuple(map(_settled, arguments))
        given = (*arguments, *named.values())
        if isinstance(owner, str | bytes):
            given = (owner, *given)
        self._foresee(getattr(method, "__name__", ""), given)
        return self._seen(super().call(context, obj, *arguments, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator gives."""
        match operator, left, right:
            case "**", int(), int():
                self._require(max(right, 0) * left.bit_length() <= _MOST_BITS)
            case "*", _, int():
                self.spend(_work(left) * max(right, 0))
            case "*", int(), _:
                self.spend(_work(right) * max(left, 0))
        self._foresee(operator, (left, right))
        return self._seen(super().call_binop(context, operator, left, right))

    def spend(self, work: int) -> None:
        """Count work."""
        self.left -= work
        self._require(self.left >= 0)

    def _require(self, condition: bool) -> None:
        if not condition:
            raise TooMuch

    def _foresee(self, name: str, given: Sequence[Any]) -> None:
        """Count what a call is given, and its result where that may be far larger."""
        self.spend(_CALL + sum(map(_work, given)))
        first, others = (given[0], given[1:]) if given else ("", ())
        if name in _SIZED:
            for size in others:
                if isinstance(size, int):
                    self._require(abs(size) <= _LARGEST_SIZE)
                    self.spend(_work(first) * abs(size))
        if name in _FORMATS and isinstance(first, str):
            self._require(not _WIDE.search(first))
            self._look_into(others)
        match name, others:
            case "replace", (old, new, *_):
                self.spend(str(first).count(str(old)) * len(str(new)))
            case "join", (other, *_):
                # A filter has the separator behind the list, the method of a text in front of it.
                separator, parts = (first, other) if isinstance(first, str) else (other, first)
                self.spend((1 + _work(separator)) * _work(parts))
            case "sum", _:
                # To add lists takes the square of their number.
                self._require(not any(map(_is_container, others)))

    def _counted(self, name: str, function: Any, shallow: Sequence[str]) -> Callable[..., Any]:
        """A filter or a test that counts."""
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            arguments = tuple(map(_settled, arguments))
            given = (*arguments[skipped:], *named.values())
            if name not in shallow:
                self._look_into(given)
            self._foresee(name, given)
            return self._seen(function(*arguments, **named))

        return counted

    def _look_into(self, values: Iterable[Any]) -> None:
        """Count the elements of lists, and what they hold."""
        waiting = [*values]
        while waiting:
            value = waiting.pop()
            # It is written with all that it holds.
            self._require(not isinstance(value, Namespace))
            if not _is_container(value):
                self.spend(_work(value))
                continue
            self.spend(_CALL * (1 + len(value)))
            waiting += value
            if isinstance(value, Mapping):
                waiting += value.values()

    def _seen(self, value: Any) -> Any:
        self.spend(_work(value))
        self._require(not isinstance(value, int) or value.bit_length() <= _MOST_BITS)
        return value

    def _printed(self, value: Any) -> Any:
        self._look_into((value,))
        return value

    def _made(self, value: Any) -> Any:
        self._look_into((value,))
        return value

    def _joined(self, parts: Sequence[Any]) -> str:
        self._look_into(parts)
        return "".join(map(str, parts))

    def _json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Write JSON with the arguments of transformers; Jinja's own filter escapes what HTML does not like."""
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if indent is None and separators is None:
            return encoder.encode(value)
        parts = []
        for part in encoder.iterencode(value):
            self.spend(_work(part))
            parts.append(part)
        return "".join(parts)

    @pass_context
    def _enter(self, _: Context, work: int) -> str:
        self.spend(_CALL + work)
        return ""


class _Counting(NodeTransformer):
    """Puts the filters that count into a template."""

    def visit(self, node: Any, *_: Any, **__: Any) -> Any:
        """What takes the place of a node."""
        work = nodes.Const(_size(node)) if isinstance(node, _BODIES) else None
        self.generic_visit(node)
        match node:
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return _filter("_made", node)
            case nodes.Concat():
                return _filter("_joined", nodes.List(node.nodes))
            case nodes.Compare():
                node.expr = _filter("_made", node.expr)
                for operand in node.ops:
                    operand.expr = _filter("_made", operand.expr)
            case nodes.Getitem(arg=nodes.Slice()):
                return _filter("_seen", node)
        if work is not None:
            node.body.insert(0, nodes.Output([_filter("_enter", work)]))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = nodes.Or(_filter("_enter", work), node.test)
        return node


def _size(node: nodes.Node) -> int:
    """The nodes and characters of a body."""
    return sum(1 for _ in node.find_all(nodes.Node)) + sum(len(text.data) for text in node.find_all(nodes.TemplateData))


def _filter(name: str, node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _is_container(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset | Mapping)


def _work(value: Any) -> int:
    """That of reading a value once."""
    if isinstance(value, str | bytes):
        return (len(value) + 15) // 16
    return len(value) if isinstance(value, range) or _is_container(value) else 0


def _settled(value: Any) -> Any:
    """A list of what a filter gives one by one."""
    return [*value] if isinstance(value, GeneratorType) else value
