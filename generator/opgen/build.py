"""Builds the model from the loaded files, noting every error that one file shows by itself."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from opgen.cache.memo import memoize
from opgen.decoder import blank, decode
from opgen.drivers import DriverTable
from opgen.dtypes import DType, DTypes
from opgen.formats import Format, Formats
from opgen.formula.primitives import PrimitiveFile
from opgen.functor_methods import functor_method
from opgen.gradient_ops import with_gradients
from opgen.kernels import Constants, FieldGroups, KernelFamily, Limits, TupleTypes, Widths, with_structs
from opgen.libraries import CLibrary
from opgen.loader import Document
from opgen.model.backends import Backend, BackendFamily
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import FUNCTOR_KINDS, NAMED
from opgen.model.methods import DEVICE, STORAGE, Device, Family
from opgen.model.package import Package
from opgen.model.spec import Spec
from opgen.notes import module_name
from opgen.problem import Location, Problem, unknown_dtype
from opgen.row_methods import with_row_gradient
from opgen.scans import with_scans
from opgen.targets import Target, Targets

Record = TypeVar("Record")


@dataclass(frozen=True)
class FileKind(Generic[Record]):
    """Files of the spec that hold the same record."""

    path: Path  # whose stem * stands for any name
    record: type[Record]
    variant: str = ""

    @property
    def name(self) -> str:
        """The name of the schema of such files: functors_unary, backends."""
        return "_".join(part for part in self.path.with_suffix("").parts[1:] if part != "*")


def _kind(path: str, record: type[Record], variant: str = "") -> FileKind[Record]:
    return FileKind(Path("spec", f"{path}.yaml"), record, variant)


_PACKAGE, _DTYPES, _DEVICE = _kind("package", Package), _kind("dtypes", DTypes), _kind("device", Device, DEVICE)
_FORMATS, _PRIMITIVES = _kind("formats", Formats), _kind("primitives", PrimitiveFile)
_WIDTHS, _CONSTANTS = _kind("kernels/widths", Widths), _kind("kernels/constants", Constants)
_TARGETS = _kind("kernels/targets", Targets)
_GROUPS, _TUPLES = _kind("kernels/groups", FieldGroups), _kind("kernels/tuples", TupleTypes)
_STORAGE, _FAMILIES = _kind("storage/*", Family, STORAGE), _kind("families/*", BackendFamily)
_BACKENDS, _LIBRARIES = _kind("backends/*", Backend), _kind("libraries/*", CLibrary)
_DRIVERS, _KERNELS = _kind("drivers/*", DriverTable), _kind("kernels/*", KernelFamily)
_FUNCTORS = {kind: _kind(f"functors/{kind}", FunctorKind, kind) for kind in FUNCTOR_KINDS}
_TOP: tuple[FileKind[Any], ...] = (_PACKAGE, _DTYPES, _DEVICE, _FORMATS, _PRIMITIVES)
_OF_KERNELS: tuple[FileKind[Any], ...] = (_WIDTHS, _CONSTANTS, _TARGETS, _GROUPS, _TUPLES)
FILE_KINDS: tuple[FileKind[Any], ...] = (
    *(*_TOP, *_FUNCTORS.values(), _STORAGE, _FAMILIES, _BACKENDS),
    *(*_OF_KERNELS, _KERNELS, _LIBRARIES, _DRIVERS),
)
SINGLE_FILES = tuple(kind.path for kind in (_PACKAGE, _DTYPES, _DEVICE))
_FOLDERS = tuple(dict.fromkeys(kind.path.parent for kind in FILE_KINDS if kind not in _TOP))


def file_kind(path: Path) -> FileKind[Any] | None:
    """Return the kind of a file of the spec; None if it is no part of it."""
    own = (kind for wanted in (path, path.with_stem("*")) for kind in FILE_KINDS if kind.path == wanted)
    return next(own, None)


def build(documents: Mapping[Path, Document], problems: list[Problem]) -> Spec:
    """The spec that `documents` hold; what is wrong goes to `problems`."""

    def file(kind: FileKind[Record]) -> Record:
        if kind.path not in documents:
            record: Record = blank(kind.record, Location(kind.path))
            return record
        return decode(kind.record, documents[kind.path], problems, kind.variant)

    def folder(kind: FileKind[Record]) -> list[Record]:
        return [decode(kind.record, each, problems, kind.variant) for each in by_folder[kind.path.parent.name]]

    by_folder: dict[str, list[Document]] = {path.name: [] for path in _FOLDERS}
    for path, document in documents.items():
        if path.parent not in _FOLDERS and file_kind(path) is None:
            problems.append(Problem(Location(path), "no part of a spec; move it to a folder of spec or delete it"))
        elif path.parent in _FOLDERS and file_kind(path) not in _OF_KERNELS:
            flaws = [Problem(Location(path), flaw) for flaw in module_name(None, document.stem)]
            problems += flaws
            by_folder[path.parent.name] += [] if flaws else [document]
    for path in SINGLE_FILES:
        if path not in documents and not any(problem.location.path == path for problem in problems):
            problems.append(Problem(Location(path), "the file is missing; write it"))
    package = file(_PACKAGE)
    device = file(_DEVICE)
    functors = {kind.name: kind for kind in (_functor_kind(file, problems) for file in by_folder["functors"])}
    functors = with_scans(functors, problems)
    targets = file(_TARGETS).by_backend
    backends = [_with_targets(backend, targets.get(backend.name, ())) for backend in folder(_BACKENDS)]
    groups = file(_GROUPS).groups
    spec = Spec(
        package=package,
        dtypes=_known_dtypes(file(_DTYPES).dtypes, problems),
        primitives=file(_PRIMITIVES).named,
        functors=functors,
        families=tuple(folder(_STORAGE)),
        formats=_numbered(file(_FORMATS).formats, problems),
        device_doc=device.doc,
        device_methods=device.methods,
        backend_families=tuple(folder(_FAMILIES)),
        backends=tuple(sorted(backends, key=lambda backend: -backend.preference)),
        kernels=tuple(folder(_KERNELS)),
        c_libraries=tuple(folder(_LIBRARIES)),
        drivers=tuple(folder(_DRIVERS)),
        field_groups=groups,
        tuples=file(_TUPLES).tuples,
        widths=file(_WIDTHS).widths,
        constants=file(_CONSTANTS).constants,
        targets=targets,
    )
    functors = with_gradients(spec)
    limits = {kind.name: Limits(kind.max_operands, kind.max_results, kind.max_parameters) for kind in functors.values()}
    kernels = []
    for family in spec.kernels:
        with_members, errors = with_structs(family, package.max_rank, limits, groups)
        kernels.append(with_members)
        problems += errors
    names = frozenset(family.name for family in spec.families)
    return replace(
        spec,
        functors=functors,
        families=tuple(_with_functors(spec, family, functors, names) for family in spec.families),
        kernels=tuple(kernels),
    )


def _with_targets(backend: Backend, targets: Sequence[Target]) -> Backend:
    """The backend, whose code objects are for these targets unless it lists its own."""
    built = backend.code_objects
    if built is None or not targets:
        return backend
    ahead = {target.name: target.location for target in targets if not target.at_run_time}
    constants = {name: number for target in targets for name, number in target.constants.items()}
    listed = [
        replace(each, device_libraries=each.device_libraries and replace(each.device_libraries, constants=constants))
        for each in built.listed
    ]
    return replace(backend, code_objects=replace(built, targets=built.targets or ahead, listed=tuple(listed)))


def _numbered(formats: tuple[Format, ...], problems: list[Problem]) -> tuple[Format, ...]:
    """The formats; a number that two have is noted."""
    owners: dict[int, str] = {}
    for item in formats:
        if owners.setdefault(item.number, item.name) != item.name:
            message = f"number {item.number} is that of format '{owners[item.number]}' too; choose another"
            problems.append(Problem(item.location, message))
    return formats


def _known_dtypes(dtypes: tuple[DType, ...], problems: list[Problem]) -> tuple[DType, ...]:
    """The dtypes; one that another needs, and that there is not, is noted."""
    known = [dtype.name for dtype in dtypes]
    for dtype in dtypes:
        needs = {"computes in": dtype.compute, "has parts of": dtype.real, "is reduced in": dtype.joined_as}
        for needed, other in needs.items():
            if other and other not in known:
                message = f"dtype '{dtype.name}' {needed} unknown dtype '{other}'"
                problems.append(Problem(dtype.location, message + unknown_dtype(other, known)))
    return dtypes


def _functor_kind(document: Document, problems: list[Problem]) -> FunctorKind:
    kind = document.stem
    if kind not in FUNCTOR_KINDS:
        message = f"unknown functor kind '{kind}'; name the file after one of {', '.join(FUNCTOR_KINDS)}"
        problems.append(Problem(Location(document.path), message))
    # Ops that name their operands have no more in common.
    record = decode(FunctorKind, document, problems, kind if kind in FUNCTOR_KINDS else NAMED)
    return _with_reasons(record) if record.unsupported else record


@memoize(lambda spec: (spec,), size=16)
def _with_reasons(kind: FunctorKind) -> FunctorKind:
    """A kind of functors that lack dtypes for the same reason, unless they give their own."""
    return replace(kind, functors=tuple(_with_reason(each, kind.unsupported) for each in kind.functors))


@memoize(lambda functor, reason: (functor, reason))
def _with_reason(functor: Functor, reason: str) -> Functor:
    return replace(functor, unsupported=functor.unsupported or reason)


def _family_of(kind: FunctorKind, functor: Functor, names: Collection[str]) -> str | None:
    """Return the family of a functor's method; `names` are all families."""
    own = f"{functor.family}_gradient"
    return own if functor.is_gradient and own in names else functor.family or kind.family


@memoize(
    lambda spec, family, kinds, names: (
        family,
        names,
        spec.primitives,
        spec.known_dtypes,
        spec.package,
        *kinds.values(),
    )
)
def _with_functors(spec: Spec, family: Family, kinds: Mapping[str, FunctorKind], names: Collection[str]) -> Family:
    """Return a family with the functors that are methods of their own, besides the method of their kind."""
    own_kinds = {method.kind for method in family.methods}
    functors = [
        functor_method(kind, functor)
        for kind in kinds.values()
        for functor in kind.methods
        if _family_of(kind, functor, names) == family.name or (functor.family is None and kind.name in own_kinds)
    ]
    functors = [with_row_gradient(spec, kinds, method) for method in functors]
    return replace(family, methods=(*family.methods, *functors))
