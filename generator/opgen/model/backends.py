"""Backends and their families."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, TypeAlias

from opgen.arrays import ArrayLibrary, LackingWord, Word
from opgen.cells import CELL_KEYS, CellFile
from opgen.declarations import by_name, repetitions
from opgen.decoder import Cursor, Diagnostics
from opgen.drivers import Operation
from opgen.names import Names
from opgen.notes import Entry, Example, Key, LocationOf, Mark, Name, Pattern, Placeholders, defines, names_of
from opgen.problem import Location, nearest
from opgen.toolchains import CodeObjects

_ORDINAL = Placeholders(("ordinal",))


@dataclass(frozen=True)
class BackendFamily(CellFile):
    """A file of spec/families: how the backends that extend it lower every op, where they do not say otherwise."""

    name: Annotated[str, Entry("family '{}'")]
    package: Annotated[Name, "The package of runtime/backends whose ops the cells call."]
    words: Annotated[
        tuple[Word, ...],
        Key("vocabulary"),
        Mark.OPTIONAL,
        "The words in which the ops of a family of array libraries are written, by `name(parameters)`. A word is a "
        "function of a backend's emitted library.py. Arrays may be immutable: no word changes its arguments. A "
        "word that joins elements keeps the dim, of size 1.",
    ]
    driver: Annotated[
        tuple[Operation, ...],
        Mark.OPTIONAL,
        "What the runtime of a family of GPUs asks of a vendor's driver, by `name(parameters)`. spec/drivers has a "
        "table for each backend of the family, which says by which calls it is done.",
    ]
    compiler: Annotated[
        tuple[Operation, ...],
        Mark.OPTIONAL,
        "What the runtime asks of the vendor's compiler, likewise: `compiler` of the table has its calls.",
    ]

    @cached_property
    def vocabulary(self) -> Mapping[str, Word]:
        """The words, by their names."""
        return by_name(self.words)

    def diagnostics(self, _: str) -> Diagnostics:
        """Report words and operations that stand twice."""
        yield from repetitions("word", self.words)
        yield from repetitions("operation", self.driver)
        yield from repetitions("operation", self.compiler)

    # As of a backend: a family extends nothing, and its package is there.
    extends: ClassVar[None] = None
    missing: ClassVar[None] = None

    def __str__(self) -> str:
        return f"family '{self.name}'"


def _is_free(_: Cursor, name: str) -> Iterator[str]:
    if nearest(name, CELL_KEYS) is not None:
        yield f"'{name}' is like a key of cells; give the library another name"


@dataclass(frozen=True)
class Library:
    """A vendor's library."""

    name: Annotated[Name, Entry("library '{}'"), _is_free, defines("library")]
    opener: Annotated[
        str,
        Key("class"),
        Pattern(r"[a-z][\w.]*\.[A-Z]\w*", "module.Class"),
        "The class of the backend's package that opens the library where it is there, as `module.Class`.",
    ]
    dtypes: Annotated[
        Names | None, "The dtypes that the library has; all without this key. For other dtypes its calls are left out."
    ]
    location: Annotated[Location, LocationOf("class")] = field(compare=False)

    @property
    def module(self) -> str:
        """The module of the class that opens it."""
        return self.opener.rpartition(".")[0] or self.opener

    @property
    def class_name(self) -> str:
        """The class that opens it."""
        return self.opener.rpartition(".")[2]


@dataclass(frozen=True)
class Runtime:
    """The runtime of a backend."""

    package: Annotated[Name | None, "The package of runtime/backends that runs the backend."]
    missing: Annotated[str | None, "Why there is no such package: every branch says so."]

    def diagnostics(self, what: str) -> Diagnostics:
        """Note that it is there and missing, or neither."""
        if (self.package is None) == (self.missing is None):
            yield (None,), f"{what} must have one key: its 'package', or why it is 'missing'"


@dataclass(frozen=True)
class Backend(CellFile):
    """Everything about one backend."""

    name: Annotated[str, Entry("backend '{}'")]
    doc: Annotated[str, "What the backend is, for the docs."]
    class_prefix: Annotated[
        str, Pattern("[A-Z][A-Za-z0-9]*", "Name"), "What the names of its classes begin with, as `Gpu` in GpuStorage."
    ]
    extends: Annotated[
        str | None,
        names_of("family", "backend"),
        "The family, or the other backend, whose cells it has wherever it does not say otherwise.",
    ]
    runtime: Annotated[Runtime, "What runs the backend: a package, or why there is none."]
    extra: Annotated[Name | None, "The name of the extra that installs what the backend needs."]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL, "What pip installs for this extra."]
    listed: Annotated[
        tuple[str, ...], Key("modules"), Mark.OPTIONAL, "Modules that Python can import where these are installed."
    ]
    libraries: Annotated[
        tuple[Library, ...],
        Mark.OPTIONAL,
        Example("blas: {class: module.Class}"),
        "The vendor's libraries, by the names that cells call them.",
    ]
    array: Annotated[ArrayLibrary | None, "The library that the backend computes with, if its family has a vocabulary."]
    code_objects: Annotated[CodeObjects | None, "What `opgen compile` builds the kernels for, and with what."]
    label: Annotated[
        str,
        _ORDINAL,
        "The name of a device for users, such as `gpu:{ordinal}`; without {ordinal} there is one device.",
    ]
    display: Annotated[str, _ORDINAL, Mark.MAY_BE_EMPTY, "The end of a tensor's display, which shows its device."]
    preference: Annotated[int, "Of the backends that are available, Device.default() is of the one with the highest."]
    dlpack: Annotated[int, "The `DLDeviceType` that DLPack gives its devices."]

    @property
    def package(self) -> str | None:
        """The subpackage that runs it; None while there is none."""
        return self.runtime.package

    @property
    def missing(self) -> str | None:
        """Why there is no runtime."""
        return self.runtime.missing if self.package is None else None

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that can be imported when its dependencies are installed."""
        return self.listed if self.array is None or self.extra is None else tuple(self.array.modules.values())

    def diagnostics(self, what: str) -> Diagnostics:
        """Report modules that are listed twice, and dependencies without a name."""
        if self.array is not None and self.listed:
            yield "modules", f"{what} names its modules below 'array'; remove 'modules'"
        if self.extra is None and (self.listed or self.missing is not None):
            yield (None,), f"{what} lacks the key 'extra', which names what to install for it; add it"

    def __str__(self) -> str:
        return f"backend '{self.name}'"

    @property
    def is_numbered(self) -> bool:
        """Whether its devices have numbers."""
        return "{ordinal}" in self.label

    @property
    def lacking(self) -> Mapping[str, tuple[str, Location]]:
        """The dtypes that no storage of it has, and why."""
        return self.array.lacking if self.array is not None else {}

    @property
    def refused(self) -> Mapping[str, LackingWord]:
        """The words that its library cannot have."""
        return self.array.refused if self.array is not None else {}


# What has cells, which a backend may extend.
Owner: TypeAlias = Backend | BackendFamily
