"""Both sides of a launch as templates see them: packers of structs, constants and traits of dtypes."""

import textwrap
from collections.abc import Sequence
from types import SimpleNamespace as View

from opgen.cpp import camel, snake
from opgen.gradient_ops import row_variants
from opgen.kernels import FIELD_TYPES, ITEM_TYPES, Field, FieldGroup, Member, Struct, TupleType
from opgen.model.kinds import JOINT_KIND, ROW, ROW_GRADIENT
from opgen.model.spec import Spec
from opgen.rows import is_joined
from opgen.views.kernels import row_facts, row_struct
from opgen.views.python import comment


def kernels_arguments(spec: Spec) -> View:
    """The packers of all structs of kernels for GPUs."""
    return _arguments(spec, host=False)


def kernels_host_arguments(spec: Spec) -> View:
    """The packers of all structs of kernels for the host, and the tuples that make plans of these."""
    return _arguments(spec, host=True)


kernels_tuples = kernels_host_arguments


def _arguments(spec: Spec, *, host: bool) -> View:
    families = [family for family in spec.kernels if family.host == host]
    structs = [struct for family in families for struct in family.structs]
    used = {member.group: member for struct in structs for member in struct.members if member.group}
    base = spec.package.base
    return View(
        lacks=base
        and not host
        and "no kernels take these; name their family in 'kernels' of 'base', or write it to spec/kernels",
        groups=[_group(group, used[group.name].fields) for group in spec.field_groups if group.name in used],
        packers=list(map(_packer, structs)),
        # By family, the number of them that fit in a struct.
        parameters={family.name: spec.max_parameters(family) for family in families if family.kinds},
        # What backends have them compiled for.
        targets=[
            target
            for backend in spec.backends
            if backend.code_objects is not None and backend.code_objects.host == host
            for target in backend.code_objects.targets
        ],
        families={family.name: tuple(family.needs) for family in families if family.kernels},
        cooperative=[family.name for family in families if family.cooperative],
        tuples=list(map(_tuple, spec.tuples)),
    )


def kernels_constants(spec: Spec) -> View:
    """The numbers and names that kernels and their launchers share."""
    rows = []
    for constant in spec.constants:
        name, doc, value = constant.name, constant.doc, constant.value
        # Of a number for each size of an element in bytes.
        by_bytes = [] if isinstance(value, int) else list(value.items())
        in_cpp = comment(doc, mark="//")
        made_from = (constant.location,)
        rows.append(View(made_from=made_from, name=name, python_name=name.upper(), doc=doc, comment=in_cpp,
                         value=value, by_bytes=by_bytes))  # fmt: skip
    every = [kind for kind in spec.functors.values() if kind.name not in (ROW, ROW_GRADIENT)]
    most = max((kind.max_operands for kind in every), default=1) + max((kind.max_results for kind in every), default=1)
    kinds = [
        kind
        for kind in spec.functors.values()
        if kind.name != JOINT_KIND and all(functor.formula is not None for functor in kind.functors)
    ]
    names = {kind.name for kind in kinds}
    of_rows = [it for functor in spec.every_functor if functor.is_of_rows for it in row_variants(spec, functor)]
    reductions = [functor for functor in spec.reductions if of_rows and is_joined(functor)]
    return View(
        max_rank=spec.package.max_rank,
        max_operands=most,
        constants=rows,
        structs={
            **{functor.name: camel(functor.name) for kind in kinds for functor in kind.functors},
            **{functor.name: row_struct(functor) for functor in (*of_rows, *reductions)},
        },
        row_tables=[
            View(name=name, doc=doc, rows={functor.name: row_facts(spec, functor) for functor in functors})
            for name, functors, doc in (
                ("ROWS", of_rows, "By op of rows, what its launches depend on."),
                ("ROW_REDUCTIONS", reductions, "By reduction, the same of its formula in row formulas."),
            )
        ],
        widths={name: cpp for name, (cpp, _) in spec.widths.items()},
        # The storage methods that compute elementwise ops.
        methods=[
            method.name
            for method in spec.storage_methods()
            if method.kind in names and method.signature.returns != "None"
        ],
    )


def kernels_dtypes(spec: Spec) -> View:
    """The C++ types of the dtypes, and their traits."""
    types = spec.cpp_types
    rows = []
    for dtype in spec.dtypes:
        compute = types[dtype.compute]
        is_signed = "true" if dtype.kind == "signed" else "false"
        wrap = f"uint{8 * dtype.bytes}_t"
        traits = f"{'TruthTraits' if dtype.kind == 'bool' else 'FloatTraits'}<{compute}>"
        if dtype.is_integer:
            traits = f"IntegerTraits<{dtype.cpp}, {compute}, {wrap}, {is_signed}>"
        it = dtype.format
        rows.append(
            View(
                made_from=(dtype.location,),
                cpp=dtype.cpp,
                format=f"{it.exponent}, {it.fraction}, {it.bias}, Specials::{it.specials or 'ieee'}"
                if it and it.bits < 32
                else "",
                is_multiplicand="true" if dtype.multiplicand else "false",
                traits=traits,
            )
        )
    return View(dtypes=rows)


def _group(group: FieldGroup, fields: Sequence[Field]) -> View:
    rows = [f"{field.name}: {FIELD_TYPES[field.type][3]}" for field in fields]
    has_arrays = any(field.length for field in fields)
    made_from = (group.location,)
    return View(made_from=made_from, name=camel(group.name), doc=group.doc, fields=[] if has_arrays else rows)


def _tuple(described: TupleType) -> View:
    rows = []
    for index, (name, (kind, _)) in enumerate(described.items.items()):
        record = f"{camel(kind.strip('[]'))}Items"
        cpp, read, python = ITEM_TYPES.get(kind, (f"List<{record}>", f"List<{record}>({{}})", f"tuple[{record}, ...]"))
        item = read.format(f"PyTuple_GetItem(items, {index})")
        rows.append((f"{name}: {python}", f"{cpp} {name} = {item};"))
    doc = described.doc
    name, made_from = f"{camel(described.name)}Items", (described.location,)
    return View(made_from=made_from, name=name, doc=doc, comment=comment(doc, mark="//"), items=rows)


def _packer(struct: Struct) -> View:
    text = "="
    end = 0
    offsets = struct.offsets()
    for field, offset in zip(struct.fields, offsets, strict=False):
        text += "x" * (offset - end) + (str(field.length) if field.length else "") + FIELD_TYPES[field.type][1]
        end = offset + field.size * (field.length or 1)
    text += "x" * (offsets[-1] - end)
    name = snake(struct.name)
    parameters = ["*", *map(_parameter, struct.members)]
    values = [member.name if member.is_number else f"*{member.name}" for member in struct.members]
    # Before them are `def name(` and `return KernelArguments(NAME, (`, after them `) -> KernelArguments:`.
    return View(
        made_from=(struct.location,),
        name=name,
        constant=name.upper(),
        parameters=_filled(parameters, len(name) + 5),
        values=_filled(values, len(name) + 30),
        format=text,
    )


def _parameter(member: Member) -> str:
    if member.group:
        return f"{member.name}: {camel(member.group)}"
    kind = FIELD_TYPES[member.fields[0].type][3] if member.fields else "Number"
    return f"{member.name}: {kind if member.is_number else f'Sequence[{kind}]'}"


def _filled(items: Sequence[str], column: int) -> str:
    """Return items separated by commas, wrapped from a column on."""
    text = ", ".join(items).replace(": ", ":\N{NO-BREAK SPACE}")
    filled = textwrap.fill(text, 99, initial_indent=" " * column, subsequent_indent=" " * 8)
    return filled[column:].replace("\N{NO-BREAK SPACE}", " ")
