"""The gradients of ops that take several steps, as ops of their own: one kernel each, rounded once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from opgen.cache.memo import memoize
from opgen.formula.formula import Formula
from opgen.formula.kinds import kind_of
from opgen.formula.nodes import (
    ADD,
    BOTH,
    INCOMING,
    RESULT,
    Call,
    FormulaError,
    Kind,
    Name,
    Node,
    Number,
    calls,
    inlined,
    is_zero,
    names,
    size,
    total_of,
    without_total,
)
from opgen.formula.primitives import Primitive, Primitives
from opgen.formula.simplification import simplified
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor, Variant
from opgen.model.kinds import GRADIENT_KINDS, JOINT_KIND, RESIDUAL, ROW, ROW_GRADIENT
from opgen.model.operands import RowOperand
from opgen.model.reductions import Monoid
from opgen.model.spec import Spec
from opgen.monoids import COUNT
from opgen.names import Names
from opgen.op_search import by_size, computing, is_step
from opgen.problem import Problems
from opgen.row_derivatives import row_gradients, with_joint_factors
from opgen.rows import POSITION, SUM, replaced, row_constants, with_elements_at, with_sums_of_constants
from opgen.scopes import decisive, derivatives, is_differentiable, joined_results, primitives_of_rows, row_kinds, scopes

# What an op that is a gradient calls that of the result, and the result: its own gradients and result are others.
GRADIENT = "gradient"
_NAMES = {INCOMING: GRADIENT, RESULT: "output"}
# What a functor calls what such an op takes.
TAKEN = {name: taken for taken, name in _NAMES.items()}
# The kind that has those of reductions, once what they have for each result alone is known: functions of that, of an
# element and of the result.
_OF_REDUCTIONS = "binary_gradient"
# The name in such an op of the result, where that is another value that the elements share.
_ROW = "y"
# The suffix of the op of a row op's gradients.
GRADIENT_ENDING = "_gradient"
# The ending of the names of ops of rows that compute gradients of reductions.
OF_REDUCTION = "_row_gradient"
# The suffix of the op of both gradients.
JOINT = "_gradients"


@memoize(lambda spec: (spec.primitives, spec.known_dtypes, spec.package, *spec.functors.values()), size=4)
def with_gradients(spec: Spec) -> dict[str, FunctorKind]:
    """Return the kinds of functors, with the derived gradients."""
    kinds = dict(spec.functors)
    for name, of in GRADIENT_KINDS.items():
        known = [kinds[kind] for kind in of if kind in kinds]
        if name in kinds and known:
            own: list[Functor] = []
            ops = dict(by_size(spec.every_functor))
            for functor in (functor for kind in known for functor in kind.functors):
                own += (
                    _joint(spec, kinds[name], functor)
                    if name == JOINT_KIND
                    else _gradients(spec, kinds[name], functor, ops)
                )
            if name == _OF_REDUCTIONS:
                for functor in spec.reductions:
                    own += _of_elements(spec, kinds[name], functor, ops)
            kinds[name] = replace(kinds[name], functors=tuple(own))
    if ROW in kinds and ROW_GRADIENT in kinds:
        row_kind = kinds[ROW_GRADIENT]
        of_rows = [gradient for functor in kinds[ROW].functors for gradient in _of_row(spec, functor)]
        of_rows += [op for functor in spec.reductions for op in _of_reduction(spec, kinds[ROW], functor)]
        kinds[ROW_GRADIENT] = replace(row_kind, functors=tuple(of_rows))
    return kinds


def row_gradient_sources(spec: Spec, functor: Functor) -> Mapping[str, int | str | None]:
    """By operand of an op of rows, which result of its gradient op the operand's gradient is: a number, or `g` itself.

    None where the gradient is 0.
    """
    indexes = {operand: index for index, operand in enumerate(row_results(spec, functor))}
    return {
        operand: indexes.get(operand, INCOMING if node == Name(INCOMING) else None)
        for operand, node in _found(spec, functor).items()
    }


def row_results(spec: Spec, functor: Functor) -> dict[str, Node]:
    """By operand of an op of rows, the results of its gradient op: those of elements, then the sums over all rows."""
    gradients = _found(spec, functor)
    of_elements: dict[str, Node] = {
        name: node for name, node in gradients.items() if name not in functor.vectors and isinstance(node, Call)
    }
    if functor.adds_residual and functor.operands[0] in of_elements:
        first = functor.operands[0]
        of_elements[first] = Call(ADD, (of_elements[first], Name(RESIDUAL)))
    if functor.per_row:
        varying = (*functor.elements, POSITION)
        of_elements = {name: with_joint_factors(node, varying) for name, node in of_elements.items()}
    # Kernels with numbers of rows have no sums over rows.
    vectors = () if functor.per_row else functor.vectors
    totals = {name: total_of(node, name) for name, node in gradients.items() if name in vectors and not is_zero(node)}
    return {**of_elements, **totals}


def of_vectors(spec: Spec, functor: Functor) -> Mapping[str, Node]:
    """By vector of an op with a number for each row, what elements add to its gradient."""
    return {name: node for name, node in _found(spec, functor).items() if functor.per_row and name in functor.vectors}


def saved_numbers(spec: Spec, functor: Functor) -> Mapping[str, Node]:
    """By name, the numbers of each row that an op of rows gives for its gradient: those that this reads."""
    if not functor.per_row:
        return {}
    varying = (*functor.elements, POSITION)
    nodes = [
        constant
        for node in row_results(spec, functor).values()
        for constant in row_constants(node, varying, (INCOMING,))
    ]
    return {f"saved_{number}": node for number, node in enumerate(dict.fromkeys(nodes), 1)}


def row_nodes(spec: Spec, functor: Functor) -> tuple[Node, ...]:
    """Return what an op of rows computes: its results, and the numbers of each row that it saves for its gradient.

    In the variant without optional operands, the numbers that stand for these are constants.
    """
    complete = functor.complete if isinstance(functor, Variant) else functor
    nodes = (*joined_results(spec, complete), *saved_numbers(spec, complete).values())
    if isinstance(functor, Variant):
        numbers = {name: Number(number) for name, number in complete.absent.items() if number is not None}
        varying = (*functor.elements, POSITION)
        nodes = tuple(simplified(with_sums_of_constants(inlined(node, numbers), varying)) for node in nodes)
    return nodes


def kernel_nodes(spec: Spec, functor: Functor) -> tuple[Node, ...]:
    """The nodes as kernels compute them: an element that an index names is a number of the row."""
    nodes = row_nodes(spec, functor)
    if functor.index is None:
        return nodes
    return tuple(with_elements_at(node, functor.index, functor.operands) for node in nodes)


def row_variants(spec: Spec, functor: Functor) -> Sequence[Functor]:
    """An op of rows, and its variant without optional operands if it has one and its elements are computed of these."""
    read = {name for node in kernel_nodes(spec, functor) for name in names(node)}
    return functor.variants if read.intersection(functor.optional) else (functor,)


def op_of_numbers(spec: Spec, functor: Functor) -> Functor | None:
    """Return the op with a number for each row whose gradient op a functor is; None of another functor."""
    if functor.kind != ROW_GRADIENT or not functor.numbers:
        return None
    return spec.functor_kind(ROW).by_name[functor.name.removesuffix(GRADIENT_ENDING)]


@memoize(lambda spec, functor: decisive(spec, functor))
def second_gradients(spec: Spec, functor: Functor) -> Mapping[str, Node]:
    """The gradients of the gradient op of an op with a number for each row: of its elements, and of its `gradient`."""
    operands = (*functor.operands, GRADIENT)
    (node,) = row_results(spec, functor).values()
    varying = (*functor.elements, POSITION, INCOMING)
    gradients = row_gradients(inlined(node, {INCOMING: Name(GRADIENT)}), operands, primitives_of_rows(spec), varying)
    # The op is linear in it, and all elements of the row share it.
    return {**gradients, GRADIENT: simplified(Call(SUM, (gradients[GRADIENT],)))}


def row_gradient_name(functor: Functor) -> str:
    """Return the name of the op that computes the gradients of an op of rows."""
    return f"{functor.name}{GRADIENT_ENDING}"


@memoize(lambda spec, functor: decisive(spec, functor))
def _of_row(spec: Spec, functor: Functor) -> Sequence[Functor]:
    """The op that gives the gradients of an op of rows, all in one kernel."""
    results = row_results(spec, functor)
    if not results:
        return ()
    node: Node = Call(BOTH, tuple(results.values())) if len(results) > 1 else next(iter(results.values()))
    doc = f"the gradient of {' and '.join(results)} in {functor.name}, of `gradient`, which is that of its result"
    computed: Node = Call(BOTH, tuple(map(without_total, results.values())))
    takes = [*_taken(functor, computed), *[RESIDUAL] * functor.adds_residual]
    name = row_gradient_name(functor)
    if functor.per_row:
        saved = saved_numbers(spec, functor)
        node = replaced(node, {constant: Name(name) for name, constant in saved.items()})
        read = names(node)
        vectors = [name for name in functor.vectors if name in read]
        takes = [functor.operands[0], *vectors, INCOMING, *saved, *filter(None, [functor.index])]
    return (_op(spec, functor, name, ROW_GRADIENT, functor.unsupported, node, takes, {}, doc),)


@memoize(lambda spec, kind, functor: (kind, *decisive(spec, functor)))
def _of_reduction(spec: Spec, kind: FunctorKind, functor: Functor) -> Sequence[Functor]:
    """Return the op of rows that gives the gradient of a reduction, where it reduces the elements again.

    Such are the gradients of what has a formula in rows. Where they need the result the op computes it again, as it was
    before it was rounded; results that are not rounded are at hand.
    """
    monoid = functor.reduction
    if not isinstance(monoid, Monoid) or monoid.row is None or "x" not in functor.gradient:
        return ()
    gradient = _found(spec, functor).get("x")
    if gradient is None or is_step(gradient):
        return ()
    node = inlined(gradient, {RESULT: monoid.row.node})
    doc = f"the gradient of x in {functor.name} of rows, of `gradient`, which is that of the result of each row"
    op = _op(spec, functor, f"{functor.name}{OF_REDUCTION}", ROW_GRADIENT, kind.unsupported, node, ["x"], {}, doc)
    of_rows = {dtype for each in kind.functors for dtype in spec.resolve(each.dtypes)}
    of_rows -= {dtype.name for dtype in spec.dtypes if RESULT in names(gradient) and dtype.compute == dtype.name}
    own = tuple(dtype for dtype in spec.resolve(op.dtypes) if dtype in of_rows)
    # Columns take less time op by op.
    return (replace(op, last_dim=True, dtypes=Names(own, (functor.location,) * len(own), listed=True)),)


def row_gradients_of_reductions(spec: Spec) -> list[tuple[str, str]]:
    """Return the reductions whose gradients ops of rows compute, each with its op, as Python names them."""
    ops = {functor.name: functor.member for functor in spec.every_functor if functor.kind == ROW_GRADIENT}
    of = [(functor.member, ops.get(f"{functor.name}{OF_REDUCTION}")) for functor in spec.reductions]
    return [(member, op) for member, op in of if op is not None]


def rows_of(node: Node, operand: str, reductions: Collection[str]) -> tuple[dict[str, Node], Node]:
    """Return the row-wise parts of a reduction's gradient, by their names in the remainder."""
    rows: dict[Node, str] = {}

    def is_of_rows(node: Node) -> bool:
        if isinstance(node, Call):
            return node.primitive in reductions or all(map(is_of_rows, node.arguments))
        return node != Name(operand)

    def rest_of(node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        if is_of_rows(node):
            return Name(rows.setdefault(node, f"row_{len(rows) + 1}"))
        return replace(node, arguments=tuple(map(rest_of, node.arguments)))

    remainder = rest_of(node)
    return {name: part for part, name in rows.items()}, remainder


def primitives_by_ops(spec: Spec) -> Primitives:
    """The primitives, with one of the gradients that are ops as that of each function of one operand that has such."""
    ops = [functor for functor in spec.every_functor if functor.is_gradient and not functor.is_method]
    return _by_ops(spec.primitives, ops)


@memoize(lambda primitives, gradients: (primitives, *gradients), size=1)
def _by_ops(primitives: Primitives, gradients: Sequence[Functor]) -> Primitives:
    inlinable, ops = dict(primitives), by_size(gradients)
    for primitive in primitives.values():
        node = primitive.gradient_of(primitive.parameters[0]) if len(primitive.parameters) == 1 else None
        op = None if node is None or is_step(node) else computing(simplified(node), ops, ())
        if op is not None:
            inlinable[primitive.name] = _by_op(primitive, *op)
    return Primitives(inlinable)


@memoize(lambda primitive, functor, others: (primitive, functor, *others))
def _by_op(primitive: Primitive, functor: Functor, operands: Sequence[str]) -> Primitive:
    """Return a primitive whose gradient is an op of `operands`."""
    formula = Formula(Call(functor.name, tuple(map(Name, operands))), functor.location)
    return replace(primitive, gradient={primitive.parameters[0]: formula}, let={})


def _gradients(spec: Spec, kind: FunctorKind, functor: Functor, ops: dict[int, Sequence[Functor]]) -> Iterator[Functor]:
    """The gradients of a functor that no step, and none of `ops`, computes; `ops` has them afterwards."""
    for node, step in _of_several_steps(spec, kind.name, kind.unsupported, functor):
        if computing(node, ops, functor.parameters) is None:
            ops[size(node)] = [*ops.get(size(node), ()), step]
            yield step


def _joint(spec: Spec, kind: FunctorKind, functor: Functor) -> Iterator[Functor]:
    """Return the op that gives the gradients of both operands of a functor, if each takes a kernel."""
    return iter(_of_both(spec, kind.name, kind.unsupported, functor))


@memoize(lambda spec, kind, unsupported, functor: (kind, unsupported, *decisive(spec, functor)))
def _of_both(spec: Spec, kind: str, unsupported: str, functor: Functor) -> Sequence[Functor]:
    """The op of both gradients, if there is one."""
    gradients = _found(spec, functor)
    # No kernel writes 0, or what is there already.
    if [type(node) for node in gradients.values()] != [Call, Call]:
        return ()
    both: Node = Call(BOTH, tuple(gradients.values()))
    capacity = len(functor.operands)
    if len(_taken(functor, both)) > capacity and functor.formula is not None:
        # To compute the result again takes less time than to read it.
        both = inlined(both, {RESULT: functor.formula.node})
    takes = _taken(functor, both)
    if not functor.is_method:
        takes = _padded(functor, takes, capacity)
    doc = f"the gradients of {' and '.join(gradients)} in {functor.name}, of `gradient`, which is that of its result"
    return (_op(spec, functor, f"{functor.name}{JOINT}", kind, unsupported, both, takes, {}, doc),)


def _taken(functor: Functor, node: Node) -> list[str]:
    """The operands that a gradient depends on, and the result."""
    return [name for name in (*functor.operands, RESULT) if name in names(node)]


def _of_elements(
    spec: Spec, kind: FunctorKind, functor: Functor, ops: dict[int, Sequence[Functor]]
) -> Iterator[Functor]:
    """The gradient of the elements of a reduction, where more than a choice is left for each and no op computes it."""
    problems = Problems()
    for scope in scopes(spec, functor).values():
        scope.check(problems)
    if problems or not is_differentiable(spec, functor):
        return
    try:
        (node,) = derivatives(spec, functor).values()
    except FormulaError:
        return
    rows, remainder = rows_of(node, functor.operands[0], [it.name for it in spec.reductions])
    of_gradient = [name for name, row in rows.items() if INCOMING in names(row)]
    others = [name for name in rows if name not in of_gradient]
    takes = [*functor.operands, *(others or [RESULT])]
    # As one op it is no launch fewer where it is one besides what the rows have too.
    own_calls = {*calls(remainder)}.difference(*map(calls, rows.values()))
    is_left = {*names(remainder)} == {*of_gradient, *takes} and len(own_calls) > 1
    if len(of_gradient) == 1 and len(others) < 2 and is_left and computing(remainder, ops, ()) is None:
        own = inlined(remainder, {of_gradient[0]: Name(INCOMING), **dict.fromkeys(others, Name(_ROW))})
        takes = [*functor.operands, _ROW if others else RESULT]
        doc = f"the gradient of {functor.operands[0]} in {functor.name}, of what `gradient` is for each result"
        gradients = {GRADIENT: _renamed(functor, own, INCOMING)}
        op = _op(spec, functor, f"{functor.name}_gradient", kind.name, kind.unsupported, own, takes, gradients, doc)
        ops[size(remainder)] = [*ops.get(size(remainder), ()), op]
        yield op


def _padded(functor: Functor, takes: Sequence[str], capacity: int) -> list[str]:
    """Return the operands that an op uses, padded with others to the number that its kind takes."""
    return [*takes, *[name for name in functor.operands if name not in takes][: capacity - len(takes)]]


@memoize(lambda spec, kind, unsupported, functor: (kind, unsupported, *decisive(spec, functor)))
def _of_several_steps(spec: Spec, kind: str, unsupported: str, functor: Functor) -> Sequence[tuple[Node, Functor]]:
    """The gradients of a functor that are no step, each as a formula and as a functor."""
    steps, capacity = [], len(functor.operands)
    for operand, node in _found(spec, functor).items():
        takes = _taken(functor, node)
        if is_step(node) or len(takes) > capacity:
            continue
        takes = _padded(functor, takes, capacity)
        name = f"{functor.name}_gradient" + ("" if len(functor.operands) == 1 else f"_{operand}")
        # It is linear.
        own = {GRADIENT: _renamed(functor, node, INCOMING)}
        doc = f"the gradient of {operand} in {functor.name}, of `gradient`, which is that of its result"
        steps.append((node, _op(spec, functor, name, kind, unsupported, node, takes, own, doc)))
    return steps


def _renamed(functor: Functor, node: Node, incoming: str) -> Node:
    """A gradient over what the op that computes it calls its operands."""
    own = {name: Name(_NAMES.get(name, name)) for name in (RESULT, *functor.operands)}
    return inlined(node, {**own, INCOMING: Name(incoming)})


def _op(
    spec: Spec,
    functor: Functor,
    name: str,
    kind: str,
    unsupported: str,
    node: Node,
    takes: Sequence[str],
    gradients: Mapping[str, Node],
    doc: str,
) -> Functor:
    """The op that computes gradients of a functor."""
    known, location = names(node), functor.location
    # A condition is the storage whose method it is.
    taken = (INCOMING, *takes) if functor.condition is None else (*takes, INCOMING)
    if functor.per_row:
        taken = tuple(takes)
    return replace(
        functor,
        name=name,
        kind=kind,
        reduction=None,
        of_rows=_row_operands(functor, taken) if kind == ROW_GRADIENT else (),
        adds_residual=False,
        per_row=False,
        named=tuple(_NAMES.get(it, it) for it in taken),
        parameters=dict.fromkeys(it for it in functor.parameters if it in known),
        let={},
        written=Formula(_renamed(functor, node, GRADIENT), location),
        gradients={operand: Formula(it, location) for operand, it in gradients.items()},
        doc=doc,
        dtypes=_floats(spec, functor),
        note=None,
        examples={},
        edges=(),
        unsupported=unsupported,
        tensor=False,
    )


def _row_operands(functor: Functor, taken: Sequence[str]) -> tuple[RowOperand, ...]:
    """The operands of the gradient op of an op of rows: a number stands for one that is left out in both ops."""
    own = {operand.name: replace(operand, absent=functor.absent.get(operand.name)) for operand in functor.of_rows}
    own[RESIDUAL] = RowOperand(RESIDUAL, True, False, functor.location, -0.0)
    others = {
        name: RowOperand(_NAMES.get(name, name), False, False, functor.location, is_number=functor.per_row)
        for name in taken
    }
    if functor.per_row:
        first = functor.operands[0]
        own.setdefault(first, RowOperand(first, False, False, functor.location))
    return tuple(own.get(name, others[name]) for name in taken)


def _found(spec: Spec, functor: Functor) -> Mapping[str, Node]:
    """The gradients of a functor; none where something is wrong with them or with it, which is noted elsewhere."""
    problems = Problems()
    own = scopes(spec, functor)
    for scope in own.values():
        scope.check(problems)
    if problems or not is_differentiable(spec, functor):
        return {}
    try:
        gradients = derivatives(spec, functor)
        known = (*functor.operands, *functor.parameters, INCOMING, RESULT, COUNT, POSITION)
        has_rows = functor.is_of_rows or functor.reduction is not None
        primitives = primitives_of_rows(spec) if has_rows else spec.primitives
        kinds: dict[str, Kind] = dict.fromkeys(known, "float")
        for node in gradients.values():
            kind_of(node, {**kinds, **row_kinds(functor)} if functor.is_of_rows else kinds, primitives)
    except FormulaError:
        return {}
    if functor.per_row:
        # The gradient reads saved numbers of the row, from which the result may be computed.
        formula, *_ = joined_results(spec, functor)
        return {name: inlined(node, {RESULT: formula}) for name, node in gradients.items()}
    return gradients


def _floats(spec: Spec, functor: Functor) -> Names:
    """The dtypes of floats that a functor has."""
    floats = spec.groups["float"]
    own = tuple(name for name in spec.resolve(functor.dtypes) if name in floats)
    texts = ("float",) if own == floats else own
    return Names(texts, (functor.location,) * len(texts), listed=own != floats)
