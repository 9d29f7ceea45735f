"""Views of the package as a whole: its metadata, its README, its __init__ and its limits."""

import json
from pathlib import PurePosixPath
from typing import NamedTuple

from opgen.matrix import cells
from opgen.model import Package, Spec
from opgen.sources import RUNTIME
from opgen.views.dispatch import op_classes
from opgen.views.python import quoted


class ExtraView(NamedTuple):
    """The optional dependencies of one backend, or of a part of the package."""

    name: str
    requires: str


class SupportRow(NamedTuple):
    """How many cells of a backend have which status."""

    backend: str
    doc: str
    supported: int
    unsupported: int


class PackageView(NamedTuple):
    """What pyproject.toml, README.md and __init__.py say."""

    package: Package
    doc: str
    description: str  # for TOML, as are the requirements
    requires: str
    extras: tuple[ExtraView, ...]
    backends: tuple[str, ...]  # their classes
    ops: str
    custom_ops: str
    exports: tuple[str, ...]
    support: tuple[SupportRow, ...]


# What the package exports besides the classes that the spec names.
_EXPORTS = (
    "BackendUnavailable",
    "CaptureError",
    "CompilationFailed",
    "DType",
    "DTypeMismatch",
    "Device",
    "DeviceMismatch",
    "EmptyTensor",
    "FileError",
    "FusionError",
    "GgmlDType",
    "Graph",
    "InvalidArgument",
    "InvalidIndex",
    "InvalidLayout",
    "Kernel",
    "KernelOp1",
    "Layout",
    "MissingFile",
    "MissingPackage",
    "MissingTensor",
    "OutOfMemory",
    "ParamsConv1D",
    "ParamsConv2D",
    "ParamsConvTranspose1D",
    "ParamsConvTranspose2D",
    "Shape",
    "ShapeMismatch",
    "Storage",
    "QMatMul",
    "QStorage",
    "QTensor",
    "SupportCell",
    "TallowError",
    "Tensor",
    "UnsupportedDType",
    "UnsupportedDevice",
    "__version__",
    "arange",
    "cat",
    "deterministic",
    "devices",
    "doctor",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "fuse",
    "get_threads",
    "is_deterministic",
    "linspace",
    "load_safetensors",
    "ones",
    "open_safetensors",
    "rand",
    "randn",
    "save_safetensors",
    "set_print_options",
    "set_threads",
    "stack",
    "support",
    "tensor",
    "zeros",
)


def _toml(text: str) -> str:
    # Of texts without control characters, JSON's form is TOML's too.
    return json.dumps(text, ensure_ascii=False)


def package(spec: Spec, _: str | None) -> PackageView:
    """The package."""
    own = {backend.extra: backend.requires for backend in spec.backends if backend.extra is not None}
    extras = {**spec.package.extras, **own}
    custom = [name for method in spec.storage_methods() if (name := method.custom_class) is not None]
    ops = op_classes(spec)
    classes = ("{}Device", "{}Storage", "Q{}Storage")
    backends = [name.format(backend.class_prefix) for backend in spec.backends for name in classes]
    every = cells(spec)
    rows = []
    for backend in spec.backends:
        of_backend = [cell.status for cell in every if cell.backend == backend.name]
        counts = [of_backend.count(status) for status in ("supported", "unsupported")]
        rows.append(SupportRow(backend.name, backend.doc.replace("|", "\\|"), *counts))
    return PackageView(
        package=spec.package,
        doc=spec.package.summary,
        description=_toml(spec.package.summary),
        requires=", ".join(map(_toml, spec.package.requires)),
        extras=tuple(ExtraView(name, ", ".join(map(_toml, requires))) for name, requires in extras.items()),
        backends=tuple(backends),
        ops=", ".join(ops),
        custom_ops=", ".join(custom),
        exports=tuple(sorted([*_EXPORTS, *backends, *ops, *custom])),
        support=tuple(rows),
    )


class PublicView(NamedTuple):
    """A module that users import, which has the names of one of the runtime."""

    doc: str
    package: str  # the runtime, as it is imported
    home: str
    names: tuple[str, ...]
    exports: tuple[str, ...]
    has_main: bool  # whether it is a program


def public_module(spec: Spec, member: str | None) -> PublicView:
    """The module `member`."""
    assert member is not None
    module = spec.public[member]
    package = f"{'.' * len(PurePosixPath(member).parts)}{RUNTIME}"
    home = f"{package}.{module.home.replace('/', '.')}"
    return PublicView(module.doc, package, home, module.names, tuple(map(quoted, module.names)), "main" in module.names)


class LimitsView(NamedTuple):
    """limits.py."""

    max_rank: int


def limits(spec: Spec, _: str | None) -> LimitsView:
    """The numbers that the package promises."""
    return LimitsView(spec.package.max_rank)
