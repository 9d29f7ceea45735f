"""Views of the kernels: their HIP sources, and the packers of their arguments."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace as View

from opgen.cache.memo import memoize
from opgen.contraction import MULTIPLY_ADD, contracted, factors_of
from opgen.cpp import camel
from opgen.formula.lowering import ELEMENT
from opgen.formula.nodes import Node
from opgen.formula.nodes import names as names_in
from opgen.gradient_ops import kernel_nodes, row_variants, saved_numbers
from opgen.kernels import FIELD_TYPES, Kernel, KernelFamily, Struct
from opgen.model.functors import Functor, Variant
from opgen.model.reductions import BOUNDS, Monoid, Position, State
from opgen.model.spec import Spec
from opgen.monoids import COUNT, ITSELF, UNIT, is_sum
from opgen.problem import Location
from opgen.row_passes import Passes, passes_of
from opgen.row_values import share_values, stages_of
from opgen.rows import MAX, MIN, POSITION, SUM, element_at, is_joined
from opgen.scopes import Scope, decisive, primitives_of_rows, row_statements, scopes, state_scopes
from opgen.views.kernel_patterns import kernel_rows
from opgen.views.python import comment


def kernel_family(spec: Spec, family: KernelFamily) -> View:
    """The source of a family."""
    functors = spec.functors_of(family)
    # A family of row formulas has reductions of rows; others have monoids.
    of_rows = any(functor.is_of_rows for functor in functors)
    return View(
        made_from=(Location(family.path),),
        doc=family.doc,
        settings={"EARLY": 1} if family.early else {},
        includes="\n".join(f'#include "{it}"' for it in family.headers),
        structs=tuple(_struct(struct) for struct in family.structs),
        functors=tuple(_functor(spec, functor) for functor in functors if functor.formula is not None),
        has_formulas=any(functor.computed is not None for functor in functors),
        rows=tuple(
            _row(spec, variant, family.host)
            for functor in functors
            if functor.is_of_rows or (of_rows and is_joined(functor))
            for variant in row_variants(spec, functor)
        ),
        monoids=() if of_rows else tuple(_monoid(spec, functor, functors) for functor in functors if functor.reduction),
        patterns=tuple(
            View(resident=resident, waves=kernel.waves, kernels=tuple(rows))
            for kernel in family.kernels
            for resident, rows in _by_resident(spec, kernel).items()
        ),
    )


def _by_resident(spec: Spec, kernel: Kernel) -> Mapping[int | None, Sequence[View]]:
    """The kernels of one pattern, by how many blocks of them a multiprocessor of NVIDIA holds."""
    wanted = kernel.resident
    rows: dict[int | None, list[View]] = {}
    for row in kernel_rows(spec, kernel):
        resident = wanted.get(spec.sizes[row.dtype]) if isinstance(wanted, Mapping) else wanted
        rows.setdefault(resident, []).append(row)
    return rows


@memoize(decisive)
def _functor(spec: Spec, functor: Functor) -> View:
    first = ["T"] if functor.condition is None else ["C"]
    types = [*first, *["T"] * (len(functor.operands) - 1), *["P"] * len(functor.parameters)]
    names = [*functor.operands, *functor.parameters]
    formula = scopes(spec, functor)["formula"]
    primitives = [spec.primitives[name] for name in formula.used()]
    is_fast = any(primitive.fast_math for primitive in primitives)
    of_dtype = any(primitive.of_dtype for primitive in primitives)
    steps = formula.steps("kernel", _literal("compute_type<T>"), names if is_fast else None)
    is_bounded = len(functor.operands) == 1 and any(primitive.bounded for primitive in primitives)
    traits = (is_fast, is_bounded, *([True] if of_dtype else []))
    statements = _statements([_body(*step) for step in steps.values()])
    return View(
        made_from=(functor.location,),
        name=camel(functor.name),
        doc=functor.doc,
        operands=_operands(formula, types, names),
        types=", ".join(f"typename {kind}" for kind in ([ELEMENT] if of_dtype else []) + [*dict.fromkeys(types)]),
        traits=", ".join([str(len(functor.parameters)), *map(_cpp_bool, traits)]),
        statements=statements,
    )


# What joins the contributions of the elements of a row.
_ROW_JOINS = {SUM: "JoinSums", MAX: "JoinHighest", MIN: "JoinLowest"}


def row_struct(functor: Functor) -> str:
    """The struct of an op of rows, or of a reduction of a row, whose name other functors may have."""
    return camel(functor.name) + ("" if functor.is_of_rows else "OfRow")


def _passes(spec: Spec, functor: Functor) -> Passes:
    """The passes of an op of rows."""
    return passes_of(kernel_nodes(spec, functor), (*functor.elements, POSITION), _given_numbers(spec, functor))


def _given_numbers(spec: Spec, functor: Functor) -> list[str]:
    """Return the values of a row that are known before its first pass: input numbers, and elements at an index."""
    read = {name for node in kernel_nodes(spec, functor) for name in names_in(node)}
    return [*functor.numbers, *(name for name in map(element_at, functor.operands) if name in read)]


def _at_index(functor: Functor, numbers: Sequence[str]) -> int:
    """Return a bit for each operand whose element at the index is an input."""
    return _bits(element_at(name) in numbers for name in functor.operands)


@memoize(decisive)
def row_facts(spec: Spec, functor: Functor) -> View:
    """Return the facts on which launches of a row op depend."""
    passes, totals = _passes(spec, functor), len(functor.totals)
    _, *variants = row_variants(spec, functor)
    inputs = {name: f"{{{number}}}" for number, name in enumerate((*functor.operands, *functor.parameters))}
    return View(
        made_from=(functor.location,),
        variant=variants[0].name if variants else "",
        results=0 if functor.per_row else len(passes.results) - totals,
        passes=tuple((len(each.joins), len(each.constants)) for each in passes.passes),
        joins=passes.joined(inputs | {COUNT: COUNT, POSITION: POSITION}),
        rescaled=_bits(passes.rescaled),
        absent=tuple(functor.absent.get(name) for name in functor.operands),
        last_dim=functor.last_dim,
        vectors=_bits(name in functor.vectors for name in functor.operands),
        adds_residual=functor.adds_residual,
        totals=totals,
        has_index=functor.index is not None,
        numbers=len(functor.numbers),
        begun=len(passes.begun),
        number_results=len(passes.results) if functor.per_row else 0,
        saved=len(saved_numbers(spec, functor.complete if isinstance(functor, Variant) else functor)),
        at_index=_at_index(functor, _given_numbers(spec, functor)),
    )


@memoize(lambda spec, functor, is_of_host: (*decisive(spec, functor), is_of_host))
def _row(spec: Spec, functor: Functor, is_of_host: bool) -> View:
    """An op of rows as the functor that the engines of rows take.

    The host's has the values that stages share; that of GPUs has products in sums contracted.
    """
    passes = _passes(spec, functor)
    # Each reads elements of the row.
    stages = stages_of(passes)
    read = [{name for node in nodes for name in names_in(node)} for nodes in stages.nodes]
    if is_of_host:
        stages = share_values(passes, (*functor.elements, POSITION), primitives_of_rows(spec))
    inputs = _given_numbers(spec, functor)
    number = {name: f"row.parameters[{index}]" for index, name in enumerate(functor.parameters)}
    number |= {name: f"row.known[{index}]" for index, name in enumerate((*inputs, *passes.known))}
    number |= {COUNT: "row.count"}
    number |= {} if functor.index is None else {functor.index: f"{POSITION} == static_cast<Position>(row.index)"}
    names = (*functor.operands, *(value.name for value in stages.values))
    elements = {name: f"elements[{index}]" for index, name in enumerate(names)}
    number |= elements
    # The type of positions is that of the engine.
    number[POSITION] = f"static_cast<compute_type<T>>({POSITION})"
    known = (*number,)

    def statements(
        targets: Mapping[str, Node], sums: Collection[str] = (), *, are_of_elements: bool = True
    ) -> list[str]:
        """Return what sets each target to a formula; what several have in common is computed once.

        The targets `sums` are added up, which takes their factors.
        """
        contracts = are_of_elements and not is_of_host and MULTIPLY_ADD in primitives_of_rows(spec)
        nodes = [contracted(node) if contracts else node for node in targets.values()]
        # Numbers of a row are few, and elements that are computed of them keep their digits.
        fast_math = () if are_of_elements else None
        factors = [
            factors_of(node) if contracts and name in sums else () for name, node in zip(targets, nodes, strict=True)
        ]
        terms = [part for node, own in zip(nodes, factors, strict=True) for part in own or (node,)]
        parts, lowered = row_statements(
            spec, terms, known, "kernel", _literal("compute_type<T>"), fast_math, functor.index
        )
        texts = iter(lowered)
        used = {name for node in nodes for name in names_in(node)}
        # The op of a reduction divides by the count, where ops of rows multiply by its reciprocal.
        divides = not (are_of_elements or functor.is_of_rows)
        known_texts = number | ({COUNT: "static_cast<compute_type<T>>(row.count)"} if divides else {})
        return [
            *(f"const auto {name} = {text};" for name, text in known_texts.items() if name in used),
            *(f"const auto {name} = {text};" for name, text in parts.items()),
            *(
                f"{target} = {f'product({next(texts)}, {next(texts)})' if own else next(texts)};"
                for target, own in zip(targets, factors, strict=True)
            ),
        ]

    views: list[View] = []
    padding = passes.padding(functor.operands)
    first = len(inputs) + len(passes.begun)
    for each, contributions in zip(passes.passes, stages.nodes, strict=False):
        numbers = [f"numbers[{index}]" for index in range(len(each.joins))]
        next_constant = first + len(each.joins)
        views.append(
            View(
                number=len(views),
                first=first,
                joins=", ".join(_ROW_JOINS[join.kind] for join in each.joins),
                statements=statements(
                    dict(zip(numbers, contributions, strict=True)),
                    [name for name, join in zip(numbers, each.joins, strict=True) if join.kind == SUM],
                ),
                constants=statements(
                    {f"row.known[{next_constant + index}]": node for index, node in enumerate(each.constants.values())},
                    are_of_elements=False,
                )
                if each.constants
                else [],
            )
        )
        first = next_constant + len(each.constants)
    return View(
        made_from=(functor.location,),
        name=row_struct(functor),
        doc=functor.doc,
        operands=len(functor.operands),
        results=0 if functor.per_row else len(passes.results) - len(functor.totals),
        totals=len(functor.totals),
        has_index=functor.index is not None,
        numbers=len(functor.numbers),
        at_index=_at_index(functor, inputs),
        begun=statements(
            {f"row.known[{len(inputs) + index}]": node for index, node in enumerate(passes.begun.values())},
            are_of_elements=False,
        )
        if passes.begun
        else [],
        number_results=len(passes.results) if functor.per_row else 0,
        parameters=len(functor.parameters),
        optional=_bits(name in functor.optional for name in functor.operands),
        absent=_absent(functor),
        adds_residual=functor.adds_residual,
        known=len(inputs) + len(passes.known),
        # A bit for each operand that is read more than once, and that rows do not share.
        in_registers=_bits(
            name not in functor.vectors and sum(name in names for names in read) > 1 for name in functor.operands
        ),
        # A bit for each pass that kernels make together with the one before.
        rescaled=_bits(passes.rescaled),
        has_padding=padding is not None,
        # A bit for each operand that is padded with -inf, not with 0.
        padding=_bits((padding or {}).get(name, 0.0) < 0 for name in functor.operands),
        passes=views,
        pass_count=len(views),
        finished=[each for each in views if each.constants],
        outputs="results + totals" if functor.totals else "results",
        elements="operands + derived" if stages.values else "operands",
        value_count=len(stages.values),
        values=[
            View(stage=value.stage, statements=statements({elements[value.name]: value.node}))
            for value in stages.values
        ],
        reads=_conditional("Stage", [_bits(name in names for name in functor.operands) for names in read])
        if is_of_host
        else "",
        available=" + ".join(f"(Stage >= {value.stage})" if value.stage else "1" for value in stages.values),
        statements=statements(
            {f"outputs[{index}]": node for index, node in enumerate(stages.nodes[-1])},
            are_of_elements=not functor.per_row,
        ),
    )


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << index for index, flag in enumerate(flags) if flag)


def _absent(functor: Functor) -> str:
    """The numbers that stand for operands of an op of rows that are left out, by which operand it is."""
    numbers = [(index, functor.absent[name]) for index, name in enumerate(functor.operands) if name in functor.absent]
    if not numbers:
        return ""
    *others, (_, last) = numbers
    return "".join(f"operand == {index} ? {number}f : " for index, number in others) + f"{last}f"


def _conditional(name: str, values: Sequence[int]) -> str:
    """The value of a number, of which the last value is that of all others."""
    *first, last = values
    return "".join(f"{name} == {number} ? {value} : " for number, value in enumerate(first)) + str(last)


def _body(parts: Mapping[str, str], result: str) -> list[str]:
    return [*(f"const auto {name} = {part};" for name, part in parts.items()), f"return {result};"]


def _statements(bodies: Sequence[list[str]]) -> list[str]:
    """Return the statements that compute a functor: of integers the first of two bodies, of floats the last."""
    *integer, float_ = bodies
    if float_ in integer or not integer:
        return float_
    first, last = ([f"    {line}" for line in body] for body in bodies)
    if len(first) == len(last) == 1:
        return ["if constexpr (is_integer<T>)", *first, "else", *last]
    return ["if constexpr (is_integer<T>) {", *first, "} else {", *last, "}"]


def _literal(kind: str, number: str = "static_cast<{}>({})") -> Callable[[str], str]:
    """How kernels write a number that is computed with in the type `kind`."""
    literals = {"inf": f"infinity<{kind}>()", "-inf": f"-infinity<{kind}>()", "nan": f"not_a_number<{kind}>()"}
    return lambda text: literals.get(text, number.format(kind, text))


_LITERAL = _literal("T")
# The arguments of formulas, by the part of the reduction.
_JOINING = {"element": ("x",), "combine": ("x", "y")}


def kernels_states(spec: Spec) -> View:
    """The structs of states that are several numbers."""
    return View(states=[_state(spec, state) for state in spec.states.values()])


def _state(spec: Spec, state: State) -> View:
    # All types of states are floats, which hold these numbers.
    literal = _literal("Number", "{}{{{}}}")
    texts = {key: scope.expression("kernel", literal).float for key, scope in state_scopes(spec, state).items()}
    return View(
        made_from=(state.location,),
        name=camel(state.name),
        doc=comment(state.doc, mark="//"),
        parts=tuple(part.name for part in state.parts),
        each=f"{{{', '.join(f'function({part.name})' for part in state.parts)}}}",
        element=f"{{{', '.join(texts[f'element {part.name}'] for part in state.parts)}}}",
        let=tuple((name, texts[f"let {name}"]) for name in state.let),
        combined=tuple((part.name, texts[f"combine {part.name}"]) for part in state.parts),
        has_unit=state.unit is not None,
        results=[(key, texts[key]) for key in ("result", UNIT) if key in texts],
    )


def _monoid(spec: Spec, functor: Functor, others: Sequence[Functor]) -> View:
    """A reduction in C++: the functions of its formulas, and its type, which joins as the first alike of `others`."""
    reduction, struct = functor.reduction, f"{camel(functor.name)}Formulas"
    functions: list[View] = []
    if isinstance(reduction, Position):
        extreme = spec.functor_kind("reduce").by_name[reduction.of].reduction
        joins = f"IndexReduction<T, {_cpp_bool(isinstance(extreme, Monoid) and extreme.identity == 'highest')}>"
    else:
        assert reduction is not None
        own = scopes(spec, functor)
        types = ", ".join(["T", spec.cpp_types.get(functor.result or "", "T")])
        wide = spec.cpp_types.get(reduction.accumulate or "")
        number = [wide] if wide else []
        other = next(item for item in others if item is functor or _joins_alike(item, functor))
        if reduction.state is not None:
            joins = f"StateReduction<{', '.join([camel(reduction.state), types, *number])}>"
        elif other is not functor:
            joins = f"typename {camel(other.name)}<T>::Joining"
        else:
            identity = f"{reduction.identity}<T>()" if reduction.identity in BOUNDS else _LITERAL(reduction.identity)
            functions.append(View(name="identity", operands="", statements=[f"return {identity};"]))
            functions += [_function(own[key], key, names) for key, names in _JOINING.items() if key in own]
            joins = f"ValueReduction<{', '.join([struct, types, *number])}>"
            if reduction.identity in BOUNDS and types == "T, T" and not number and reduction.element is None:
                joins = f"ExtremeReduction<{struct}, T, {_cpp_bool(reduction.identity == 'highest')}>"
        if functor.is_scan:
            scan = "RunningSum" if is_sum(reduction) else "Scan"
            joins = f"{'ScanWithPositions' if functor.positions else scan}<{joins}>"
            if reduction.finish is not None:
                functions.append(_function(own["finish"], "finish", ("x", ITSELF, COUNT)))
                joins = f"FinishedScan<{joins}, {struct}>"
        elif reduction.finish is not None:
            functions.append(_function(own["finish"], "finish", ("x", COUNT, UNIT, *functor.parameters)))
            parameters = [str(len(functor.parameters))] if functor.parameters else []
            joins = f"FinishedReduction<{', '.join([joins, struct, *parameters])}>"
    name, location = camel(functor.name), functor.location
    return View(made_from=(location,), name=name, doc=functor.doc, functions=functions, struct=struct, type=joins)


def _function(formula: Scope, name: str, operands: Sequence[str]) -> View:
    """A formula as a function of numbers."""
    return View(
        name=name,
        operands=_operands(formula, ["T"] * len(operands), operands),
        statements=_statements([[f"return {text};"] for text in formula.expression("kernel", _LITERAL).texts]),
    )


def _operands(formula: Scope, types: Sequence[str], names: Sequence[str]) -> str:
    # A formula may not depend on all of them, as the gradient of one operand on another.
    read = names_in(formula.formula.node)
    return ", ".join(
        f"{'' if name in read else '[[maybe_unused]] '}{kind} {name}" for kind, name in zip(types, names, strict=True)
    )


def _joins_alike(x: Functor, y: Functor) -> bool:
    """Whether two reductions differ at most in what they make of all contributions."""
    one, other = x.reduction, y.reduction
    return (
        isinstance(one, Monoid)
        and isinstance(other, Monoid)
        and x.result == y.result
        and replace(one, finish=None) == replace(other, finish=None)
    )


def _cpp_bool(value: bool) -> str:
    return "true" if value else "false"


@cache
def _struct(struct: Struct) -> View:
    fields = [
        f"{FIELD_TYPES[field.type][0]} {field.name}{f'[{field.length}]' if field.length else ''};"
        for field in struct.fields
    ]
    text = "\n    ".join(fields)
    return View(made_from=(struct.location,), name=struct.name, fields=text, size=struct.offsets()[-1])
