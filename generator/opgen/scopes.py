"""The formulas of functors: what each of them may name, what they come to, and how languages have them."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opgen.cache.memo import memoize
from opgen.formula.derivatives import with_result
from opgen.formula.formula import Formula
from opgen.formula.kinds import kind_of
from opgen.formula.lowering import lowered, with_both
from opgen.formula.nodes import (
    ADD,
    BOTH,
    INCOMING,
    MULTIPLY,
    OPERATORS,
    RESULT,
    Call,
    FormulaError,
    Kind,
    Name,
    Node,
    Number,
    calls,
    inlined,
    names,
    without_total,
)
from opgen.formula.primitives import Language, Primitive, Primitives, built_in
from opgen.formula.simplification import shared, simplified
from opgen.model.functors import Functor
from opgen.model.kinds import ROW_GRADIENT
from opgen.model.reductions import Monoid, State
from opgen.model.spec import Spec
from opgen.monoids import COUNT, ITSELF, REDUCED, UNIT, inner_reduction, is_plain_sum, is_sum, reductions_used_by
from opgen.problem import Problems
from opgen.row_derivatives import row_gradients
from opgen.rows import EXP_BELOW_ZERO, POSITION, reduced, row_primitives, with_quick_powers, with_sums_of_constants


class Expression(NamedTuple):
    """A formula in a language, of integers and of floats."""

    integer: str
    float: str

    @classmethod
    def of(cls, texts: Mapping[Kind, str]) -> "Expression":
        """That of the texts for the kinds that an op has: one of these serves a kind that it lacks."""
        last = list(texts.values())[-1]
        return cls(texts.get("integer", last), texts.get("float", last))

    @property
    def texts(self) -> tuple[str, ...]:
        """One expression, or two."""
        return tuple(dict.fromkeys(self))

    @property
    def is_split(self) -> bool:
        """Whether integers and floats have different expressions."""
        return self.integer != self.float


@dataclass(frozen=True)
class Scope:
    """A formula, and the kinds of what it may name, for each kind of dtypes that the op has."""

    what: str
    formula: Formula
    kinds: Mapping[Kind, Mapping[str, Kind]]
    primitives: Primitives
    gives_truth: bool = False  # it is a truth value
    has_complex: bool = False  # the op has complex numbers, which are computed as floats are

    def check(self, problems: Problems) -> None:
        """Note what is wrong with the formula."""
        every = [*self.kinds.values()]
        if self.has_complex:
            every.append({name: "complex" if kind == "float" else kind for name, kind in self.kinds["float"].items()})
        for kinds in every:
            try:
                kind = kind_of(self.formula.node, kinds, self.primitives)
                if kind == "bool" and not self.gives_truth:
                    raise FormulaError(
                        "a truth value is no number; write a 'result' such as bool to the op, or where(..., 1, 0)", 0
                    )
                if self.gives_truth and kind not in ("bool", None):
                    raise FormulaError("a number is no truth value; compare it, or remove 'result' from the op", 0)
            except FormulaError as error:
                problems.append(self.formula.problem(error, self.what))
                return

    def expression(self, language: Language, literal: Callable[[str], str] = str) -> Expression:
        """The formula in a language."""
        return Expression.of(
            {
                kind: lowered(self.formula.node, language, kinds, self.primitives, literal)
                for kind, kinds in self.kinds.items()
            }
        )

    def shared_expression(self, literal: Callable[[str], str]) -> Expression:
        """The formula of arrays, in Python: what it has more than once is computed once, where it comes first."""
        texts = {}
        for kind, (bodies, text) in self.steps("array", literal).items():
            for name in reversed(bodies):
                before, after = re.split(rf"\b{name}\b", text, maxsplit=1)
                is_alone = before.endswith("(") and after.startswith(")")
                named = f"{name} := {bodies[name]}"
                text = f"{before}{named if is_alone else f'({named})'}{after}"
            texts[kind] = text
        return Expression.of(texts)

    def steps(
        self, language: Language, literal: Callable[[str], str], fast_math: Collection[str] | None = None
    ) -> Mapping[Kind, tuple[dict[str, str], str]]:
        """For each kind, the repeated parts of the formula by name, and the remainder."""
        parts, body = shared(self.formula.node)
        steps = {}
        for kind, kinds in self.kinds.items():
            known: dict[str, Kind] = dict(kinds)
            bodies: dict[str, str] = {}
            for name, part in parts.items():
                bodies[name] = lowered(part, language, known, self.primitives, literal, fast_math)
                known[name] = kind_of(part, known, self.primitives) or kind
            steps[kind] = bodies, lowered(body, language, known, self.primitives, literal, fast_math)
        return steps

    def used(self) -> Iterator[str]:
        """The primitives in it."""
        return (call.primitive for call in calls(self.formula.node) if call.primitive != BOTH)


def _dtype_kinds(spec: Spec, functor: Functor) -> tuple[Kind, ...]:
    # Complex numbers have the operators and functions of floats.
    floats = {*spec.groups["float"], *spec.groups["complex"]}
    dtypes = {*spec.resolve(functor.dtypes)}
    every: tuple[tuple[Kind, bool], ...] = (("integer", bool(dtypes - floats)), ("float", bool(dtypes & floats)))
    return tuple(kind for kind, is_present in every if is_present)


def has_complex(spec: Spec, functor: Functor) -> bool:
    """Whether an op has complex numbers."""
    return not {*spec.groups["complex"]}.isdisjoint(spec.resolve(functor.dtypes))


def is_differentiable(spec: Spec, functor: Functor) -> bool:
    """Whether an op has gradients: it has floats, and gives floats, of a package that has gradients at all."""
    if functor.kind == ROW_GRADIENT:
        return False
    is_of_floats = functor.keeps_kind and not {*spec.groups["float"]}.isdisjoint(spec.resolve(functor.dtypes))
    return is_of_floats and len(functor.results) < 2 and not spec.package.without_gradients


def decisive(spec: Spec, functor: Functor, primitives: Primitives | None = None) -> tuple[object, ...]:
    """Return the key of all that follows from a functor's formulas, with `primitives` instead of the spec's."""
    known = spec.primitives if primitives is None else primitives
    others = spec.reductions if functor.reduction is not None or functor.is_of_rows else ()
    return (functor, known.used_by(functor.nodes), spec.known_dtypes, spec.package, *others)


@memoize(decisive)
def scopes(spec: Spec, functor: Functor) -> Mapping[str, Scope]:
    """The formulas of a functor by their keys."""
    reduction, op = functor.reduction, f"op '{functor.name}'"
    primitives = spec.primitives.used_by(functor.nodes)
    if len(functor.results) > 1:
        primitives = with_both(primitives)
    by_key = {}
    if functor.formula is not None:
        by_key["formula"] = Scope(
            f"'formula' of {op}",
            functor.formula,
            {kind: _operands(functor, kind) for kind in _dtype_kinds(spec, functor)},
            primitives,
            not functor.keeps_kind,
            has_complex(spec, functor),
        )
    elif isinstance(reduction, Monoid):
        by_key.update(_of_monoid(spec, functor, reduction, primitives))
    elif functor.row is not None:
        by_key.update(_of_row(spec, functor, functor.row))
    for operand, formula in functor.gradient.items():
        if functor.is_of_rows:
            kinds: dict[str, Kind] = {**row_kinds(functor), INCOMING: "float", RESULT: "float"}
            by_key[f"gradient {operand}"] = Scope(
                f"'gradient' of {op}", formula, {"float": kinds}, primitives_of_rows(spec)
            )
            continue
        own = "y" if functor.is_scan else COUNT
        scope: dict[str, Kind] = {**_operands(functor, "float"), INCOMING: "float", RESULT: "float", own: "float"}
        what = f"'gradient' of {op}"
        by_key[f"gradient {operand}"] = Scope(
            what, formula, {"float": scope}, _with_reductions(spec, functor, primitives, and_itself=True)
        )
    return by_key


def _operands(functor: Functor, kind: Kind) -> dict[str, Kind]:
    kinds = dict.fromkeys((*functor.operands, *functor.parameters), kind)
    if functor.condition is not None:
        kinds.update(dict.fromkeys(functor.operands[:1], "integer"))
    return kinds


def primitives_of_rows(spec: Spec) -> Primitives:
    """The primitives, and what formulas of rows may call besides."""
    return _primitives_of_rows(spec.primitives, *spec.reductions)


@memoize(lambda primitives, *reductions: (primitives, *reductions), size=4)
def _primitives_of_rows(primitives: Primitives, *reductions: Functor) -> Primitives:
    return row_primitives(primitives, reductions)


def row_kinds(functor: Functor) -> dict[str, Kind]:
    """The kinds of what the formulas of an op of rows may name: an index is a condition."""
    numbers = (*functor.operands, *functor.numbers, *functor.parameters, COUNT, POSITION)
    return {**dict.fromkeys(numbers, "float"), **({functor.index: "bool"} if functor.index is not None else {})}


def _of_row(spec: Spec, functor: Functor, row: Formula) -> Iterator[tuple[str, Scope]]:
    """The formulas of the results of an op of rows."""
    known = primitives_of_rows(spec)
    for index, node in enumerate(functor.results):
        what = f"'formula' of op '{functor.name}'"
        kinds: Mapping[Kind, Mapping[str, Kind]] = {"float": row_kinds(functor)}
        key = "formula" if len(functor.results) == 1 else f"result {index}"
        yield key, Scope(what, replace(row, node=without_total(node)), kinds, known)
    if functor.counts is not None:
        counts = functor.counts.with_parts(functor.let)
        yield "counts", Scope(f"'counts' of op '{functor.name}'", counts, {"float": row_kinds(functor)}, known)


@memoize(decisive)
def joined_results(spec: Spec, functor: Functor) -> tuple[Node, ...]:
    """The results of an op of rows, or of a reduction of a row, over sums, maxima and minima: of an op with a number
    for each row and an index, that number and what the row counts for.

    Raises FormulaError for other reductions.
    """
    reductions = {reduction.name: reduction for reduction in spec.reductions}
    nodes = (Call(functor.name, (Name("x"),)),) if functor.reduction is not None else functor.results
    if functor.per_row and functor.index is not None:
        nodes = (*nodes, Number(1) if functor.counts is None else functor.counts.with_parts(functor.let).node)
    varying = (*functor.elements, POSITION)
    formulas = [reduced(without_total(node), reductions) for node in nodes]
    formulas = [simplified(with_sums_of_constants(node, varying)) for node in formulas]
    return tuple(map(with_quick_powers, formulas) if EXP_BELOW_ZERO in spec.primitives else formulas)


def row_statements(
    spec: Spec,
    nodes: Sequence[Node],
    known: Collection[str],
    language: Language,
    literal: Callable[[str], str],
    fast_math: Collection[str] | None = None,
    index: str | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Lower formulas of a row over numbers that are `known`: the repeated parts by name, and the remainder.

    An index is a condition.
    """
    primitives = primitives_of_rows(spec)
    parts, body = shared(Call(BOTH, tuple(nodes)))
    assert isinstance(body, Call)
    kinds: dict[str, Kind] = {name: "bool" if name == index else "float" for name in known}
    is_fast = any(primitives[it.primitive].fast_math for node in nodes for it in calls(node))
    marked = fast_math if is_fast else None
    named = {}
    for name, part in parts.items():
        named[name] = lowered(part, language, kinds, primitives, literal, marked)
        kinds[name] = kind_of(part, kinds, primitives) or "float"
    return named, [lowered(node, language, kinds, primitives, literal, marked) for node in body.arguments]


def _row_derivatives(spec: Spec, functor: Functor) -> dict[str, Node]:
    """The gradients of an op of rows: what it says, and what follows from its formula, over sums, maxima and minima."""
    reductions = {reduction.name: reduction for reduction in spec.reductions}
    written = {operand: reduced(formula.node, reductions) for operand, formula in functor.gradient.items()}
    if {*functor.operands} <= {*written}:
        return written
    node, *_ = joined_results(spec, functor)
    varying = (*functor.elements, POSITION, *[INCOMING] * (not functor.per_row))
    derived = row_gradients(node, functor.operands, primitives_of_rows(spec), varying)
    return {name: written.get(name, derived[name]) for name in functor.operands}


def _of_monoid(spec: Spec, functor: Functor, monoid: Monoid, known: Primitives) -> Iterator[tuple[str, Scope]]:
    op, every = f"op '{functor.name}'", _dtype_kinds(spec, functor)
    states = every if functor.result is None else tuple(_kind(spec, functor.result) for _ in every)
    pairs = list(zip(every, states, strict=True))
    named = ("x", COUNT) if functor.is_scan else ("x", COUNT, UNIT, *functor.parameters)
    of_scan = (ITSELF,) if functor.is_scan else ()
    parts: tuple[tuple[str, Formula | None, Mapping[Kind, Mapping[str, Kind]]], ...] = (
        ("element", monoid.element, {kind: {"x": kind} for kind in every}),
        ("combine", monoid.combine, {kind: dict.fromkeys("xy", state) for kind, state in pairs}),
        (
            "finish",
            monoid.finish,
            {kind: {**dict.fromkeys(named, state), **dict.fromkeys(of_scan, kind)} for kind, state in pairs},
        ),
    )
    for key, formula, kinds in parts:
        if formula is not None:
            primitives = _with_reductions(spec, functor, known) if key == "element" else known
            is_element = key == "element" and functor.result is not None
            yield key, Scope(f"'{key}' of {op}", formula, kinds, primitives, is_element, has_complex(spec, functor))


def _kind(spec: Spec, dtype: str) -> Kind:
    return "float" if dtype in (*spec.groups["float"], *spec.groups["complex"]) else "integer"


def _with_reductions(spec: Spec, functor: Functor, primitives: Primitives, *, and_itself: bool = False) -> Primitives:
    """The primitives, and in a reduction's formulas the reductions of the same elements."""
    if functor.reduction is None or functor.is_scan:
        return primitives
    own = {
        other.name: _as_primitive(other, _dtype_kinds(spec, other))
        for other in spec.every_functor
        if isinstance(other.reduction, Monoid) and not other.parameters and (and_itself or other is not functor)
    }
    return Primitives({**own, **primitives})


@memoize(lambda functor, kinds: (functor, *kinds))
def _as_primitive(functor: Functor, kinds: tuple[Kind, ...]) -> Primitive:
    """A reduction of the elements in their formulas, which is a constant to each element."""
    kind = kinds[0] if len(kinds) == 1 else None
    return built_in(f"{functor.name}(x)", functor.doc, functor.location, kind=kind)


def with_inner_result(scope: Scope, reduction: str) -> Scope:
    """The contribution of an element with the result of a reduction of all of them by the name `REDUCED`."""
    kinds = {kind: {**names, REDUCED: kind} for kind, names in scope.kinds.items()}
    formula = Formula(_with_inner_result(scope.formula.node, reduction), scope.formula.location)
    return Scope(scope.what, formula, kinds, scope.primitives)


def _with_inner_result(node: Node, reduction: str) -> Node:
    if isinstance(node, Call) and node.primitive == reduction:
        return Name(REDUCED)
    if not isinstance(node, Call):
        return node
    return Call(node.primitive, tuple(_with_inner_result(argument, reduction) for argument in node.arguments))


def state_scopes(spec: Spec, state: State) -> Mapping[str, Scope]:
    """The formulas of a state by their keys: `let NAME`, `element PART`, `combine PART`, `result` and `unit`."""
    floats: Mapping[str, Kind] = {f"{side}.{part.name}": "float" for side in "xy" for part in state.parts}
    of = f"state '{state.name}'"
    by_key = {}
    for name, formula in state.let.items():
        by_key[f"let {name}"] = Scope(f"'{name}' of {of}", formula, {"float": floats}, spec.primitives)
        floats = {**floats, name: "float"}
    for part in state.parts:
        what = f"part '{part.name}' of {of}"
        by_key[f"element {part.name}"] = Scope(what, part.element, {"float": {"x": "float"}}, spec.primitives)
        by_key[f"combine {part.name}"] = Scope(what, part.combine, {"float": floats}, spec.primitives)
    own: Mapping[str, Kind] = {part.name: "float" for part in state.parts}
    for key, formula in zip(("result", UNIT), state.results, strict=False):
        by_key[key] = Scope(f"'{key}' of {of}", formula, {"float": own}, spec.primitives)
    return by_key


@memoize(decisive)
def derivatives(spec: Spec, functor: Functor, primitives: Primitives | None = None) -> dict[str, Node]:
    """The gradients of a functor's operands: what it says, and what follows from its formula.

    `primitives` may have other gradients, which compute the same. Raises FormulaError where neither is
    known.
    """
    written = {operand: formula.node for operand, formula in functor.gradient.items()}
    reduction = functor.reduction
    if isinstance(reduction, Monoid) and not functor.is_scan:
        return written or {"x": _of_sum(spec, functor, reduction)}
    if functor.is_of_rows:
        return _row_derivatives(spec, functor)
    if functor.formula is None:
        return written
    node = functor.formula.node
    wanted = [name for name in functor.operands if functor.condition is None or name != functor.operands[0]]
    known = (primitives or spec.primitives).used_by(functor.nodes)
    derived = {} if {*wanted} <= {*written} else known.gradients(node, wanted)
    return {name: written.get(name) or with_result(derived[name], node) for name in wanted}


def tensor_methods(spec: Spec) -> Mapping[str, str]:
    """The tensor methods that are one primitive each, by that."""
    methods: dict[str, str] = {}
    for functor in spec.every_functor:
        operands = tuple(map(Name, (*functor.operands, *functor.parameters)))
        node = functor.formula.node if functor.formula is not None else None
        if isinstance(node, Call) and node.arguments == operands and node.primitive not in OPERATORS:
            methods.setdefault(node.primitive, functor.name)
    return methods


def written_out(spec: Spec, node: Node) -> Node:
    """Return a formula in which primitives without a tensor method are written in others."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(written_out(spec, argument) for argument in node.arguments)
    primitive = spec.primitives.get(node.primitive)
    if primitive is None or primitive.formula is None or primitive.name in {*OPERATORS, *tensor_methods(spec)}:
        return Call(node.primitive, arguments, node.offset)
    return written_out(spec, inlined(primitive.formula.node, dict(zip(primitive.parameters, arguments, strict=True))))


def _of_sum(spec: Spec, functor: Functor, monoid: Monoid) -> Node:
    """The gradient of the elements of a sum: the sum's own, of what each contributes."""
    if not is_sum(monoid):
        raise FormulaError("only a sum's gradient follows from its formulas; write 'gradient'", 0)
    incoming: Node = Name(INCOMING)
    if monoid.finish is not None:
        incoming = spec.primitives.gradients(monoid.finish.node, ["x"])["x"]
        incoming = with_result(incoming, monoid.finish.node)
        if "x" in names(incoming):
            raise FormulaError("the gradient needs what the elements come to; write 'gradient'", 0)
    if monoid.element is None:
        return incoming
    kind = spec.functors[functor.kind]
    other = inner_reduction(kind, monoid)
    element = monoid.element.node if other is None else _with_inner_result(monoid.element.node, other.name)
    gradients = _with_reductions(spec, functor, spec.primitives).gradients(element, ["x", REDUCED])
    own = inlined(gradients["x"], {INCOMING: incoming})
    # Reductions that depend on each other are an error of their own.
    if other is not None and functor.name not in {it.name for it in reductions_used_by(kind, other)}:
        # Each element also changes what the contributions of all of them depend on.
        summed = _added_up(spec, inlined(gradients[REDUCED], {INCOMING: incoming}))
        own = Call(ADD, (own, _of_other(spec, other, simplified(summed))))
        own = inlined(own, {REDUCED: Call(other.name, (Name("x"),))})
    return simplified(own)


def _added_up(spec: Spec, node: Node) -> Node:
    """The sum over the elements of a formula of them."""
    if node == Number(0):
        return node
    if "x" not in names(node):
        return Call(MULTIPLY, (node, Name(COUNT)))
    for functor in spec.reductions:
        if is_plain_sum(functor) and functor.result is None:
            return Call(functor.name, (node,))
    raise FormulaError("the gradient needs a reduction that is the sum, which the spec lacks; write 'gradient'", 0)


def _of_other(spec: Spec, functor: Functor, incoming: Node) -> Node:
    """The gradient of the elements of a reduction of which `incoming` is that of the result."""
    if incoming == Number(0) or not is_differentiable(spec, functor):
        return Number(0)
    return inlined(derivatives(spec, functor)["x"], {INCOMING: incoming, RESULT: Name(REDUCED)})
