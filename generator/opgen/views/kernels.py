"""Views of the kernels: their HIP sources, and the packers of their arguments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opgen.kernels import FIELD_TYPES, Kernel, Struct
from opgen.model import FUNCTOR_OPERANDS, Expression, Spec
from opgen.views.python import comment

# Threads of a block, for every kernel.
_BLOCK = 256


@dataclass(frozen=True)
class StructRow:
    """A struct in C++."""

    name: str
    fields: str  # a declaration a line
    size: int
    offsets: str  # a check of each field's place a line


@dataclass(frozen=True)
class FunctorRow:
    """A functor in C++."""

    name: str
    doc: str
    parameters: str
    body: str


@dataclass(frozen=True)
class KernelRow:
    """One kernel."""

    name: str
    arguments: str
    call: str


@dataclass(frozen=True)
class FamilyView:
    """One family's HIP source."""

    doc: str
    includes: str
    structs: tuple[StructRow, ...]
    functors: tuple[FunctorRow, ...]
    block: int
    kernels: tuple[KernelRow, ...]


def kernel_family(spec: Spec, member: str | None) -> FamilyView:
    """The HIP source of the family named `member`."""
    family = next(family for family in spec.kernels if family.name == member)
    functors = spec.functors[family.functors].functors if family.functors else ()
    parameters = ", ".join(f"T {operand}" for operand in FUNCTOR_OPERANDS.get(family.functors or "", ()))
    return FamilyView(
        doc=family.doc,
        includes="\n".join(f'#include "{header}"' for header in family.headers),
        structs=tuple(_struct(struct) for struct in family.structs),
        functors=tuple(
            FunctorRow(_camel(functor.name), functor.doc, parameters, _body(functor.hip)) for functor in functors
        ),
        block=_BLOCK,
        kernels=tuple(row for kernel in family.kernels for row in kernel_rows(spec, kernel)),
    )


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _struct(struct: Struct) -> StructRow:
    offsets = struct.offsets()
    fields = [
        f"{FIELD_TYPES[field.type][0]} {field.name}{f'[{field.length}]' if field.length else ''};"
        for field in struct.fields
    ]
    checks = [
        f"TALLOW_CHECK_OFFSET({struct.name}, {field.name}, {offset});"
        for field, offset in zip(struct.fields, offsets, strict=False)
    ]
    return StructRow(struct.name, "\n    ".join(fields), offsets[-1], "\n".join(checks))


def _body(expression: Expression) -> str:
    """The statements of a functor, the first without its indentation."""
    if not expression.is_split:
        return f"return {expression.float};"
    branches = (
        "if constexpr (is_integer<T>)",
        f"    return {expression.integer};",
        "else",
        f"    return {expression.float};",
    )
    return "\n        ".join(branches)


def kernel_rows(spec: Spec, kernel: Kernel) -> Iterator[KernelRow]:
    """Every kernel of one pattern."""
    types = {dtype.name: dtype.cpp for dtype in spec.dtypes} | dict(spec.widths)
    for chosen in _choices(spec, kernel.over, {}):
        spelled = {axis: types.get(value, value) for axis, value in chosen.items()}
        if "op" in chosen:
            kind = spec.functors[kernel.over["op"][0]]
            functor = next(functor for functor in kind.functors if functor.name == chosen["op"])
            spelled["op"] = functor.hip.float if kind.name == "reduce" else _camel(functor.name)
        yield KernelRow(kernel.name.format(**chosen), kernel.arguments, kernel.call.format(**spelled))


def _choices(spec: Spec, over: Mapping[str, tuple[str, ...]], chosen: dict[str, str]) -> Iterator[dict[str, str]]:
    if len(chosen) == len(over):
        yield chosen
        return
    axis = list(over)[len(chosen)]
    for value in _range(spec, over, axis, chosen):
        yield from _choices(spec, over, {**chosen, axis: value})


def _range(spec: Spec, over: Mapping[str, tuple[str, ...]], axis: str, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """What a placeholder ranges over: the ops of a kind, the dtypes of the chosen op, a group, or a list."""
    texts = over[axis]
    if axis == "op":
        return tuple(functor.name for functor in spec.functors[texts[0]].functors)
    if texts == ("op",):
        kind = spec.functors[over["op"][0]]
        return spec.resolve(next(functor for functor in kind.functors if functor.name == chosen["op"]).dtypes)
    return spec.groups.get(texts[0], texts) if len(texts) == 1 else texts


@dataclass(frozen=True)
class PackerRow:
    """The packer of a struct."""

    name: str
    comment: str
    format: str


@dataclass(frozen=True)
class ArgumentsView:
    """kernels/arguments.py."""

    packers: tuple[PackerRow, ...]


def arguments(spec: Spec, _: str | None) -> ArgumentsView:
    """The packers of all structs."""
    return ArgumentsView(tuple(_packer(struct) for family in spec.kernels for struct in family.structs))


def _packer(struct: Struct) -> PackerRow:
    text = "="
    end = 0
    offsets = struct.offsets()
    for field, offset in zip(struct.fields, offsets, strict=False):
        text += "x" * (offset - end) + (str(field.length) if field.length else "") + FIELD_TYPES[field.type][1]
        end = offset + field.size * (field.length or 1)
    text += "x" * (offsets[-1] - end)
    constant = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in struct.name).lstrip("_")
    return PackerRow(constant.upper(), comment(", ".join(field.name for field in struct.fields)), text)
