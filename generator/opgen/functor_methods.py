"""The storage methods that functors are: their signatures, operands, checks, tensor methods and gradients.

What a functor needs besides its operands and parameters is in its `Extras`: a kind of functors that has such arguments
adds the function which makes them to `_EXTRAS`, and everything else of its methods follows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opgen.cache.memo import memoize
from opgen.docstrings import sentence
from opgen.examples import ROWS
from opgen.formula.nodes import MULTIPLY, Name
from opgen.formula.nodes import Call as FormulaCall
from opgen.model.examples import Example, Values
from opgen.model.expressions import Expression
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.gradients import Gradient
from opgen.model.kinds import ANY_RESULT, REAL_RESULT, RESIDUAL, ROW, ROW_GRADIENT, SCAN
from opgen.model.methods import STORAGE, Check, Method, Operand
from opgen.model.reductions import Monoid
from opgen.model.results import Result
from opgen.monoids import is_plain_sum
from opgen.names import Names
from opgen.signature import OPTIONAL, Call, Parameter, Signature

# What a storage method returns that gives several storages.
STORAGES = "tuple[Storage, ...]"


@dataclass(frozen=True)
class Extras:
    """The parts of a functor's storage method besides the operands and parameters of its formulas."""

    parameters: tuple[Parameter, ...] = ()
    """Arguments of the storage method, after the operands."""
    front: tuple[Parameter, ...] = ()
    """Those of the tensor method."""
    checks: tuple[Call, ...] = ()
    """Checks of these arguments."""
    returns: str = "Storage"
    """The type of the result."""
    results: tuple[str, ...] = ()
    """The results, if they differ from the dtype of the formulas and the shape of the operands."""
    gradient: Gradient | None = None
    """The gradient, where it is not that of `derivatives`."""
    examples: tuple[Example, ...] = ()
    """Calls, where operands may be left out or have other shapes than the first."""
    operands: tuple[Operand, ...] = ()
    """Further operands, after those of the formulas' elements."""


def _reduced(functor: Functor) -> Extras:
    dims = Parameter("dims", "tuple[int, ...]")
    result = f"{result_dtype(functor, 'self')}[reduced(self.shape, dims)]"
    return Extras((dims,), checks=(Call("distinct_dims", ("layout", "dims")),), results=(result,))


def _of_row(functor: Functor) -> Extras:
    dim = () if functor.last_dim else (Parameter("dim", "int"),)
    dim_text = "-1" if functor.last_dim else "dim"
    front = () if functor.last_dim else (Parameter("dim", "int = REQUIRED"), Parameter("axis", "int | None = None"))
    if functor.per_row or functor.numbers:
        return _with_numbers(functor, dim, dim_text, front)
    vectors = [f"{name}_layout" for name in functor.vectors]
    has_dim = () if functor.last_dim else (Call("dim_in_range", ("layout", "dim")),)
    checks = (*has_dim, *(Call("along_dim", ("layout", it, dim_text)) for it in vectors))
    totals = tuple(Parameter(f"of_{name}", "bool") for name in functor.totals)
    has_several = len(functor.results) > 1 or functor.adds_residual
    own = "self.dtype[self.shape]"
    results = [own] * (len(functor.results) - len(totals))
    results += [f"self.dtype[self.shape[{dim_text}]] if {it.name} else null" for it in totals]
    results += [f"{own} if {RESIDUAL} else null"] * functor.adds_residual
    returns = STORAGES if has_several else "Storage"
    return Extras((*dim, *totals), front, checks, returns, tuple(results), None, tuple(_row_examples(functor)))


def _with_numbers(functor: Functor, dim: Sequence[Parameter], dim_text: str, front: Sequence[Parameter]) -> Extras:
    """Return the extra parts of an op that gives or takes a number for each row, in the compute dtype."""
    layouts = [f"{name}_layout" for name in (*functor.numbers, *filter(None, [functor.index]))]
    has_dim = () if functor.last_dim else (Call("dim_in_range", ("layout", "dim")),)
    checks = [*has_dim, *(Call("has_each_row", ("layout", layout, dim_text)) for layout in layouts)]
    checks += [Call("in_compute_dtype", ("self.inner.dtype", f"{name}.inner.dtype")) for name in functor.numbers]
    numbers = Names(("bf16", "f16", "f32", "f64"), (functor.location,) * 4, listed=True)
    operands = [Operand(name, f"{name}_layout", numbers, None, functor.location) for name in functor.numbers]
    parameters = [*dim]
    example: dict[str, int | float | bool | tuple[int, ...]] = {} if functor.last_dim else {"dim": 1}
    if functor.index is not None:
        bound = Values(None, Expression(f"layout.shape[{dim_text}]", functor.location), functor.location)
        index = Names(("index",), (functor.location,), listed=False)
        operands.append(Operand(functor.index, f"{functor.index}_layout", index, bound, functor.location))
        parameters.append(Parameter("ignore_index", "int"))
        example["ignore_index"] = -100
    if functor.numbers:
        parameters.append(Parameter("overwrites", "bool"))
        example["overwrites"] = False
    example |= dict.fromkeys(functor.parameters, 1.0)
    examples = tuple(
        Example.of(
            {
                "self": shape,
                **{name: shape[1:] for name in functor.vectors if is_full or name not in functor.optional},
                **{each.name: shape[:1] for each in operands},
                **example,
            },
            functor.location,
        )
        for shape, is_full in [
            (shape, is_full) for shape in ROWS for is_full in ((True, False) if functor.optional else (True,))
        ]
    )
    count = len(functor.results) + (functor.index is not None) if functor.per_row else 0
    checks += [Call("along_dim", ("layout", f"{name}_layout", dim_text)) for name in functor.vectors]
    results = [number_of_row(functor)] * count or ["self.dtype[self.shape]"]
    returns = STORAGES if functor.per_row else "Storage"
    return Extras(
        tuple(parameters),
        tuple(front),
        tuple(checks),
        returns,
        tuple(results),
        operands=tuple(operands),
        examples=examples,
    )


def number_of_row(functor: Functor) -> str:
    """Return a result that has a number for each row."""
    return f"self.dtype.compute[without_dim(self.shape, {'-1' if functor.last_dim else 'dim'})]"


def _row_examples(functor: Functor) -> Iterator[Example]:
    """Calls of an op of rows of which operands may be left out or are vectors: with all operands, and with few."""
    if not functor.adds_residual and not any(it.is_optional or it.is_vector for it in functor.of_rows):
        return
    names = [*functor.operands[1:], *[RESIDUAL] * functor.adds_residual]
    numbers: dict[str, int | float] = {} if functor.last_dim else {"dim": 1}
    numbers |= dict.fromkeys(functor.parameters, 1.0)
    for shape, is_full in ((ROWS[0], True), (ROWS[0], False), (ROWS[1], True)):
        left_out = () if is_full else (*functor.optional, RESIDUAL)
        shapes = {name: shape[1:] if name in functor.vectors else shape for name in names if name not in left_out}
        totals = {f"of_{name}": is_full for name in functor.totals}
        yield Example.of({"self": shape, **shapes, **totals, **numbers}, functor.location)


def _scanned(functor: Functor) -> Extras:
    options = ["reverse"] if functor.needs_elements else ["reverse", "exclusive"]
    parameters = (Parameter("dim", "int"), *(Parameter(name, "bool") for name in options))
    front = Parameter("dim", "int = REQUIRED"), *(Parameter(name, "bool = False") for name in options)
    axis = Parameter("axis", "int | None = None")
    checks = (Call("dim_in_range", ("layout", "dim")),)
    returns = STORAGES if functor.positions else "Storage"
    results = [f"{result_dtype(functor, 'self')}[self.shape]", *["u32[self.shape]"] * functor.positions]
    return Extras(parameters, (*front, axis), checks, returns, tuple(results), _of_scan(functor, options))


def _of_scan(functor: Functor, options: Sequence[str]) -> Gradient:
    """Return the gradient of a scan: of the selected elements, or of all that were combined."""
    location, none = functor.location, None
    rule = f"scans.scan_gradient(g, {functor.member}, self, dim, {', '.join(options)})"
    if is_plain_sum(functor):
        others = ", ".join(["not reverse", *options[1:]])
        rule = f"g._scan({functor.member}, dim, {others})"
    if functor.positions:
        rule = "rules.at_positions(g, others[0], layout, dim)"
    if not functor.keeps_kind:
        none = f"the results are of {functor.result}"
    functions = {} if none else {"self": Expression(rule, location)}
    return Gradient(None, {}, none, None, functions, location)


_EXTRAS: Mapping[str, Callable[[Functor], Extras]] = {
    "reduce": _reduced,
    SCAN: _scanned,
    ROW: _of_row,
    ROW_GRADIENT: _of_row,
}


@memoize(lambda kind, functor: (kind.name, functor))
def functor_method(kind: FunctorKind, functor: Functor) -> Method:
    """Return the storage method, with its tensor method, of a functor that is one."""
    extras = _EXTRAS[kind.name](functor) if kind.name in _EXTRAS else _of_elements(functor)
    (_, first), *others = stored = _stored(functor)
    checks = [Call("has_last_dim", (first,))] * functor.last_dim
    checks += [Call("same_shape", (first, it)) for name, it in others if name not in functor.vectors]
    checks += extras.checks
    parameters = [Parameter(first, "Layout")]
    for name, layout in others:
        is_optional = name in (*functor.optional, RESIDUAL)
        parameters += [Parameter(name, f"Storage{OPTIONAL}" if is_optional else "Storage")]
        parameters += [Parameter(layout, f"Layout{OPTIONAL}" if is_optional else "Layout")]
    for operand in extras.operands:
        parameters += [Parameter(operand.name, "Storage"), Parameter(str(operand.layout), "Layout")]
    parameters += [*extras.parameters, *(Parameter(name, "int | float") for name in functor.parameters)]
    front = [*(Parameter(name, "Self | float") for name, _ in others), *extras.front]
    front += [
        Parameter(name, "float" if default is None else f"float = {default!r}")
        for name, default in functor.parameters.items()
    ]
    operands = _operands(functor, stored)
    own = f"{result_dtype(functor, operands[0].name)}[{operands[0].name}.shape]"
    results = extras.results or (own,) * max(len(functor.results), 1)
    return Method(
        name=functor.name,
        signature=Signature(functor.name, tuple(parameters), extras.returns),
        doc=sentence(functor.summary),
        kind=kind.name,
        functor=functor.name,
        operands=(*operands, *extras.operands),
        dtypes=None,
        unsupported=functor.unsupported or None,
        results=tuple(Result(text, functor.location) for text in results),
        checks=tuple(Check(call, functor.location) for call in checks),
        errors={},
        tensor=Signature(functor.name, tuple(front), "Tensor") if functor.has_front else None,
        let={},
        body=None,
        is_wide=False,
        gradient=extras.gradient,
        batch=None,
        unbatched=None,
        examples=extras.examples,
        owner=STORAGE,
        location=functor.location,
    )


def _stored(functor: Functor) -> list[tuple[str, str]]:
    """The storages that a method works on, each with its layout."""
    others = ["other" if name == "y" else name for name in functor.operands[1:]]
    others += [RESIDUAL] * functor.adds_residual
    return [("self", "layout"), *((name, f"{name}_layout") for name in others)]


def _operands(functor: Functor, stored: list[tuple[str, str]]) -> tuple[Operand, ...]:
    same = Names(("same",), (functor.location,), listed=False)
    # The first is the one whose dtype the matrix lists.
    alike = stored if functor.condition is None else stored[1:]
    operands = [
        Operand(name, layout, same if position else functor.dtypes, _factors(functor), functor.location)
        for position, (name, layout) in enumerate(alike)
    ]
    if functor.condition is not None:
        operands.append(Operand(*stored[0], functor.condition, _truth(functor), functor.location))
    return tuple(operands)


def _factors(functor: Functor) -> Values | None:
    """Return what elements are whose products do not overflow; None where none are multiplied."""
    monoid = functor.reduction
    multiplies = isinstance(monoid, Monoid) and monoid.combine.node == FormulaCall(MULTIPLY, (Name("x"), Name("y")))
    return Values("units", None, functor.location) if multiplies else None


def result_dtype(functor: Functor, operand: str) -> str:
    """Return what the formulas give, of the dtype of an operand."""
    own = f"{operand}.dtype"
    return {None: own, REAL_RESULT: f"{own}.real", ANY_RESULT: "dtype"}.get(functor.result, str(functor.result))


def _of_elements(functor: Functor) -> Extras:
    if functor.result == ANY_RESULT:
        checks = (Call("keeps_parts", ("self.inner", "dtype")),)
        return Extras((Parameter("dtype", "DType"),), (Parameter("dtype", "DTypeLike"),), checks)
    if len(functor.results) > 1:
        return Extras(returns=STORAGES, gradient=_recorded(functor))
    return Extras()


def _truth(functor: Functor) -> Values:
    """The truth values of a condition."""
    return Values(None, Expression("2", functor.location), functor.location)


def _recorded(functor: Functor) -> Gradient:
    """Return that of a functor of two results: what it computes is recorded op by op."""
    stored = _stored(functor)
    # The gradient comes first, with a condition.
    operands = stored if functor.condition is None else (*stored[1:], stored[0])
    arguments = [functor.member, *(f"({name}, {layout})" for name, layout in operands), *functor.parameters]
    call = Expression(f"rules.both_gradients({', '.join(arguments)})", functor.location)
    return Gradient(None, {operands[0][0]: call}, None, None, {}, functor.location)
