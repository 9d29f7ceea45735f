"""Views of the backends: their choice at import, the dummies, the ops, and users' ops."""

from types import SimpleNamespace as View

from opgen.launch_ops import launch_packages
from opgen.model.backends import Backend
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.dispatch_names import backend_classes, ops_names
from opgen.views.python import quoted


def backends(spec: Spec) -> View:
    """The choice between each backend's runtime and its dummy."""
    devices, storages = backend_classes(spec, "Device"), backend_classes(spec, "Storage")
    blocks = backend_classes(spec, "Storage", "Q")
    exports = (*devices, *storages, *blocks, *error_classes(spec), *ops_names(spec))
    return View(
        backends=[_import(spec, backend) for backend in spec.backends],
        exports=list(map(quoted, exports)),
        devices=devices,
        storages=storages,
        blocks=blocks,  # the storages of block-quantized weights
    )


def has_error_class(spec: Spec, backend: Backend) -> bool:
    """Return whether opgen emits the class of errors of a backend's library."""
    return backend.array is not None and "device" not in spec.own_modules.get(backend.package or "", ())


def error_classes(spec: Spec) -> list[str]:
    """Return the classes of errors of the libraries of backends."""
    return [f"{backend.class_prefix}Error" for backend in spec.backends if has_error_class(spec, backend)]


def _import(spec: Spec, backend: Backend) -> View:
    """Where the classes and the ops of one backend come from."""
    prefix, dummy = backend.class_prefix, f"dummy_{backend.name}_backend"
    ops = [] if backend.package is None else [f"ops as {backend.name}"]
    installed = [f"installed({quoted(module)})" for module in backend.modules]
    return View(
        made_from=(Location(backend.path),),
        condition=" and ".join([] if backend.package is None else installed),  # where its runtime is imported
        module=backend.package or dummy,
        dummy=dummy,
        names=[
            f"{prefix}Device",
            f"{prefix}Storage",
            f"Q{prefix}Storage",
            *([f"{prefix}Error"] if has_error_class(spec, backend) else []),
            *ops,
        ],
    )


def dummy(spec: Spec, backend: Backend) -> View:
    """The dummy of a backend."""
    # Without these it replaces the runtime, if there is one.
    modules = () if backend.package is None else backend.modules
    return View(
        backend=backend,
        modules=modules,
        has_error_class=has_error_class(spec, backend),
    )


def ops(spec: Spec, backend: Backend) -> View:
    """The ops of a backend: where each module is that its cells name."""
    lowerings = (each for table in spec.lowerings[backend.name].values() for each in table.values())
    called = sorted({call.module for lowering in lowerings for call in lowering.calls})

    def home(module: str) -> str:
        if module in launch_packages(spec):
            return "...kernels"
        package = next(each for each in spec.packages[backend.name] if module in spec.modules.get(each, {}))
        return f"...runtime.backends.{package}.ops"

    return View(
        backend=backend,
        operand=f"{home('operand')}.operand",  # the module of the class Operand
        modules={module: home(module) for module in called},
        exports=[quoted(name) for name in ("Operand", *called)],
    )


def kernel_backend(spec: Spec, backend: Backend) -> View:
    """The modules of a backend whose family computes with kernels."""
    libraries = [
        View(
            name=each.name,
            class_name=each.class_name,
            home=f"{package_with(spec, backend, each.module)}.{each.module}",
        )
        for each in backend.libraries
    ]
    return View(backend=backend, libraries=libraries)


def package_with(spec: Spec, backend: Backend, module: str) -> str:
    """The package of the runtime that has a module of a backend, its own or one that it extends, for imports."""
    package = next((p for p in spec.packages[backend.name] if module in spec.own_modules[p]), backend.package)
    return f"..runtime.backends.{package}"


def custom_op(spec: Spec) -> View:
    """The classes that users derive their ops from, with a method for each backend."""
    methods = [method for method in spec.storage_methods() if method.custom_class is not None]
    classes = [
        View(
            made_from=(method.location,),
            name=method.custom_class,
            doc=_base_class(method),
            task="Change the first storage" if _is_in_place(method) else "Return a storage and its shape",
            method=method.name,  # of a storage, that applies its ops
            forwards=[_forward(method, backend) for backend in spec.backends],
        )
        for method in methods
    ]
    return View(storages=backend_classes(spec, "Storage"), classes=classes)


def _is_in_place(method: Method) -> bool:
    return method.signature.returns == "None"


def _base_class(method: Method) -> str:
    operands = ("one tensor", "two tensors", "three tensors")[len(method.operands) - 1]
    task = "changes the first one in place" if _is_in_place(method) else "computes a new tensor"
    return (
        f"Base class for an op on {operands} that {task}.\n\nDefine the method of each backend that it is to run on. "
        f"`Tensor.{method.name}` applies it, and has an example."
    )


def _forward(method: Method, backend: Backend) -> View:
    """The method of a user's op for one backend."""
    storage = f"{backend.class_prefix}Storage"
    parameters = ["self", f"storage: {storage}"]
    for parameter in method.signature.parameters:
        if parameter.name != "op":
            parameters.append(f"{parameter.name}: {parameter.type.replace('Storage', storage)}")
    returns = method.signature.returns.replace("Storage", storage)
    made_from = (Location(backend.path), method.location)
    return View(made_from=made_from, backend=backend.name, parameters=", ".join(parameters), returns=returns)


def quantized_matmul(spec: Spec) -> View:
    """An op of the package's own, with the methods of CustomOp1."""
    return _op_of_class(spec, "CustomOp1")


def kernel_op(spec: Spec) -> View:
    """An op of the package's own, with the methods of InplaceOp1."""
    return _op_of_class(spec, "InplaceOp1")


def _op_of_class(spec: Spec, name: str) -> View:
    view = custom_op(spec)
    forwards = (each.forwards for each in view.classes if each.name == name)
    return View(storages=view.storages, forwards=next(forwards, ()))
