"""Views of the ops that are functors: their enums, their NumPy functions and their tensor methods."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from opgen.formula import text_of
from opgen.model import ANY_RESULT, BOUNDS, METHOD_OP, Functor, FunctorKind, Monoid, Position, Spec, sentence
from opgen.scopes import COUNT, given, scopes, with_given
from opgen.views.dispatch import dtypes_constant, op_classes


class OpRow(NamedTuple):
    """A member of an op's enum."""

    name: str
    value: str
    dtypes: str
    result: str
    needs_elements: bool  # of a reduction of nothing there is no result
    gives_position: bool
    numbers: int  # of the compute dtype that a partial result of a reduction is
    moves: bool
    unsupported: str
    doc: str


class OpClass(NamedTuple):
    """An enum of functors."""

    name: str
    doc: str
    rows: tuple[OpRow, ...]


class OpView(NamedTuple):
    """op.py."""

    groups: tuple[str, ...]
    reasons: tuple[str, ...]  # why ops have not the dtypes that they lack
    classes: tuple[OpClass, ...]


def _row(kind: FunctorKind, functor: Functor) -> OpRow:
    return OpRow(
        name=functor.name.upper(),
        value=functor.name,
        dtypes=dtypes_constant(functor.dtypes),
        result="None" if functor.result in (None, ANY_RESULT) else f"DType.{functor.result.upper()}",
        needs_elements=isinstance(functor.reduction, Position)
        or (functor.reduction is not None and functor.reduction.identity in BOUNDS),
        gives_position=isinstance(functor.reduction, Position),
        numbers=_numbers(kind, functor),
        moves=functor.condition is not None,
        unsupported=functor.unsupported,
        doc=functor.summary,
    )


def _numbers(kind: FunctorKind, functor: Functor) -> int:
    state = functor.reduction.state if isinstance(functor.reduction, Monoid) else None
    return 1 if state is None else len(kind.states[state].parts)


def op_module(spec: Spec, _: str | None) -> OpView:
    """The enums UnaryOp, BinaryOp, CmpOp, ReduceOp and MethodOp."""
    classes = []
    for kind in (kind for kind in spec.functors.values() if kind.chosen):
        method = next((method.name for method in spec.storage_methods() if method.kind == kind.name), kind.name)
        rows = tuple(_row(kind, functor) for functor in kind.chosen)
        classes.append(OpClass(kind.class_name, f"The ops of `{method}`.", rows))
    own = tuple(_row(kind, functor) for kind in spec.functors.values() for functor in kind.methods)
    if own:
        classes.append(OpClass(METHOD_OP, "The ops that are storage methods of their own.", own))
    reasons = dict.fromkeys(row.unsupported for op_class in classes for row in op_class.rows)
    return OpView(tuple(group.upper() for group in spec.groups), tuple(reasons), tuple(classes))


class FunctionView(NamedTuple):
    """The function of an elementwise op."""

    op: str  # the member of its enum
    text: str
    is_one_step: bool  # one pass over the operands


class FunctorsView(NamedTuple):
    """functors.py of the backends on array libraries."""

    classes: tuple[str, ...]
    functions: tuple[FunctionView, ...]
    reductions: tuple[tuple[str, str], ...]  # the member of the enum, and how its rows are reduced


def functors(spec: Spec, _: str | None) -> FunctorsView:
    """All functors in words of array libraries."""
    functions = []
    for functor, member in _elementwise(spec):
        names = ", ".join((*functor.operands, *functor.parameters))
        # The last operand is of the dtype that is computed in.
        last = functor.operands[-1]
        formula = scopes(spec, functor)["formula"].expression("array", _literal(last))
        split = f"{formula.integer} if np.is_integer({last}) else " if formula.is_split else ""
        # A conversion to another dtype takes more.
        is_one_step = functor.result != ANY_RESULT and all(map(_is_one_step, formula.texts))
        functions.append(FunctionView(member, f"lambda {names}: {split}{formula.float}", is_one_step))
    words = [word for family in spec.backend_families for word in family.vocabulary.values()]
    joining = {
        text_of(word.combine.node): f"np.{word.name}"
        if "dtype" in word.parameters
        else f"lambda x, axis, _: np.{word.name}(x, axis)"
        for word in words
        if word.combine is not None
    }

    def function(functor: Functor) -> str:
        reduction = functor.reduction
        if isinstance(reduction, Position):
            return f"ReduceOp.{reduction.of.upper()}, np.{functor.name}"
        assert isinstance(reduction, Monoid)
        return joining[text_of(reduction.combine.node)]

    return FunctorsView(_classes(spec), tuple(functions), _reductions(spec, function))


def _elementwise(spec: Spec) -> Iterator[tuple[Functor, str]]:
    """The functors that are no reductions, and the members of their enums."""
    for kind in spec.functors.values():
        for functor in kind.functors:
            if functor.reduction is None:
                yield functor, kind.member(functor)


def _reductions(spec: Spec, function: Callable[[Functor], str]) -> tuple[tuple[str, str], ...]:
    """The members of the enums, and how their rows are reduced: `function` says what joins or finds elements."""
    return tuple(
        (kind.member(functor), _rows(spec, kind, functor, function))
        for kind in spec.functors.values()
        for functor in kind.functors
        if functor.reduction is not None
    )


def _rows(spec: Spec, kind: FunctorKind, functor: Functor, function: Callable[[Functor], str]) -> str:
    """The object of rows.py that reduces the last axis."""
    reduction = functor.reduction
    assert reduction is not None
    if isinstance(reduction, Position):
        return f"Position({function(functor)})"
    own, other = scopes(spec, functor), given(kind, reduction)
    identity = "None" if reduction.identity in BOUNDS else reduction.identity
    element = finish = rows_of_other = "None"
    if reduction.element is not None:
        scope = own["element"] if other is None else with_given(own["element"], other.name)
        text = scope.expression("array", _literal("x")).float
        element = f"lambda {', '.join(['x', *([other.name] if other is not None else [])])}: {text}"
    if reduction.finish is not None:
        text = own["finish"].expression("array", _literal("x")).float
        count = COUNT if re.search(rf"\b{COUNT}\b", text) else "_"
        finish = f"lambda {', '.join(['x', count, *functor.parameters])}: {text}"
    if other is not None:
        rows_of_other = _rows(spec, kind, other, function)
    accumulate, kept = (f"DType.{name.upper()}" if name else "None" for name in (reduction.accumulate, functor.result))
    return f"Monoid({function(functor)}, {identity}, {element}, {accumulate}, {kept}, {finish}, {rows_of_other})"


def _literal(operand: str) -> Callable[[str], str]:
    """How functions of arrays write a number of the dtype of an operand."""
    return lambda text: f"numerics.number({operand}, {text})"


def _is_one_step(expression: str) -> bool:
    """Whether NumPy evaluates an expression in one pass, which leaves nothing behind that should stay in a cache."""
    node = ast.parse(expression, mode="eval").body
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        module = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not isinstance(module, ast.Name) or module.id != "np":
            return False
        parts = node.args
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    return all(isinstance(part, ast.Name | ast.Constant) for part in parts)


def _classes(spec: Spec) -> tuple[str, ...]:
    own = [METHOD_OP] if any(kind.methods for kind in spec.functors.values()) else []
    return (*op_classes(spec), *own)


class TensorMethodView(NamedTuple):
    """A tensor method that is one op."""

    name: str
    parameters: str
    doc: str
    body: str


class TensorOpsView(NamedTuple):
    """tensor/ops.py."""

    classes: tuple[str, ...]
    members: Mapping[str, str]  # of the enums, by the names of constants
    methods: tuple[TensorMethodView, ...]


_TENSOR_BODIES = {
    "unary": "return self._unary({op})",
    "binary": "return self._binary({op}, other)",
    "cmp": "return self._cmp({op}, other)",
    "reduce": "return self._reduce({op}, dim, keepdim, unknown)",
}
_TENSOR_PARAMETERS = {
    "unary": "self",
    "binary": "self, other: Self | float",
    "cmp": "self, other: Self | float",
    "reduce": "self, dim: int | Sequence[int] | None = None, keepdim: bool = False, **unknown: Never",
}


def tensor_ops(spec: Spec, _: str | None) -> TensorOpsView:
    """The tensor methods of all functors, and of the storage methods that say so."""
    methods, members = [], {}
    for kind in spec.functors.values():
        for functor in kind.chosen:
            members[functor.name.upper()] = kind.member(functor)
            if not functor.has_front:
                continue
            body = _TENSOR_BODIES[kind.name].format(op=functor.name.upper())
            doc = sentence(functor.summary)
            methods.append(TensorMethodView(functor.name, _TENSOR_PARAMETERS[kind.name], doc, body))
    for method in spec.storage_methods():
        if method.tensor is not None:
            front = method.tensor
            if len(method.operands) > 1:
                stored = [operand.name for operand in method.operands]
                numbers = [name for name in front.arguments if name not in stored]
                operands = [f"{name}={name}" for name in front.arguments if name in stored]
                arguments = ", ".join([f'"{front.name}"', f"self._storage.{method.name}", *numbers, *operands])
                body = f"return self._joined({arguments})"
            else:
                arguments = ", ".join(["self._layout", *front.arguments])
                body = f"return self._like(self._storage.{method.name}({arguments}))"
            parameters = ", ".join(["self", *map(str, front.parameters)])
            methods.append(TensorMethodView(front.name, parameters, method.doc, body))
    return TensorOpsView(_classes(spec), members, tuple(methods))
