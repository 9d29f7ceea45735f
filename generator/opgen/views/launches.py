"""The view of launches: the ops of a module, and the functions that they call."""

from types import SimpleNamespace as View

from opgen.launch_ops import launch_packages
from opgen.model.emitted_ops import HOST_MODULE
from opgen.model.spec import Spec
from opgen.terms import alias_of
from opgen.views.dispatch_names import argument_names


def launches(spec: Spec, package: str) -> View:
    """The ops that launch the kernels of a package as spec/kernels says."""
    packages = launch_packages(spec)
    is_host = packages[HOST_MODULE] == package
    own = [op for op in spec.launch_ops.values() if packages[op.module] == package]
    home, modules, types = f"runtime.backends.{package}", spec.modules.get(package, {}), argument_names(spec)
    # What signatures name, what any launch may need, and the modules of the functions that they call.
    imports: dict[str, list[str]] = {
        name: types[name] for name in ("runtime.core.conv", "runtime.core.pool") if name in types
    }
    if is_host:
        imports[f"{home}.values"] = ["RUN_PARTS", "THREADS"]
    for function in ("contiguous", *["blocks_of"] * (not is_host)):
        module = next((module for module, functions in modules.items() if function in functions), function)
        imports.setdefault(f"{home}.ops.{module}", []).append(function)
    for module in sorted({module for op in own for module, _ in op.calls}):
        folder = home if module in spec.own_modules.get(package, ()) else f"{home}.ops"
        folder = folder if module in modules or folder == home else "runtime.backends"
        imports.setdefault(folder, []).append(f"{module} as {alias_of(module)}")
    packers = "host_arguments as arguments" if is_host else "arguments"
    return View(ops=own, package=package, is_host=is_host, imports=imports, packers=packers)
