"""Views of what tells the backends apart: their choice at import, the dummies, the ops, and the ops of users."""

from collections.abc import Mapping
from typing import NamedTuple

from opgen.model import Backend, Spec
from opgen.views.dispatch import backend_classes, ops_names
from opgen.views.python import quoted


def backend_of(spec: Spec, package: str | None) -> Backend:
    """The backend whose runtime is a subpackage."""
    return next(backend for backend in spec.backends if backend.package == package)


class ImportView(NamedTuple):
    """Where the classes and the ops of one backend come from."""

    condition: str | None  # where its runtime is imported, and its dummy elsewhere
    module: str
    dummy: str
    names: tuple[str, ...]


class BackendsView(NamedTuple):
    """backends.py: the classes of every backend, the runtime's or the dummy's."""

    backends: tuple[ImportView, ...]
    exports: tuple[str, ...]
    devices: tuple[str, ...]
    storages: tuple[str, ...]
    blocks: tuple[str, ...]  # the storages of weights in blocks


def backends_module(spec: Spec, _: str | None) -> BackendsView:
    """The choice between each backend's runtime and its dummy."""
    devices, storages = backend_classes(spec, "Device"), backend_classes(spec, "Storage")
    blocks = backend_classes(spec, "Storage", "Q")
    exports = (*devices, *storages, *blocks, *ops_names(spec))
    return BackendsView(tuple(map(_import, spec.backends)), tuple(map(quoted, exports)), devices, storages, blocks)


def _import(backend: Backend) -> ImportView:
    dummy = f"dummy_{backend.name}_backend"
    classes = tuple(
        f"{prefix}{backend.class_prefix}{kind}" for prefix, kind in (("", "Device"), ("", "Storage"), ("Q", "Storage"))
    )
    if backend.package is None:
        return ImportView(None, dummy, dummy, classes)
    condition = " and ".join(f"installed({quoted(module)})" for module in backend.modules)
    return ImportView(condition or None, backend.package, dummy, (*classes, f"ops as {backend.name}"))


class DummyView(NamedTuple):
    """A dummy module."""

    name: str
    prefix: str
    reason: str
    modules: tuple[str, ...]  # without which it takes the place of the runtime, if there is one
    extra: str | None


def dummy_backend(spec: Spec, member: str | None) -> DummyView:
    """The dummy of the backend named `member`."""
    backend = next(backend for backend in spec.backends if backend.name == member)
    reason = backend.missing or f"its packages are not installed; pip install '{spec.package.name}[{backend.extra}]'"
    modules = () if backend.package is None else backend.modules
    return DummyView(backend.name, backend.class_prefix, reason, modules, backend.extra)


class OpsView(NamedTuple):
    """ops/__init__.py of a backend: where each module is that its cells name."""

    name: str
    operand: str  # the module of the class Operand
    modules: Mapping[str, str]  # and the package of each
    exports: tuple[str, ...]


def backend_ops(spec: Spec, member: str | None) -> OpsView:
    """The ops of the backend whose runtime is the subpackage `member`."""
    backend = backend_of(spec, member)
    called = {
        call.module
        for lowerings in spec.lowerings[backend.name].values()
        for lowering in lowerings.values()
        for call in lowering.calls
    }
    packages = spec.packages[backend.name]
    homes = {module: next(p for p in packages if module in spec.modules.get(p, {})) for module in sorted(called)}
    operand = next(p for p in packages if "operand" in spec.modules.get(p, {}))
    where = {module: _home(package) for module, package in homes.items()}
    exports = tuple(map(quoted, ("Operand", *where)))
    return OpsView(backend.name, f"{_home(operand)}.operand", where, exports)


def _home(package: str) -> str:
    return f"...runtime.backends.{package}.ops"


class LibraryRow(NamedTuple):
    """A vendor's library, and the class that opens it."""

    name: str
    class_name: str
    home: str  # the module of the class, as it is imported


class GpuView(NamedTuple):
    """The modules of one backend of the family gpu."""

    backend: Backend
    driver: str  # its module, as it is imported
    libraries: tuple[LibraryRow, ...]


def gpu_backend(spec: Spec, member: str | None) -> GpuView:
    """The backend whose runtime is the subpackage `member`."""
    backend = backend_of(spec, member)

    def home(module: str) -> str:
        package = next((p for p in spec.packages[backend.name] if module in spec.own_modules[p]), backend.package)
        return f"..runtime.backends.{package}.{module}"

    rows = (LibraryRow(library.name, library.class_name, home(library.module)) for library in backend.libraries)
    return GpuView(backend, home("driver"), tuple(rows))


class ForwardView(NamedTuple):
    """The method of a user's op for one backend."""

    backend: str
    parameters: str
    returns: str


class CustomClassView(NamedTuple):
    """One of CustomOp1..3 and InplaceOp1..3."""

    name: str
    doc: str
    method: str  # of a storage, that applies its ops
    forwards: tuple[ForwardView, ...]


class CustomOpView(NamedTuple):
    """custom_op.py: the classes that users derive their ops from."""

    storages: tuple[str, ...]
    classes: tuple[CustomClassView, ...]


def custom_op(spec: Spec, _: str | None) -> CustomOpView:
    """The base classes of users' ops, with a method for each backend."""
    classes = []
    for method in spec.storage_methods():
        name = method.custom_class
        if name is None:
            continue
        forwards = []
        for backend in spec.backends:
            storage = f"{backend.class_prefix}Storage"
            parameters = ["self", f"storage: {storage}"]
            for parameter in method.signature.parameters:
                if parameter.name != "op":
                    parameters.append(f"{parameter.name}: {parameter.type.replace('Storage', storage)}")
            returns = method.signature.returns.replace("Storage", storage)
            forwards.append(ForwardView(backend.name, ", ".join(parameters), returns))
        doc = method.doc.replace("Run a", "A").strip()
        classes.append(CustomClassView(name, doc, method.name, tuple(forwards)))
    return CustomOpView(backend_classes(spec, "Storage"), tuple(classes))


class KernelOpView(NamedTuple):
    """An op of the package's own: kernel_op.py or quantized/matmul.py."""

    storages: tuple[str, ...]
    forwards: tuple[ForwardView, ...]


def custom_op_of_one(spec: Spec, _: str | None) -> KernelOpView:
    """The methods of CustomOp1, for every backend."""
    return _methods_of(spec, "CustomOp1")


def kernel_op(spec: Spec, _: str | None) -> KernelOpView:
    """The methods of InplaceOp1, which KernelOp1 has for every backend."""
    return _methods_of(spec, "InplaceOp1")


def _methods_of(spec: Spec, name: str) -> KernelOpView:
    view = custom_op(spec, None)
    forwards = (item.forwards for item in view.classes if item.name == name)
    return KernelOpView(view.storages, next(forwards, ()))
