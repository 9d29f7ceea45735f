"""Stage 3, last part: what cells call, found in the templates of the ops of the backends."""

from collections.abc import Mapping
from dataclasses import replace

from opgen.model import Callable, FunctionCall, Method, Spec
from opgen.problem import Problem, did_you_mean
from opgen.templates import Templates
from opgen.views.dispatch import call_arguments


def resolve(spec: Spec, templates: Templates, problems: list[Problem]) -> Spec:
    """The spec with the functions that its cells may call; calls that nothing answers go to `problems`."""
    modules: dict[str, dict[str, Mapping[str, Callable]]] = {
        package: {} for packages in spec.packages.values() for package in packages
    }
    for path in templates.paths:
        match path.parts:
            case (spec.package.name, package, "ops", file) if package in modules:
                modules[package][file.partition(".")[0]] = templates.functions(path)
    spec = replace(spec, modules=modules)
    _check_calls(spec, problems)
    return spec


def _check_calls(spec: Spec, problems: list[Problem]) -> None:
    """Note the calls of cells that no function of the ops answers, or that it takes other arguments for."""
    seen = set()
    for backend in spec.backends:
        packages = spec.packages[backend.name]
        modules = {name: module for package in reversed(packages) for name, module in spec.modules[package].items()}
        for method in (*spec.storage_methods(), *spec.device_methods):
            for lowerings in (spec.lowerings[backend.name].get((method.name, op), {}) for op in spec.ops(method)):
                for call in (call for lowering in lowerings.values() for call in lowering.calls):
                    if (call, method.name) not in seen:
                        seen.add((call, method.name))
                        _check_call(spec, modules, method, call, packages, problems)


def _check_call(
    spec: Spec,
    modules: Mapping[str, Mapping[str, Callable]],
    method: Method,
    call: FunctionCall,
    packages: tuple[str, ...],
    problems: list[Problem],
) -> None:
    folders = " or ".join(f"templates/{spec.package.name}/{package}/ops" for package in packages)
    if call.module not in modules:
        message = f"'{method.name}' calls '{call}', but {folders} has no module '{call.module}'"
        problems.append(Problem(call.location, message + did_you_mean(call.module, modules)))
        return
    function = modules[call.module].get(call.function)
    if function is None:
        message = f"'{method.name}' calls '{call}', which module '{call.module}' of {folders} does not define"
        problems.append(Problem(call.location, message + did_you_mean(call.function, modules[call.module])))
        return
    given = len(call_arguments(method)) + (call.library is not None)
    if given < function.required or (given > len(function.parameters) and not function.takes_more):
        takes = ", ".join(function.parameters)
        message = f"'{method.name}' gives '{call}' {given} arguments, but it takes ({takes}); choose another function"
        problems.append(Problem(call.location, message))
