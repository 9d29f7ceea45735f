"""Jinja's sandbox with a bound on what a template computes: the template comes from a file of unknown origin.

Whatever a template may call has a cost, which is counted before the call, from the sizes of its operands alone. Filters
and methods of Python's types that are not listed here with their cost cannot be called.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
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

from .cost import CALL, Cost, TooMuch, is_container, of_braces, of_percent, size_of

MAX_WORK: Final = 1 << 24
"""The work that a template may do, in units of about a quarter of a microsecond, and of 64 bytes of memory."""
MAX_CHARACTERS: Final = 1 << 16
"""Of a template."""
_MAX_BITS: Final = 1 << 12
_LINEAR: Final = Cost()
_SHALLOW: Final = Cost(is_shallow=True)
_COMPARED: Final = Cost(is_compared=True)
_SIZED: Final = Cost(has_sizes=True)
_ITERATED: Final = Cost(is_shallow=True, is_iterated=True)
# What is compared, as often as a sort of a million elements compares each.
_SORTED: Final = Cost(is_iterated=True, factor=20)
FILTERS: Final = {
    **dict.fromkeys(("attr", "count", "d", "default", "first", "items", "last", "length", "safe"), _SHALLOW),
    **dict.fromkeys(("list", "map", "reject", "rejectattr", "reverse", "select", "selectattr"), _ITERATED),
    **dict.fromkeys(("abs", "capitalize", "e", "escape", "float", "forceescape", "int", "lower", "replace"), _LINEAR),
    **dict.fromkeys(("string", "title", "trim", "truncate", "upper", "urlencode", "wordcount"), _LINEAR),
    **dict.fromkeys(("join", "sum"), Cost(is_iterated=True)),
    **dict.fromkeys(("center", "indent", "round", "tojson"), _SIZED),
    **dict.fromkeys(("batch", "slice"), Cost(is_shallow=True, is_iterated=True, has_sizes=True)),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort", "unique"), _SORTED),
    "format": Cost(widths=of_percent),
}
"""Jinja's filters that a template may call. Others make more of their operands than their sizes suggest."""
_TESTS: Final = dict.fromkeys(
    (
        *("boolean", "callable", "defined", "divisibleby", "escaped", "even", "false", "filter", "float", "integer"),
        *("iterable", "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test", "true", "undefined"),
    ),
    _SHALLOW,
)
# Other tests compare.
_METHODS: Final[Mapping[type, Mapping[str, Cost]]] = {
    str: {
        **dict.fromkeys(("capitalize", "casefold", "count", "endswith", "find", "index", "join", "lower"), _LINEAR),
        **dict.fromkeys(("lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind"), _LINEAR),
        **dict.fromkeys(("rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith"), _LINEAR),
        **dict.fromkeys(("strip", "swapcase", "title", "upper"), _LINEAR),
        **dict.fromkeys((name for name in dir(str) if name.startswith("is")), _LINEAR),
        **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _SIZED),
        **dict.fromkeys(("format", "format_map"), Cost(widths=of_braces)),
    },
    list: dict.fromkeys(("copy", "count", "index"), _LINEAR),
    tuple: dict.fromkeys(("count", "index"), _LINEAR),
    Mapping: dict.fromkeys(("copy", "get", "items", "keys", "values"), _SHALLOW),
}
_OPERATORS: Final = {"*": Cost(is_shallow=True, has_sizes=True), "%": Cost(widths=of_percent)}
# They join.
_OTHER_OPERATORS: Final = Cost(is_shallow=True, is_compared=True)
_BODIES: Final = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


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
    operators count their operands and results.
    """

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], finalize=self._printed
        )
        self.left = MAX_WORK
        """The work that it may still do."""
        del self.globals["lipsum"]
        self.globals.update(functions)
        known = {**self.filters, "tojson": self._json}
        self.filters = {name: self._counted(cost, name, known[name]) for name, cost in FILTERS.items()}
        self.tests = {name: self._counted(_TESTS.get(name, _COMPARED), name, test) for name, test in self.tests.items()}
        for function in (self._enter, self._iterated, self._joined, self._made, self._seen):
            self.filters[function.__name__] = function

    def from_string(self, source: Any, *arguments: Any, **options: Any) -> Template:
        """The template that a text is."""
        if len(source) > MAX_CHARACTERS:
            raise TooMuch
        return super().from_string(source, *arguments, **options)

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_Counting().visit(source), *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may have an attribute: of a value of Python's types, a method whose cost is known."""
        is_unknown = callable(value) and _is_of_python(obj) and _cost_of_method(obj, attr) is None
        return not is_unknown and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        """The result of a call."""
        method = getattr(obj, "__wrapped__", obj)
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        arguments = tuple(map(_settled, arguments))
        operands = (*arguments, *named.values())
        cost: Cost | None = _SHALLOW
        if owner is not None and _is_of_python(owner):
            operands, cost = (owner, *operands), _cost_of_method(owner, name)
        elif name == "strftime_now":
            cost = Cost(widths=of_percent)
        # A method without a known cost is refused as an attribute; here it is one that the caller passed.
        self._count(cost or _LINEAR, name, operands)
        return self._seen(super().call(context, obj, *arguments, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The result of an operator."""
        if isinstance(left, int | float) and isinstance(right, int | float):
            self.spend(CALL)
            if operator == "**" and isinstance(left, int) and isinstance(right, int):
                self._require(max(right, 0) * left.bit_length() <= _MAX_BITS)
        else:
            self._count(_OPERATORS.get(operator, _OTHER_OPERATORS), operator, (left, right))
        return self._seen(super().call_binop(context, operator, left, right))

    def spend(self, work: int) -> None:
        """Count work."""
        self.left -= work
        self._require(self.left >= 0)

    def _require(self, condition: bool) -> None:
        if not condition:
            raise TooMuch

    def _count(self, cost: Cost, name: str, operands: Sequence[Any]) -> None:
        """Count a call, and its result where that may be larger than its operands."""
        if not cost.is_shallow:
            before = self.left
            for operand in operands:
                self._look_into(operand)
            self.spend((before - self.left) * (cost.factor - 1))
        match name, operands:
            case "replace", (text, old, new, *_) if isinstance(text, str) and isinstance(old, str):
                # The replacement is written once for each match, so matches are counted first.
                self.spend(cost.of((text, old)))
                self.spend(text.count(old) * size_of(new))
            case "sum", (_, *others):
                # To add lists takes the square of their number.
                self._require(not any(map(is_container, others)))
                self.spend(cost.of(operands))
            case _:
                self.spend(cost.of(operands))

    def _counted(self, cost: Cost, name: str, function: Any) -> Callable[..., Any]:
        """A filter or a test that counts."""
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            arguments = tuple(map(_settled, arguments))
            self._count(cost, name, (*arguments[skipped:], *named.values()))
            return self._seen(function(*arguments, **named))

        return counted

    def _look_into(self, value: Any) -> None:
        """Count the elements of a list, and what they hold."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            # It is written with all that it holds.
            self._require(not isinstance(value, Namespace))
            self.spend(size_of(value))
            if is_container(value):
                waiting += value
                if isinstance(value, Mapping):
                    waiting += value.values()

    def _seen(self, value: Any) -> Any:
        self.spend(size_of(value))
        self._require(not isinstance(value, int) or value.bit_length() <= _MAX_BITS)
        return value

    def _printed(self, value: Any) -> Any:
        self._look_into(value)
        return value

    def _iterated(self, value: Any) -> Any:
        # A loop may look at the last of its elements first, and then has them all.
        self.spend(_ITERATED.of((value,)))
        return value

    def _made(self, value: Any) -> Any:
        self._look_into(value)
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
            self.spend(size_of(part))
            parts.append(part)
        return "".join(parts)

    @pass_context
    def _enter(self, _: Context, work: int) -> str:
        self.spend(CALL + work)
        return ""


def _is_of_python(value: Any) -> bool:
    """Whether a value's methods are Python's own, not those of Jinja or of the caller's classes."""
    return isinstance(value, str | Mapping) or type(value).__module__ == "builtins"


def _cost_of_method(value: Any, name: str) -> Cost | None:
    """The cost of a method of a value of Python's types; None of one that a template may not call."""
    return next((costs.get(name) for kind, costs in _METHODS.items() if isinstance(value, kind)), None)


class _Counting(NodeTransformer):
    """Puts the filters that count into a template."""

    def visit(self, node: Any, *_: Any, **__: Any) -> Any:
        """The replacement of a node."""
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
            if isinstance(node, nodes.For):
                node.iter = _filter("_iterated", node.iter)
                if node.test is not None:
                    node.test = nodes.Or(_filter("_enter", work), node.test)
        return node


def _size(node: nodes.Node) -> int:
    """The nodes and characters of a body."""
    return sum(1 for _ in node.find_all(nodes.Node)) + sum(len(text.data) for text in node.find_all(nodes.TemplateData))


def _filter(name: str, node: Any) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _settled(value: Any) -> Any:
    """A list of what a filter gives one by one."""
    return [*value] if isinstance(value, GeneratorType) else value
