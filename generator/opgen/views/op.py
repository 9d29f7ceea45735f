"""Views of the ops that are functors: their enums, their NumPy functions and their tensor methods."""

import ast
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace as View

from opgen.arrays import Word
from opgen.cache.memo import memoize
from opgen.expression import outer_names
from opgen.folders import NUMERICS
from opgen.formula.lowering import DTYPE
from opgen.formula.nodes import names
from opgen.formula.printing import text_of
from opgen.gradient_ops import row_nodes, row_variants
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import ANY_RESULT, ENUM_KINDS, METHOD_OP, REAL_RESULT, op_class
from opgen.model.reductions import BOUNDS, Monoid, Position
from opgen.model.spec import Spec
from opgen.monoids import COUNT, ITSELF, REDUCED, UNIT, inner_reduction, reads_unit
from opgen.results import typed_result
from opgen.row_methods import SAVES
from opgen.rows import POSITION
from opgen.scopes import decisive, has_complex, row_statements, scopes, with_inner_result
from opgen.views.call_checks import dtypes_constant
from opgen.views.composed import tensor_call
from opgen.views.dispatch_names import op_classes
from opgen.views.python import quoted
from opgen.views.results import dims


def op(spec: Spec) -> View:
    """The enums UnaryOp, BinaryOp, CmpOp, ReduceOp and MethodOp."""
    classes = []
    # The runtime names the enums of all kinds, also of those that the spec has no op of.
    for name in (*spec.functors, *(name for name in ENUM_KINDS if name not in spec.functors)):
        kind = spec.functors.get(name)
        rows = [] if kind is None else [_member(spec, functor) for functor in kind.chosen]
        if rows or name in ENUM_KINDS:
            method = next((method.name for method in spec.storage_methods() if method.kind == name), name)
            classes.append(View(name=op_class(name), doc=f"The ops of `{method}`.", rows=rows))
    own = [_member(spec, functor) for kind in spec.functors.values() for functor in kind.methods]
    classes.append(View(name=METHOD_OP, doc="The ops that are storage methods of their own.", rows=own))
    # Why ops have not the dtypes that they lack.
    reasons = list(dict.fromkeys(row.functor.unsupported for each in classes for row in each.rows))
    of_elements = [each.name for each in classes if any(row.functor.formula is not None for row in each.rows)]
    groups = [group.upper() for group in spec.groups]
    return View(
        groups=groups, has_base=spec.package.base is not None, reasons=reasons, classes=classes, of_elements=of_elements
    )


def _member(spec: Spec, functor: Functor) -> View:
    """A member of an op's enum."""
    reduction = functor.reduction
    is_position = isinstance(reduction, Position)
    state = reduction.state if isinstance(reduction, Monoid) else None
    return View(
        functor=functor,
        name=functor.name.upper(),
        dtypes=dtypes_constant(functor.dtypes),
        result="None" if functor.keeps_kind else f"DType.{str(functor.result).upper()}",
        gives_real=functor.result == REAL_RESULT,
        # Of a reduction of nothing there may be no result.
        needs_elements=functor.needs_elements,
        gives_position=is_position,
        # So many numbers of the compute dtype a partial result of a reduction is.
        numbers=(1 if state is None else len(spec.states[state].parts)) + functor.positions,
        conditions="None" if functor.condition is None else dtypes_constant(functor.condition),
    )


def array_functors(spec: Spec) -> View:
    """All functors in words of array libraries."""
    functions = []
    for kind in spec.functors.values():
        functions += [_function(spec, functor) for functor in kind.functors if functor.formula is not None]
    words = [word for family in spec.backend_families for word in family.vocabulary.values()]
    joining = {text_of(word.combine.node): _joining(word) for word in words if word.combine is not None}
    scanning = {text_of(word.scan.node): _joining(word) for word in words if word.scan is not None}
    reductions = {
        functor.member: _rows(spec, kind, functor, joining)
        for kind in spec.functors.values()
        for functor in kind.functors
        if functor.reduction is not None and not functor.is_scan
    }
    scans = {functor.member: _scan(spec, functor, scanning) for functor in spec.scans}
    rows = [
        _of_row(spec, variant)
        for functor in spec.every_functor
        if functor.is_of_rows
        for variant in row_variants(spec, functor)
    ]
    texts = {text for primitive in spec.primitives.values() for text in primitive.implementation("array").texts}
    owners = {name[0] for text in texts for name in outer_names(text)}
    return View(
        classes=_classes(spec),
        # Modules of numerics that primitives call.
        modules=sorted(owners & {*spec.own_modules.get(NUMERICS.name, ())}),
        functions=functions,
        reductions=reductions,
        rows=rows,
        scans=scans,
    )


@memoize(decisive)
def _of_row(spec: Spec, functor: Functor) -> View:
    """An op of rows as a function of arrays of rows, their count and positions."""
    results = row_nodes(spec, functor)
    operands = (*functor.operands, *functor.numbers, *filter(None, [functor.index]))
    known = (*operands, *functor.parameters, COUNT, POSITION)
    literal = _literal(functor.operands[0])
    parts, texts = row_statements(spec, results, known, "array", literal, index=functor.index)
    named = {name for node in results for name in names(node)}
    words = [word if word in named else f"_{word}" for word in (COUNT, POSITION)]
    return View(
        made_from=(functor.location,),
        name=functor.name,
        parameters=", ".join(f"{name}: Any" for name in (*operands, *functor.parameters, *words)),
        statements=[f"{name} = {text}" for name, text in parts.items()],
        results=f"{', '.join(texts)},",
        count=len(texts),
    )


def _joining(word: Word) -> str:
    """The function of a word that joins elements along an axis in a dtype."""
    if "dtype" in word.parameters:
        return f"np.{word.name}"
    return f"in_own_dtype(np.{word.name})" if word.is_optional else f"lambda x, axis, _: np.{word.name}(x, axis)"


def _scan(spec: Spec, functor: Functor, scanning: Mapping[str, str]) -> str:
    """The object of rows.py that joins the elements up to each; `scanning` has words that do, by formula."""
    monoid, own = functor.reduction, scopes(spec, functor)
    assert isinstance(monoid, Monoid)
    word = scanning.get(text_of(monoid.combine.node), "None")
    combine = own["combine"].expression("array", _literal("x"))
    text = f"{combine.integer} if np.is_integer(x) else {combine.float}" if combine.is_split else combine.float
    parts = [word, f"lambda x, y: {text}", _identity(monoid)]
    parts.append(f"lambda x: {own['element'].expression('array', _literal('x')).float}" if monoid.element else "None")
    parts += [f"DType.{name.upper()}" if name else "None" for name in (monoid.accumulate, functor.result)]
    if monoid.finish is not None:
        read = names(monoid.finish.node)
        arguments = ", ".join(name if name in read else f"_{name}" for name in ("x", ITSELF, COUNT))
        parts.append(f"lambda {arguments}: {own['finish'].expression('array', _literal('x')).float}")
    return f"Scan({', '.join(parts)})"


def _identity(monoid: Monoid) -> str:
    return "None" if monoid.identity in BOUNDS else monoid.identity


@memoize(decisive)
def _function(spec: Spec, functor: Functor) -> View:
    """A functor as a function of arrays."""
    own = scopes(spec, functor)["formula"]
    takes_dtype = any(spec.primitives[name].of_dtype for name in own.used())
    operands = ", ".join((*functor.operands, *functor.parameters, *([DTYPE] if takes_dtype else [])))
    # The last operand is of the dtype that is computed in.
    last = functor.operands[-1]
    formula = own.shared_expression(_literal(last))
    split = f"{formula.integer} if np.is_integer({last}) else " if formula.is_split else ""
    # Whether it is one pass over the operands: a conversion to another dtype takes more.
    is_one_step = functor.result != ANY_RESULT and all(map(_is_one_step, formula.texts))
    text = f"lambda {operands}: {split}{formula.float}"
    text += ", True" if takes_dtype else ""
    return View(made_from=(functor.location,), op=functor.member, text=text, is_one_step=is_one_step)


def _rows(spec: Spec, kind: FunctorKind, functor: Functor, joining: Mapping[str, str]) -> str:
    """The object of rows.py that reduces the last axis; `joining` has what joins elements, by formula."""
    reduction = functor.reduction
    assert reduction is not None
    if isinstance(reduction, Position):
        return f"Position(ReduceOp.{reduction.of.upper()}, np.{functor.name})"
    own, other = scopes(spec, functor), inner_reduction(kind, reduction)
    identity = _identity(reduction)
    element = finish = rows_of_other = "None"
    if reduction.element is not None:
        scope = own["element"] if other is None else with_inner_result(own["element"], other.name)
        text = scope.expression("array", _literal("x")).float
        element = f"lambda {', '.join(['x', *([REDUCED] if other is not None else [])])}: {text}"
    if reduction.finish is not None:
        text = own["finish"].expression("array", _literal("x")).float
        read = names(reduction.finish.node)
        words = [word if word in read else f"_{word}" for word in (COUNT, UNIT)]
        finish = f"lambda {', '.join(['x', *words, *functor.parameters])}: {text}"
    if other is not None:
        rows_of_other = _rows(spec, kind, other, joining)
    dtypes = reduction.accumulate, functor.result
    accumulate, result_dtype = (f"DType.{name.upper()}" if name else "None" for name in dtypes)
    combine = joining[text_of(reduction.combine.node)]
    of_rows = f"{rows_of_other}, {reads_unit(reduction)}"
    return f"Monoid({combine}, {identity}, {element}, {accumulate}, {result_dtype}, {finish}, {of_rows})"


def _literal(operand: str) -> Callable[[str], str]:
    """How functions of arrays write a number of the dtype of an operand."""
    return lambda text: f"numerics.number({operand}, {text})"


def _is_one_step(expression: str) -> bool:
    """Return True if NumPy evaluates an expression in one pass, without intermediate arrays to keep in a cache."""
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


_TENSOR_BODIES = {
    "unary": "return self._unary({op})",
    "binary": "return self._binary({op}, other)",
    "cmp": "return self._cmp({op}, other)",
    "reduce": "return self._reduce({op}, dim, keepdim, axis, keepdims)",
}
_TENSOR_PARAMETERS = {
    "unary": "self",
    "binary": "self, other: Self | Array | {number}",
    "cmp": "self, other: Self | Array | {number}",
    # By position, the second names cost a call nothing that leaves them out.
    "reduce": (
        "self, dim: int | Sequence[int] | None = None, keepdim: bool = False, "
        "axis: int | Sequence[int] | None = None, keepdims: bool | None = None"
    ),
}


def _along_dim(name: str, arguments: Sequence[str], *, is_widened: bool = False, is_pair: bool = False) -> str:
    """The statements of a tensor method that calls one of its storage along a dim: frames take long in small calls."""
    of = "of" if is_widened else "self"
    call = ", ".join(["layout", f"layout.shape.dim({quoted(name)}, dim)", *arguments])
    lines = [
        f"if axis is not None: dim = argument.dim_of({quoted(name)}, dim, axis)",
        *([] if is_pair else ["if live_autocasts: (self,) = extensions.widened(self)"]),
        *(["of = self._widened_integers()"] if is_widened else []),
        f"layout = {of}._layout",
        f"{'values, positions' if is_pair else 'output'} = {of}._storage.{name}({call})",
        f"return {of}._like(values), {of}._like(positions)" if is_pair else f"return {of}._like(output)",
    ]
    return "\n        ".join(lines)


def _number_of_row(name: str, arguments: Sequence[str]) -> str:
    """The statements of a tensor method with a number for each row along a dim."""
    call = ", ".join(["layout", "dim", *arguments])
    lines = [
        f"if axis is not None: dim = argument.dim_of({quoted(name)}, dim, axis)",
        "if live_autocasts: (self,) = extensions.widened(self)",
        "layout = self._layout",
        f"dim = layout.shape.dim({quoted(name)}, dim)",
        f"output, *_ = self._storage.{name}({call})",
        "return self._of_each_row(output, dim)",
    ]
    return "\n        ".join(lines)


def tensor_ops(spec: Spec) -> View:
    """The tensor methods of all functors, and the constants that have the functors' members."""
    chosen = [(kind, functor) for kind in spec.functors.values() for functor in kind.chosen]
    methods = [
        View(
            made_from=(functor.location,),
            name=functor.name,
            parameters=_TENSOR_PARAMETERS[kind.name].format(
                number="complex" if has_complex(spec, functor) else "float"
            ),
            returns="Self",
            doc=functor.description,
            body=_TENSOR_BODIES[kind.name].format(op=functor.name.upper()),
        )
        for kind, functor in chosen
        if functor.has_front
    ]
    members = {functor.name.upper(): functor.member for _, functor in chosen}
    has_base = spec.package.base is not None
    # The members of the enums are by the names of constants.
    return View(classes=_classes(spec), members=members, methods=methods, has_base=has_base)


def tensor_methods(spec: Spec) -> View:
    """The tensor methods of the storage methods that say so."""
    methods = []
    for method in spec.storage_methods():
        front = method.tensor
        if front is None:
            continue
        functor = spec.functor(method, None)
        returns = "Self"
        if functor is not None and functor.is_scan:
            options = [name for name in front.arguments if name not in ("dim", "axis")]
            body = _along_dim(method.name, options, is_widened=functor.widened, is_pair=functor.positions)
            returns = "tuple[Self, Self]" if functor.positions else returns
        elif functor is not None and functor.per_row:
            saves = ["self._storage.is_wrapped"] * (SAVES in method.signature.arguments)
            body = _number_of_row(method.name, [*saves, *functor.parameters])
        elif functor is not None and functor.is_of_rows and len(method.operands) == 1:
            body = _along_dim(method.name, [*functor.parameters])
        elif functor is not None and functor.is_of_rows:
            dim_parameters = ", ".join(["dim", "axis", *functor.parameters])
            operands = [f"{name}={name}" for name in functor.operands[1:]]
            arguments = ", ".join([quoted(front.name), f"self._storage.{method.name}", dim_parameters, *operands])
            body = f"return self._of_rows({arguments})"
        elif method.body is not None:
            body = tensor_call(spec, method)
        elif len(method.operands) > 1:
            stored = [operand.name for operand in method.operands]
            numbers = [name for name in front.arguments if name not in stored]
            operands = [f"{name}={name}" for name in front.arguments if name in stored]
            arguments = ", ".join([quoted(front.name), f"self._storage.{method.name}", *numbers, *operands])
            body = f"return self._with_operands({arguments})"
        else:
            storage = f"self._storage.{method.name}({', '.join(['self._layout', *front.arguments])})"
            body = f"return self._like({storage})"
            if functor is not None:
                call = (
                    f"self._storage.{method.name}({', '.join(['layout._ordered or layout.ordered', *front.arguments])})"
                )
                body = f"layout = self._layout\n        return self._preserved({call})"
            if method.results and method.functor is None:
                others = method.signature.arguments[1:]
                names = {"self": "self", **dict(zip(others, front.arguments, strict=False))}
                shape, _ = typed_result(spec, method, method.results[0], dims, names)
                body = f"return self._shaped({storage}, {shape.text})"
        parameters = ", ".join(["self", *map(str, front.parameters)])
        doc = method.doc if functor is None else functor.description
        made_from = (method.location,)
        row = View(made_from=made_from, name=front.name, parameters=parameters, returns=returns, doc=doc, body=body)
        methods.append(row)
    return View(methods=methods)
