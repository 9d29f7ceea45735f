"""The records of a spec as flat mappings that can be compared: one for each thing that has a name."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from opgen.arrays import Spelling
from opgen.cache.memo import memoize
from opgen.cells import Cell
from opgen.errors import CHECKS, errors_of
from opgen.formula.formula import Formula
from opgen.formula.nodes import Node
from opgen.formula.printing import text_of
from opgen.formula.simplification import shared
from opgen.kernels import Kernel
from opgen.matrix import cells
from opgen.model.backends import BackendFamily
from opgen.model.examples import Example, Values
from opgen.model.expressions import Expression
from opgen.model.functors import Functor
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.problem import Location
from opgen.results import results_of
from opgen.scopes import is_differentiable
from opgen.signature import Call, Signature
from opgen.views.kernel_patterns import element_types, kernel_rows

ORDER = "(order)"
"""The last step of the path to the names of what stands side by side, as no name is written; and a kind of subjects."""
UNSUPPORTED = "unsupported: "
"""The prefix of lowerings that are no calls."""
Keys: TypeAlias = tuple[str, ...]

# What is compared as the text that a person writes.
_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Formula: lambda formula: _formula(formula.node),
    Names: lambda names: f"[{', '.join(names.texts)}]" if names.listed else " ".join(names.texts),
    Signature: str,
    Call: lambda call: f"{call.name}({', '.join(call.arguments)})",
    Expression: lambda expression: expression.text,
    Values: str,
    Spelling: lambda spelling: spelling.text,
    Cell: lambda cell: ", ".join(map(_lowering, cell.lowerings)),
}
_CELLS = "cells of"
# Fields whose values are locations, or follow from other fields.
_DERIVED = ("locations", "over_locations")


@dataclass(frozen=True, order=True)
class Subject:
    """A subject of the spec: its kind and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(frozen=True)
class Leaf:
    """One value of a record, and where it stands."""

    value: object
    location: Location


@dataclass(frozen=True)
class Record:
    """All values of what the spec says of a subject, by the fields and the names that lead to each."""

    location: Location
    leaves: Mapping[Keys, Leaf]


def records(spec: Spec, without: Collection[str] = ()) -> dict[Subject, Record]:
    """Every subject of a checked spec, in the order of the spec, but for those of some kinds."""
    by_subject: dict[Subject, Record] = {}
    for kind, name, location, values in _subjects(spec, without):
        if kind in without:
            continue
        leaves: dict[Keys, Leaf] = {}
        for value in values:
            leaves.update(_leaves_of(value, location))
        by_subject[Subject(kind, name)] = Record(location, leaves)
    for kind in dict.fromkeys(subject.kind for subject in by_subject):
        alike = [subject.name for subject in by_subject if subject.kind == kind]
        first_location = next(record.location for subject, record in by_subject.items() if subject.kind == kind)
        if len(alike) > 1:
            by_subject[Subject(ORDER, kind)] = Record(first_location, {(ORDER,): Leaf(tuple(alike), first_location)})
    return by_subject


_Described: TypeAlias = Iterator[tuple[str, str, Location, Iterable[object]]]


def _subjects(spec: Spec, without: Collection[str]) -> _Described:
    """Yield the kind, the name and the location of each subject, and its records."""
    package = spec.package
    yield "package", package.name and "package", package.location, [package]
    yield "device", "", Location(Path("spec/device.yaml")), [{"doc": spec.device_doc}]
    for dtype in spec.dtypes:
        yield "dtype", dtype.name, dtype.location, [dtype]
    for primitive in spec.primitives.values():
        yield "primitive", primitive.name, primitive.location, [primitive]
    yield from _of_ops(spec)
    yield from _of_methods(spec)
    for item in spec.formats:
        yield "format", item.name, item.location, [item]
    for owner in spec.owners:
        yield "family" if isinstance(owner, BackendFamily) else "backend", owner.name, Location(owner.path), [owner]
    yield from () if _CELLS in without else _of_cells(spec)
    yield from _of_kernels(spec)
    for table in spec.drivers:
        yield "driver", table.backend, Location(table.path), [table]
    for library in spec.c_libraries:
        yield "C library", library.name, Location(library.path), [library]
    for name, module in spec.public.items():
        names = {"names": frozenset(module.names)}
        yield "public module", name, package.public[name][1], [{"home": module.home, "doc": module.doc}, names]
    for name, check in spec.checks.items():
        yield "check", name, Location(Path(CHECKS[check.module])), [{"raises": check.raised}]


def _of_ops(spec: Spec) -> _Described:
    for kind in spec.functors.values():
        own = {"unsupported": kind.unsupported, "family": kind.family}
        yield "kind of ops", kind.name, Location(kind.path), [own]
        for state in kind.states.values():
            yield "state", state.name, state.location, [state]
        for functor in kind.functors:
            noun = "gradient op" if functor.is_gradient else "op"
            yield noun, f"{kind.name}.{functor.name}", functor.location, [functor, _follows_of_op(spec, functor)]


def _follows_of_op(spec: Spec, functor: Functor) -> Mapping[str, object]:
    """Return the facts that follow from an op's entry and matter to callers."""
    condition = () if functor.condition is None else spec.resolve(functor.condition)
    return {
        "computes": functor.computed,
        "is_method": functor.is_method,
        "is_differentiable": is_differentiable(spec, functor),
        "has_tensor_method": functor.has_front,
        "dtypes": frozenset(spec.resolve(functor.dtypes)),
        "condition": frozenset(condition),
    }


def _of_methods(spec: Spec) -> _Described:
    for family in spec.families:
        yield "file of methods", family.name, Location(family.path), [{"doc": family.doc}]
        for method in family.methods:
            if method.functor is None:  # else the op has them
                own = [method, _follows_of_method(spec, method), {"file": family.name}]
                yield "storage method", method.name, method.location, own
    for method in spec.device_methods:
        yield "device method", method.name, method.location, [method, _follows_of_method(spec, method)]


def _follows_of_method(spec: Spec, method: Method) -> Mapping[str, object]:
    """Return the facts that follow from a method's entry and matter to callers."""
    gradient = method.gradient
    operands = {operand.name: operand.dtypes for operand in method.operands}
    return {
        "is_differentiable": method.body is not None
        or (gradient is not None and gradient.none is None and gradient.missing is None),
        "has_tensor_method": method.tensor is not None,
        "raises": frozenset(errors_of(spec, method)),
        "gives": ", ".join(result.text for result in results_of(method)),
        "dtypes": frozenset(spec.resolve(method.dtypes) if method.dtypes is not None else ()),
        "operands": {name: {"dtypes": frozenset(spec.resolve(names))} for name, names in operands.items()},
    }


def _of_cells(spec: Spec) -> _Described:
    by_op: dict[str, dict[str, dict[str, dict[str, object]]]] = {}
    locations: dict[str, Location] = {}
    for cell in cells(spec):
        locations.setdefault(cell.name, cell.source)
        own = by_op.setdefault(cell.name, {}).setdefault(cell.backend, {})
        call = cell.via if cell.status == "supported" else f"{UNSUPPORTED}{cell.reason}"
        own[cell.dtype or "any"] = {"call": call, "gradient": cell.gradient}
    for name, backends in by_op.items():
        yield _CELLS, name, locations[name], [backends]


def _of_kernels(spec: Spec) -> _Described:
    for family in spec.kernels:
        others = _without(family, "arguments", "kernels", "structs", "path")
        yield "family of kernels", family.name, Location(family.path), [others]
        for struct in family.structs:
            yield "struct", f"{family.name}.{struct.name}", struct.location, [struct]
        seen = Counter[str]()
        for kernel in family.kernels:
            # Patterns of different dtypes may have one name.
            seen[kernel.name] += 1
            number = f" ({seen[kernel.name]})" if seen[kernel.name] > 1 else ""
            yield "kernel", f"{family.name}.{kernel.name}{number}", kernel.location, _whole_kernel(spec, kernel)
    for backend, targets in spec.targets.items():
        for target in targets:
            yield "target", f"{backend}.{target.name}", target.location, [target]
    for group in spec.field_groups:
        yield "group of fields", group.name, group.location, [group]
    for described in spec.tuples:
        yield "tuple", described.name, described.location, [described]
    for name, (cpp, location) in spec.widths.items():
        yield "width", name, location, [{"cpp": cpp}]
    for constant in spec.constants:
        value = constant.value
        values = value if isinstance(value, int) else {str(size): each for size, each in value.items()}
        yield "constant", constant.name, constant.location, [{"doc": constant.doc, "value": values}]


def _what_kernels_are_made_of(spec: Spec, kernel: Kernel) -> tuple[object, ...]:
    return (kernel, element_types(spec), *map(spec.functors.get, kernel.over.get("op", ())))


@memoize(_what_kernels_are_made_of)
def _whole_kernel(spec: Spec, kernel: Kernel) -> Sequence[object]:
    """A pattern, and its kernels: these are many."""
    return kernel, {"kernels": {row.name: row.call for row in kernel_rows(spec, kernel)}}


def _without(record: Any, *names: str) -> Mapping[str, object]:
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record) if each.name not in names}


@memoize(lambda value, location: (value, location))
def _leaves_of(value: object, location: Location) -> Sequence[tuple[Keys, Leaf]]:
    """Return the values of a subject by their paths."""
    return [*_leaves(value, (), location)]


def _leaves(value: object, path: Keys, location: Location) -> Iterator[tuple[Keys, Leaf]]:
    """Every value that is no record, mapping or list of records, by what leads to it."""
    location = _place(value) or location
    if isinstance(value, Location | Path):
        return
    if isinstance(value, Signature):
        yield from _of_signature(value, path, location)
    elif isinstance(value, Example):
        # What leads to it says it.
        yield path, Leaf(None, location)
    elif type(value) in _TEXTS:
        yield path, Leaf(_TEXTS[type(value)](value), location)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            inner = getattr(value, each.name)
            if inner is not None and each.name not in _DERIVED:
                yield from _leaves(inner, (*path, each.name), location)
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, path, location)
    elif isinstance(value, frozenset):
        yield from (((*path, str(each)), Leaf(None, location)) for each in sorted(value))
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Location):
        yield from _leaves(value[0], path, value[1])
    elif isinstance(value, tuple) and value and all(dataclasses.is_dataclass(each) for each in value):
        yield from _of_mapping({_called(each): each for each in value}, path, location)
    elif value != ():
        yield path, Leaf(value, location)


def _of_mapping(value: Mapping[Any, object], path: Keys, location: Location) -> Iterator[tuple[Keys, Leaf]]:
    for key, inner in value.items():
        leaves = list(_leaves(inner, (*path, str(key)), location))
        # A name whose value is only its location, or None, counts as present.
        yield from leaves or [((*path, str(key)), Leaf(None, inner if isinstance(inner, Location) else location))]
    if len(value) > 1:
        yield (*path, ORDER), Leaf(tuple(map(str, value)), location)


def _of_signature(signature: Signature, path: Keys, location: Location) -> Iterator[tuple[Keys, Leaf]]:
    """The types of parameters and of the result, each for itself."""
    yield (*path, "returns"), Leaf(signature.returns, location)
    yield from _of_mapping({item.name: item.type for item in signature.parameters}, (*path, "types"), location)


def _called(record: Any) -> str:
    """Return the name of a record among its siblings."""
    for field in ("name", "call"):
        if hasattr(record, field):
            name = getattr(record, field)
            return name if isinstance(name, str) else _TEXTS[type(name)](name)
    return str(record)


def _place(value: object) -> Location | None:
    """Where a record stands, if it says so."""
    location = getattr(value, "location", None)
    if isinstance(value, Names):
        location = next(iter(value.locations), None)
    return location if isinstance(location, Location) else None


def _formula(node: Node) -> str:
    """A formula as a person reads it: what it has more than once has a name."""
    parts, body = shared(node)
    named = ", ".join(f"{name} = {text_of(part)}" for name, part in parts.items())
    return f"{text_of(body)} with {named}" if named else text_of(body)


def _lowering(lowering: Any) -> str:
    """A part of a cell as a person reads it."""
    what = " or ".join(map(str, lowering.calls)) or next(
        f"{key}: {text}"
        for key, text in (("attribute", lowering.attribute), ("forward", lowering.forward), ("unsupported",
                          lowering.unsupported)) if text is not None
    )  # fmt: skip
    return what if lowering.dtypes is None else f"{what} for {_TEXTS[Names](lowering.dtypes)}"
