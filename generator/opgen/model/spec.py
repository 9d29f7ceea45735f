"""The complete spec, as one frozen value."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opgen.cells import Lowering, Lowerings
from opgen.drivers import DriverTable
from opgen.dtypes import SETS, DType
from opgen.formats import BLOCKS, FORMAT_SETS, Format
from opgen.formula.primitives import Primitives
from opgen.kernels import Constant, FieldGroup, KernelFamily, TupleType
from opgen.libraries import CLibrary
from opgen.model.backends import Backend, BackendFamily, Owner
from opgen.model.callables import Callable, CheckFunction
from opgen.model.emitted_ops import LaunchOp
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import ANY_RESULT, REAL_RESULT
from opgen.model.methods import Family, Method
from opgen.model.package import Package, PublicModule
from opgen.model.reductions import Monoid, State
from opgen.model.word_uses import Uses
from opgen.names import Names
from opgen.problem import Location
from opgen.targets import Target


@dataclass(frozen=True)
class Spec:
    """The spec."""

    package: Package
    dtypes: tuple[DType, ...]
    primitives: Primitives  # the functions of formulas
    functors: Mapping[str, FunctorKind]
    families: tuple[Family, ...]
    formats: tuple[Format, ...]  # the block formats of quantized weights
    device_doc: str
    device_methods: tuple[Method, ...]
    backend_families: tuple[BackendFamily, ...]
    backends: tuple[Backend, ...]  # in order of preference, in which branches and the matrix have them
    kernels: tuple[KernelFamily, ...]
    c_libraries: tuple[CLibrary, ...]
    drivers: tuple[DriverTable, ...]  # by which calls the drivers of GPUs do what the runtime asks of them
    field_groups: tuple[FieldGroup, ...]  # fields that several structs of kernels have side by side
    tuples: tuple[TupleType, ...]  # what Python gives to make plans of the host's kernels
    widths: Mapping[str, tuple[str, Location]]  # the C++ types of elements that kernels only move, by name
    constants: tuple[Constant, ...]  # the numbers that kernels and launchers share
    targets: Mapping[str, Sequence[Target]]  # the GPU architectures of each backend
    # What `lower` finds: by backend, by method and op, and by dtype, what the backend does; and the subpackages in
    # which it looks for what it calls.
    lowerings: Mapping[str, Lowerings] = field(default_factory=dict)
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # What the runtime defines: the modules of each subpackage, at any depth, and the functions of its ops, by module.
    own_modules: Mapping[str, Collection[str]] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, Mapping[str, Callable]]] = field(default_factory=dict)
    checks: Mapping[str, CheckFunction] = field(default_factory=dict)
    public: Mapping[str, PublicModule] = field(default_factory=dict)
    # By the module that has them, and the methods that they are ops of.
    launch_ops: Mapping[tuple[str, str], "LaunchOp"] = field(default_factory=dict)
    uses: "Uses | None" = None  # the words that functions of array backends need, where a library lacks some

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The sets of dtypes that have a name."""
        return {name: tuple(dtype.name for dtype in self.dtypes if has(dtype)) for name, has in SETS.items()}

    @cached_property
    def known_dtypes(self) -> str:
        """The groups as one text: most memoized results depend on nothing else of the dtypes."""
        return str(self.groups)

    @cached_property
    def known_elements(self) -> str:
        """The facts about dtypes that kernels depend on, and the names of ops, as one text."""
        dtypes = [(it.name, it.bytes, it.kind, it.real, it.format, it.multiplicand) for it in self.dtypes]
        return f"{dtypes} {self.functor_names}"

    @cached_property
    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """The groups, and the sets of block formats."""
        formats = {
            name: tuple(item.name.upper() for item in self.formats if has(item)) for name, has in FORMAT_SETS.items()
        }
        return {**self.groups, **formats}

    def resolve(self, names: Names) -> tuple[str, ...]:
        """The dtypes, or the block formats, that `names` means, in the order of the spec."""
        key = names.texts, names.listed
        if key not in self._resolved:
            self._resolved[key] = self._resolve(*key)
        return self._resolved[key]

    @cached_property
    def _resolved(self) -> dict[tuple[tuple[str, ...], bool], tuple[str, ...]]:
        return {}

    def _resolve(self, texts: tuple[str, ...], listed: bool) -> tuple[str, ...]:
        if len(texts) == 1 and texts[0] in FORMAT_SETS:
            return self.sets[texts[0]]
        members: set[str] = set()
        for text in texts:
            members.update(self.groups.get(text, (text,) if listed else ()))
        return tuple(dtype.name for dtype in self.dtypes if dtype.name in members)

    def result_of(self, functor: Functor, dtype: str, other: str = "") -> str:
        """The dtype of an op's result, of operands of a dtype; `other` is the one that callers of the op may name."""
        if functor.result == REAL_RESULT:
            return next(item.real for item in self.dtypes if item.name == dtype) or dtype
        return other if functor.result == ANY_RESULT else functor.result or dtype

    def converts(self, source: str, target: str) -> bool:
        """Whether elements are converted from a dtype to another: no imaginary part is lost but in truth values."""
        kinds = {item.name: item.kind for item in self.dtypes}
        return kinds[source] != "complex" or kinds[target] in ("complex", "bool")

    def chain(self, owner: Owner) -> list[Owner]:
        """A backend or family followed by what it extends, from the nearest to the farthest."""
        known = {each.name: each for each in self.owners}
        owners = [owner]
        while (extended := known.get(owners[-1].extends or "")) is not None and extended not in owners:
            owners.append(extended)
        return owners

    def family_of(self, backend: Backend) -> BackendFamily | None:
        """Return the family that a backend extends, directly or through others."""
        last = self.chain(backend)[-1]
        return last if isinstance(last, BackendFamily) else None

    def driver_of(self, backend: Backend) -> DriverTable | None:
        """The table of a backend's driver: its own, or that of the nearest backend that it extends."""
        tables = {table.backend: table for table in self.drivers}
        return next((tables[owner.name] for owner in self.chain(backend) if owner.name in tables), None)

    def targets_of(self, backend: Backend) -> str | None:
        """The name under which a backend's targets are listed: its own, or that of the nearest that it extends."""
        return next((owner.name for owner in self.chain(backend) if owner.name in self.targets), None)

    @cached_property
    def op_classes(self) -> tuple[str, ...]:
        """The enums of the functors that are chosen by an argument."""
        return tuple(kind.class_name for kind in self.functors.values() if kind.chosen)

    @cached_property
    def argument_classes(self) -> tuple[str, ...]:
        """The classes that the signatures of storage methods name."""
        types = [parameter.type for method in self.storage_methods() for parameter in method.signature.parameters]
        return tuple(sorted({name for text in types for name in re.findall(r"[A-Z]\w*", text)}))

    def storage_methods(self) -> Iterator[Method]:
        """The storage methods of all families."""
        for family in self.families:
            yield from family.methods

    @property
    def owners(self) -> tuple[Owner, ...]:
        """All that a backend may extend."""
        return (*self.backend_families, *self.backends)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The storage methods, then the device methods."""
        return (*self.storage_methods(), *self.device_methods)

    @cached_property
    def reductions(self) -> tuple[Functor, ...]:
        """The functors that join what all elements contribute."""
        return tuple(it for it in self.every_functor if isinstance(it.reduction, Monoid) and not it.is_scan)

    @cached_property
    def scans(self) -> tuple[Functor, ...]:
        """The functors that join what the elements up to each contribute."""
        return tuple(it for it in self.every_functor if it.is_scan and it.reduction is not None)

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The states of reductions, by their names."""
        return {name: state for kind in self.functors.values() for name, state in kind.states.items()}

    @cached_property
    def every_functor(self) -> tuple[Functor, ...]:
        """The functors of all kinds."""
        return tuple(functor for kind in self.functors.values() for functor in kind.functors)

    @cached_property
    def dtype_names(self) -> tuple[str, ...]:
        """The names of the dtypes."""
        return tuple(dtype.name for dtype in self.dtypes)

    @cached_property
    def cpp_types(self) -> Mapping[str, str]:
        """The C++ types of the elements of each dtype."""
        return {dtype.name: dtype.cpp for dtype in self.dtypes}

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """How many bytes an element of each dtype has."""
        return {dtype.name: dtype.bytes for dtype in self.dtypes}

    @cached_property
    def functor_names(self) -> tuple[str, ...]:
        """The names of the functors of all kinds."""
        return tuple(functor.name for functor in self.every_functor)

    def functor_kind(self, name: str) -> FunctorKind:
        """The functors of one kind."""
        return self.functors[name]

    def ranged(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the values of a kernel axis other than the op: the members of a set, or those that are listed."""
        return self.sets.get(texts[0], texts) if len(texts) == 1 else texts

    def functors_of(self, family: KernelFamily) -> Sequence[Functor]:
        """The functors that the source of a family has: those of its kinds, and those that its kernels list."""
        axes = [texts for kernel in family.kernels for axis, texts in kernel.over.items() if axis != "op"]
        listed = {text for texts in axes for text in self.ranged(texts)}
        kinds = [self.functors[kind] for kind in family.kinds if kind in self.functors]
        functors = {functor.name: functor for kind in kinds for functor in kind.functors}
        functors |= {functor.name: functor for functor in self.every_functor if functor.name in listed}
        return tuple(functors.values())

    def max_parameters(self, family: KernelFamily) -> int:
        """How many parameters a functor of a family's kernels may have."""
        return max((self.functors[kind].max_parameters for kind in family.kinds), default=0)

    def lowered(self, backend: Backend, method: Method) -> Mapping[tuple[str | None, str | None], Lowering]:
        """Return the lowerings of a method on a backend, by op and dtype."""
        table = self.lowerings[backend.name]
        ops = ((op, table.get((method.name, op), {})) for op in self.ops(method))
        return {(op, dtype): lowering for op, lowerings in ops for dtype, lowering in lowerings.items()}

    def ops(self, method: Method) -> tuple[str | None, ...]:
        """The ops that a method chooses between; (None,) for a method that has none."""
        if method.kind is None or method.functor is not None:
            return (None,)
        kind = self.functors.get(method.kind)
        return tuple(functor.name for functor in kind.chosen) if kind else ()

    def kinds(self, method: Method) -> tuple[str, ...]:
        """All that a storage of a method's may have: dtypes, or block formats."""
        return self.sets[BLOCKS] if method.holds_blocks else self.dtype_names

    def functor(self, method: Method, op: str | None) -> Functor | None:
        """The functor that a method computes with `op`."""
        name = method.functor or op
        kind = self.functors.get(method.kind or "")
        return kind.by_name.get(name) if kind and name else None

    def op_names(self, method: Method, op: str | None) -> Names | None:
        """The dtypes that a method has with `op`, as they are written; None for a device method without a dtype."""
        functor = self.functor(method, op)
        if functor is not None:
            return functor.dtypes
        return method.operands[0].dtypes if method.operands else method.dtypes

    def op_dtypes(self, method: Method, op: str | None) -> tuple[str, ...] | None:
        """The dtypes that a method has with `op`; None for a device method without a dtype."""
        names = self.op_names(method, op)
        return None if names is None else self.resolve(names)
