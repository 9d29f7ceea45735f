"""Views of the ops that are functors: their enums, their NumPy functions and their tensor methods."""

from dataclasses import dataclass

from opgen.model import FUNCTOR_KINDS, FUNCTOR_OPERANDS, Functor, FunctorKind, Spec
from opgen.signature import Signature
from opgen.views.method import class_name, dtype_set
from opgen.views.python import docstring, quoted, wrapped


@dataclass(frozen=True)
class OpRow:
    """A member of an op's enum."""

    name: str
    value: str
    facts: str  # its dtypes; for a reduction also the result's dtype and whether nothing is an error
    doc: str


@dataclass(frozen=True)
class OpClass:
    """The enum of one functor kind."""

    name: str
    constant: str
    facts: str  # the type of a row's facts
    attributes: str  # of a member, that a row's facts give
    doc: str
    unsupported: str
    rows: tuple[OpRow, ...]


@dataclass(frozen=True)
class OpView:
    """op.py."""

    groups: str
    classes: tuple[OpClass, ...]


def _dtypes(functor: Functor) -> str:
    return dtype_set(functor.dtypes, 4, len(f'"{functor.name}": ,'))


def _row(functor: Functor, *, is_reduce: bool) -> OpRow:
    facts = _dtypes(functor)
    if is_reduce:
        result = "None" if functor.result is None else f"DType.{functor.result.upper()}"
        facts = f"({facts}, {result}, {functor.empty_is_error})"
    return OpRow(functor.name.upper(), functor.name, facts, f"{functor.doc}\n    # {functor.edges}")


def op_module(spec: Spec, _: str | None) -> OpView:
    """The enums UnaryOp, BinaryOp, CmpOp and ReduceOp."""
    classes = []
    for kind in spec.functors.values():
        is_reduce = kind.name == "reduce"
        classes.append(
            OpClass(
                name=class_name(kind.name),
                constant=kind.name.upper(),
                facts="tuple[frozenset[DType], DType | None, bool]" if is_reduce else "frozenset[DType]",
                attributes="self.dtypes, self.result, self.empty_is_error" if is_reduce else "self.dtypes",
                doc=docstring(_class_doc(spec, kind, is_reduce=is_reduce), 4),
                unsupported=quoted(kind.unsupported),
                rows=tuple(_row(functor, is_reduce=is_reduce) for functor in kind.functors),
            )
        )
    names = {_dtypes(f) for kind in spec.functors.values() for f in kind.functors if not f.dtypes.listed}
    return OpView(", ".join(sorted(names)), tuple(classes))


def _class_doc(spec: Spec, kind: FunctorKind, *, is_reduce: bool) -> str:
    doc = f"The ops of `{_method_of(spec, kind)}`. `dtypes` are those that an op has, `unsupported` says why no others."
    if is_reduce:
        doc += (
            "\n\n`result` is the dtype of the result, None for that of the operand; `empty_is_error` says that nothing"
            " has no result."
        )
    return doc


def _method_of(spec: Spec, kind: FunctorKind) -> str:
    return next((method.name for method in spec.storage_methods() if method.kind == kind.name), kind.name)


@dataclass(frozen=True)
class FunctionView:
    """The NumPy function of a unary, binary or cmp op."""

    name: str
    parameters: str
    doc: str
    integer: str | None  # the expression for integers where it is another one
    expression: str


@dataclass(frozen=True)
class TableView:
    """The functions of one functor kind by op."""

    head: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class FunctorsView:
    """functors.py of the backend that computes with NumPy."""

    reductions: str
    functions: tuple[FunctionView, ...]
    tables: tuple[TableView, ...]


def functors(spec: Spec, _: str | None) -> FunctorsView:
    """The NumPy functions of all functors."""
    functions = []
    tables = []
    for kind in sorted(spec.functors.values(), key=lambda kind: FUNCTOR_KINDS.index(kind.name)):
        is_reduce = kind.name == "reduce"
        operands = FUNCTOR_OPERANDS[kind.name] or ("x",)
        rows = []
        for functor in kind.functors:
            name = functor.numpy.float if is_reduce else f"{kind.name}_{functor.name}"
            rows.append(f"{class_name(kind.name)}.{functor.name.upper()}: {name}")
            if not is_reduce:
                functions.append(_function(name, functor, operands))
        types = f"Mapping[{class_name(kind.name)}, Callable[[{', '.join(['Array'] * len(operands))}], Array]]"
        tables.append(TableView(f"{kind.name.upper()}: Final[{types}]", tuple(rows)))
    reductions = sorted(functor.numpy.float for functor in spec.functors["reduce"].functors)
    return FunctorsView(wrapped("from .reduce import ", reductions, "", 0), tuple(functions), tuple(tables))


def _function(name: str, functor: Functor, operands: tuple[str, ...]) -> FunctionView:
    return FunctionView(
        name=name,
        parameters=", ".join(f"{operand}: Array" for operand in operands),
        doc=docstring(f"{functor.doc[:1].upper()}{functor.doc[1:]}.", 4),
        integer=functor.numpy.integer if functor.numpy.is_split else None,
        expression=functor.numpy.float,
    )


@dataclass(frozen=True)
class TensorMethodView:
    """A tensor method that is one op."""

    definition: str
    doc: str
    body: str


@dataclass(frozen=True)
class TensorOpsView:
    """tensor/ops.py."""

    methods: tuple[TensorMethodView, ...]


_TENSOR_BODIES = {
    "unary": "return self._unary(UnaryOp.{op})",
    "binary": "return self._binary(BinaryOp.{op}, other)",
    "cmp": "return self._cmp(CmpOp.{op}, other)",
    "reduce": "return self._reduce(ReduceOp.{op}, dim, keepdim, unknown)",
}
_TENSOR_PARAMETERS = {
    "unary": ("self",),
    "binary": ("self", "other: Self | float"),
    "cmp": ("self", "other: Self | float"),
    "reduce": ("self", "dim: int | Sequence[int] | None = None", "keepdim: bool = False", "**unknown: Never"),
}


def tensor_ops(spec: Spec, _: str | None) -> TensorOpsView:
    """The tensor methods of all functors, and of the storage methods that say so."""
    methods = []
    for kind in spec.functors.values():
        for functor in kind.functors:
            head = wrapped(f"def {functor.name}(", _TENSOR_PARAMETERS[kind.name], ") -> Self:", 4)
            body = _TENSOR_BODIES[kind.name].format(op=functor.name.upper())
            doc = f"{functor.doc[:1].upper()}{functor.doc[1:]}; {functor.edges}."
            methods.append(TensorMethodView(head, docstring(doc, 8), body))
    for method in spec.storage_methods():
        if method.tensor is not None:
            methods += [_tensor_method(method.name, method.tensor, method.doc)]
    return TensorOpsView(tuple(methods))


def _tensor_method(name: str, signature: Signature, doc: str) -> TensorMethodView:
    parameters = ["self", *map(str, signature.parameters)]
    head = wrapped(f"def {signature.name}(", parameters, ") -> Self:", 4)
    arguments = ", ".join(["self.layout", *signature.arguments])
    return TensorMethodView(head, docstring(doc, 8), f"return self._like(self.storage.{name}({arguments}))")
