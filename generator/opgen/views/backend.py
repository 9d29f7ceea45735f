"""Views of what the backends have in common: their abstract classes, their choice at import, and the dummies."""

from dataclasses import dataclass

from opgen.matrix import method_cells
from opgen.model import Backend, Method, Spec
from opgen.signature import Signature
from opgen.views.method import custom_class, definition, types_in
from opgen.views.python import docstring, import_lines, quoted, wrapped


@dataclass(frozen=True)
class StubView:
    """A method without its body."""

    definition: str
    doc: str
    is_abstract: bool = True


@dataclass(frozen=True)
class AbstractView:
    """backend.py: what every backend's storage and device must have."""

    imports: str
    storage_methods: tuple[StubView, ...]
    device_methods: tuple[StubView, ...]


_MODULES = {"DType": ".dtype", "Layout": ".layout", "Shape": ".shape", "Sequence": "collections.abc"}


def _implemented(spec: Spec) -> list[Method]:
    """The storage methods that a backend's storage has: all but its fields and the users' ops."""
    return [method for method in spec.storage_methods() if method.signature.parameters and custom_class(method) is None]


def _stub(method: Method, signature: Signature, *, own: bool, is_abstract: bool = True) -> StubView:
    text = method.doc.strip().split("\n\n")[0]
    return StubView(definition(signature, own=own), docstring(text, 8), is_abstract)


def _is_everywhere(spec: Spec, method: Method) -> bool:
    """Whether every backend with a runtime does something of a method. One that does not need not write it."""
    return all(
        any(cell.status != "unsupported" for op in spec.ops(method) for cell in method_cells(spec, method, op, backend))
        for backend in spec.backends
        if backend.runtime is not None
    )


def _imports(methods: list[Method]) -> dict[str, set[str]]:
    modules: dict[str, set[str]] = {}
    for method in methods:
        for name in types_in(method.signature):
            if name.startswith("Params"):
                modules.setdefault(".conv", set()).add(name)
            elif name.endswith("Op"):
                modules.setdefault(".op", set()).add(name)
            elif name in _MODULES and name != "Sequence":
                modules.setdefault(_MODULES[name], set()).add(name)
    return modules


def abstract_backend(spec: Spec, _: str | None) -> AbstractView:
    """The abstract storage and device."""
    methods = _implemented(spec)
    modules = _imports([*methods, *spec.device_methods])
    modules.setdefault(".dtype", set()).update(("Array", "DType"))
    storage = []
    for method in methods:
        storage.append(_stub(method, method.signature, own=True, is_abstract=_is_everywhere(spec, method)))
    device = []
    for method in spec.device_methods:
        returns = method.signature.returns.replace("Storage", "BackendStorage")
        signature = Signature(method.name, method.signature.parameters, returns)
        device.append(_stub(method, signature, own=False, is_abstract=_is_everywhere(spec, method)))
    return AbstractView(import_lines(modules), tuple(storage), tuple(device))


@dataclass(frozen=True)
class ChoiceView:
    """Where a backend's classes come from."""

    name: str
    device: str
    storage: str
    runtime: str | None
    dummy: str
    condition: str | None  # what must hold for the runtime to be imported; None where nothing is needed


@dataclass(frozen=True)
class BackendsView:
    """backends.py: the classes of every backend, the runtime's or the dummy's."""

    always: str
    choices: tuple[ChoiceView, ...]
    storages: str
    devices: str
    exports: tuple[str, ...]


def backends_module(spec: Spec, _: str | None) -> BackendsView:
    """The choice between each backend's runtime and its dummy."""
    always: dict[str, set[str]] = {}
    choices = []
    for backend in spec.backends:
        device, storage = f"{backend.class_prefix}Device", f"{backend.class_prefix}Storage"
        if backend.runtime is None or not backend.modules:
            always[f".{backend.runtime or dummy_module(backend)}"] = {device, storage}
        else:
            condition = " and ".join(f"installed({quoted(module)})" for module in backend.modules)
            choices.append(ChoiceView(backend.name, device, storage, backend.runtime, dummy_module(backend), condition))
    storages = [f"{backend.class_prefix}Storage" for backend in spec.backends]
    devices = [f"{backend.class_prefix}Device" for backend in spec.backends]
    return BackendsView(
        always=import_lines(always),
        choices=tuple(choices),
        storages=" | ".join(storages),
        devices=" | ".join(devices),
        exports=tuple(sorted([*storages, *devices, "AnyDevice", "AnyStorage"])),
    )


def dummy_module(backend: Backend) -> str:
    """The module that stands in for a backend without its runtime."""
    return f"dummy_{backend.name}_backend"


@dataclass(frozen=True)
class DummyView:
    """A dummy module."""

    name: str
    doc: str
    device: str
    storage: str
    reason: str
    imports: str
    storage_methods: tuple[StubView, ...]
    device_methods: tuple[StubView, ...]


def dummy_backend(spec: Spec, member: str | None) -> DummyView:
    """The dummy of the backend named `member`."""
    backend = next(backend for backend in spec.backends if backend.name == member)
    methods = _implemented(spec)
    modules = _imports([*methods, *spec.device_methods])
    modules.setdefault(".dtype", set()).update(("Array", "DType"))
    modules[".backend"] = {"BackendDevice", "BackendStorage"}
    modules[".error"] = {"BackendUnavailable"}
    device, storage = f"{backend.class_prefix}Device", f"{backend.class_prefix}Storage"
    stubs = []
    for method in spec.device_methods:
        returns = method.signature.returns.replace("Storage", storage)
        stubs.append(StubView(definition(Signature(method.name, method.signature.parameters, returns), own=False), ""))
    reason = backend.missing or f"its packages are not installed; pip install '{spec.package.name}[{backend.extra}]'"
    return DummyView(
        name=backend.name,
        doc=backend.doc,
        device=device,
        storage=storage,
        reason=quoted(reason),
        imports=import_lines(modules),
        storage_methods=tuple(_stub(method, method.signature, own=True) for method in methods),
        device_methods=tuple(stubs),
    )


@dataclass(frozen=True)
class ForwardView:
    """The method of a user's op for one backend."""

    backend: str
    definition: str


@dataclass(frozen=True)
class CustomClassView:
    """One of CustomOp1..3 and InplaceOp1..3."""

    name: str
    doc: str
    method: str  # of a storage, that applies its ops
    forwards: tuple[ForwardView, ...]


@dataclass(frozen=True)
class CustomOpView:
    """custom_op.py: the classes that users derive their ops from."""

    imports: str
    classes: tuple[CustomClassView, ...]


def custom_op(spec: Spec, _: str | None) -> CustomOpView:
    """The base classes of users' ops, with a method for each backend."""
    classes = []
    for method in spec.storage_methods():
        name = custom_class(method)
        if name is None:
            continue
        forwards = []
        for backend in spec.backends:
            storage = f"{backend.class_prefix}Storage"
            parameters = ["self", f"storage: {storage}"] + [
                f"{p.name}: {p.type.replace('Storage', storage)}" for p in method.signature.parameters if p.name != "op"
            ]
            returns = method.signature.returns.replace("Storage", storage)
            head = f"def {backend.name}_fwd("
            forwards.append(ForwardView(backend.name, wrapped(head, parameters, f") -> {returns}:", 4)))
        doc = method.doc.replace("Run a", "A").strip()
        classes.append(CustomClassView(name, docstring(doc, 4), method.name, tuple(forwards)))
    storages = {f"{backend.class_prefix}Storage" for backend in spec.backends}
    imports = import_lines(
        {".backends": storages, ".layout": {"Layout"}, ".shape": {"Shape"}, ".user_op": {"UserOp", "unwritten"}}
    )
    return CustomOpView(imports, tuple(classes))
