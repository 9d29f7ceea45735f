"""Stage 2: the spec as frozen classes. What one file says by itself is checked here, what holds between files later."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opgen.kernels import KernelFamily
from opgen.libraries import Library
from opgen.problem import Location
from opgen.signature import Call, Signature
from opgen.toolchains import CodeObjects

# What the expressions of each kind of functors call their operands; those of a reduction are names of functions.
FUNCTOR_OPERANDS = {"unary": ("x",), "binary": ("x", "y"), "cmp": ("x", "y"), "reduce": ()}
FUNCTOR_KINDS = tuple(FUNCTOR_OPERANDS)
LOWERING_KINDS = ("numpy", "kernel", "library", "runtime", "custom", "attribute")


@dataclass(frozen=True)
class Package:
    """What spec/package.yaml says of the emitted package."""

    name: str
    version: str
    summary: str
    python: str
    requires: tuple[str, ...]
    max_rank: int
    max_rank_location: Location
    location: Location  # of its name


@dataclass(frozen=True)
class DType:
    """An element type."""

    name: str
    doc: str
    kind: str  # unsigned, signed or float
    bytes: int
    numpy: str  # module.name of its NumPy type
    cpp: str
    compute: str  # the dtype in which arithmetic on it is done
    safetensors: str
    dlpack: tuple[int, int] | None
    index_mark: int | None
    location: Location


@dataclass(frozen=True)
class Names:
    """Dtypes as the spec names them: one group's name, or a list. `check` resolves them."""

    texts: tuple[str, ...]
    locations: tuple[Location, ...]
    listed: bool  # written as a list


@dataclass(frozen=True)
class Expression:
    """An expression over x (and y), for all dtypes or split where integers need another one."""

    integer: str
    float: str
    location: Location

    @property
    def texts(self) -> tuple[str, ...]:
        """What is written: one expression, or two."""
        return (self.integer, self.float) if self.is_split else (self.float,)

    @property
    def is_split(self) -> bool:
        """Whether integers and floats have different expressions."""
        return self.integer != self.float


@dataclass(frozen=True)
class Functor:
    """What one unary, binary, cmp or reduce op computes."""

    name: str
    doc: str
    dtypes: Names
    numpy: Expression
    hip: Expression
    edges: str
    result: str | None  # reduce only: the dtype of the result, None for that of the operand
    empty_is_error: bool  # reduce only
    location: Location


@dataclass(frozen=True)
class FunctorKind:
    """A file of spec/functors: the ops that one storage method chooses between."""

    name: str
    unsupported: str  # why an op has not the dtypes that it lacks
    functors: tuple[Functor, ...]
    path: Path


@dataclass(frozen=True)
class Operand:
    """A storage that a method works on."""

    name: str  # `self` or a parameter
    layout: str | None  # the parameter that is its layout
    dtypes: Names  # or `same` (as the first operand's), or `op` (the functor's)
    written: bool
    location: Location


@dataclass(frozen=True)
class Check:
    """A check that the dispatch makes before the branch: a function of the emitted package's check module."""

    call: Call
    location: Location


@dataclass(frozen=True)
class Method:
    """A storage method or a device method. The first operand is the one whose dtype the matrix lists."""

    name: str
    signature: Signature
    doc: str
    kind: str | None  # the functor kind that its op is of
    operands: tuple[Operand, ...]
    dtypes: Names | None  # device methods only: the dtypes of the storage that they make
    unsupported: str | None  # why it has not the dtypes that it lacks
    checks: tuple[Check, ...]
    errors: Mapping[str, Location]  # what the checks and the backends raise, besides what every method may
    tensor: Signature | None  # the tensor method that is this method alone
    is_broken: bool  # its signature or its operands could not be read, which is noted; the rest cannot be checked
    location: Location


@dataclass(frozen=True)
class Family:
    """A file of spec/storage: methods that belong together, and become one module."""

    name: str
    doc: str
    methods: tuple[Method, ...]
    path: Path


@dataclass(frozen=True)
class Lowering:
    """How a backend does an op for some of its dtypes: kind and name of what does it, or why it doesn't."""

    via: str | None  # `kernel affine`, `library hipblas or kernel matmul`; None where unsupported
    kernel: str | None  # the family of kernels among these
    library: str | None  # the library among these
    unsupported: str | None
    dtypes: Names | None  # None for device methods without a dtype
    location: Location


@dataclass(frozen=True)
class Backend:
    """Everything about one backend."""

    name: str
    doc: str
    class_prefix: str
    extends: str | None
    runtime: str | None  # the subpackage that runs it; None while there is none
    templates: str | None  # the family of backends whose templates its runtime is made of; None for its own alone
    missing: str | None  # why there is no runtime
    extra: str | None  # the optional dependencies that it needs
    requires: tuple[str, ...]
    modules: tuple[str, ...]  # importable when these dependencies are installed
    libraries: Mapping[str, str]  # the module of the runtime that calls each of the vendor's libraries
    code_objects: CodeObjects | None  # what its kernels are compiled for ahead of time
    label: str
    display: str
    preference: int  # the highest available is Device.default()
    dlpack: int  # the DLDeviceType of its devices
    # method -> op -> lowerings, with op None for methods that have no op
    storage: Mapping[str, Mapping[str | None, tuple[Lowering, ...]]]
    device: Mapping[str, Mapping[str | None, tuple[Lowering, ...]]]
    locations: Mapping[str, Location]  # of each key of the file, and of each method as `storage.affine`
    path: Path

    def place(self, *keys: str) -> Location:
        """Where the first of `keys` stands that is written; the top of the file where none is."""
        written = (self.locations[key] for key in keys if key in self.locations)
        return next(written, Location(self.path))


@dataclass(frozen=True)
class Spec:
    """The whole spec."""

    package: Package
    dtypes: tuple[DType, ...]
    groups: Mapping[str, tuple[str, ...]]
    torn_groups: frozenset[str]  # name an unknown dtype, which is noted; what uses them cannot be checked
    functors: Mapping[str, FunctorKind]
    families: tuple[Family, ...]
    device_doc: str
    device_methods: tuple[Method, ...]
    backends: tuple[Backend, ...]
    kernels: tuple[KernelFamily, ...]
    libraries: tuple[Library, ...]
    widths: Mapping[str, str]  # the C++ types of elements that kernels only move, by name

    def resolve(self, names: Names) -> tuple[str, ...]:
        """The dtypes that `names` means, in the order of the spec."""
        found: set[str] = set()
        for text in names.texts:
            found.update((text,) if names.listed else self.groups.get(text, ()))
        return tuple(dtype.name for dtype in self.dtypes if dtype.name in found)

    def storage_methods(self) -> Iterator[Method]:
        """The storage methods of all families."""
        for family in self.families:
            yield from family.methods

    def ops(self, method: Method) -> tuple[str | None, ...]:
        """The ops that a method chooses between; (None,) for a method that has none."""
        if method.kind is None:
            return (None,)
        kind = self.functors.get(method.kind)
        return tuple(functor.name for functor in kind.functors) if kind else ()

    def op_names(self, method: Method, op: str | None) -> Names | None:
        """The dtypes that a method has with `op`, as they are written; None for a device method without a dtype."""
        if op is not None and method.kind is not None:
            functor = next(f for f in self.functors[method.kind].functors if f.name == op)
            return functor.dtypes
        return method.operands[0].dtypes if method.operands else method.dtypes

    def op_dtypes(self, method: Method, op: str | None) -> tuple[str, ...] | None:
        """The dtypes that a method has with `op`; None for a device method without a dtype."""
        names = self.op_names(method, op)
        return None if names is None else self.resolve(names)
