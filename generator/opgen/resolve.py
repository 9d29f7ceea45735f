"""Stage 3, last part: what cells call, found in the templates of the ops of the backends."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from opgen.errors import raised_by_checks
from opgen.model import Backend, Callable, FunctionCall, Method, Spec
from opgen.problem import Location, Problem, did_you_mean
from opgen.templates import Templates
from opgen.views.dispatch import call_arguments, custom_class

_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
# The module of the class Operand, in which a call is given a storage and its layout.
_OPERAND = "operand"


@dataclass(frozen=True)
class _Module:
    template: PurePosixPath
    functions: Mapping[str, Callable] | None  # None where the template is no Python as it stands


def resolve(spec: Spec, templates: Templates, problems: list[Problem]) -> Spec:
    """The spec with the functions that its cells may call; calls that nothing answers go to `problems`."""
    modules = {
        package: _modules(spec, package, templates) for packages in spec.packages.values() for package in packages
    }
    missing = _note_missing(spec, templates, problems)
    # A cell of a family serves several backends: what is wrong with it is noted once.
    mistakes: dict[tuple[FunctionCall, str], str] = {}
    own = {package: _python(templates, PurePosixPath(spec.package.name, package)) for package in modules}
    for backend in spec.backends:
        packages = spec.packages[backend.name]
        if packages and missing.isdisjoint(packages):
            _check_libraries(spec, backend, own, templates, problems)
            ops = {name: module for package in reversed(packages) for name, module in modules[package].items()}
            folders = " or ".join(f"templates/{spec.package.name}/{package}/ops" for package in packages)
            if _OPERAND in ops:
                _check_calls(spec, backend, ops, folders, mistakes)
            else:
                message = f"{folders} has no module '{_OPERAND}'; write the modules that cells call, and this one"
                problems.append(Problem(backend.place("runtime"), f"{message} with the class Operand"))
    problems += [Problem(call.location, message) for (call, _), message in mistakes.items()]
    functions = {
        package: {name: module.functions or {} for name, module in found.items()} for package, found in modules.items()
    }
    return replace(
        spec,
        modules=functions,
        own_modules={package: frozenset(found) for package, found in own.items()},
        raised=raised_by_checks(templates, PurePosixPath(spec.package.name)),
    )


def _modules(spec: Spec, package: str, templates: Templates) -> dict[str, _Module]:
    """The modules of a subpackage's ops."""
    paths = _python(templates, PurePosixPath(spec.package.name, package, "ops"))
    return {name: _Module(path, templates.functions(path)) for name, path in paths.items()}


def _python(templates: Templates, folder: PurePosixPath) -> dict[str, PurePosixPath]:
    """The templates of Python modules in a folder, by the names of the modules."""
    paths = (path for path in templates.paths if path.parent == folder)
    return {path.name.partition(".")[0]: path for path in paths if path.name.removesuffix(".j2").endswith(".py")}


def _note_missing(spec: Spec, templates: Templates, problems: list[Problem]) -> set[str]:
    """The subpackages that the spec names and that have no templates, each of which is noted."""
    owners = {family.package: Location(family.path) for family in spec.backend_families}
    owners.update({backend.package: backend.place("runtime") for backend in spec.backends if backend.package})
    package = spec.package.name
    found = {name for path in templates.paths if path.parts[0] == package for name in path.parts[1:2]}
    # A backend that extends another one may leave all modules to it, and that of an array library is made for it.
    others = {backend.name for backend in spec.backends}
    spared = {backend.package for backend in spec.backends if backend.extends in others or backend.array is not None}
    torn = {problem.location.path for problem in problems}
    for name, place in owners.items():
        # That the whole package is missing, `plan` tells.
        if found and name not in found | spared and place.path not in torn:
            message = f"package '{name}' has no templates; write its modules below templates/{package}/{name}"
            problems.append(Problem(place, message))
    return {*owners} - found - spared


def _check_libraries(
    spec: Spec,
    backend: Backend,
    own: Mapping[str, Mapping[str, PurePosixPath]],
    templates: Templates,
    problems: list[Problem],
) -> None:
    """Note the libraries of a backend that neither its package nor one that it extends has a class for."""
    packages = spec.packages[backend.name]
    folder = PurePosixPath(spec.package.name, packages[0])
    modules = {name: path for package in reversed(packages) for name, path in own[package].items()}
    for library in backend.libraries:
        classes = _CLASS.findall(templates.text(modules[library.module]) or "") if library.module in modules else []
        if library.module not in modules:
            message = f"library '{library.name}' is opened by module '{library.module}', which templates/{folder} lacks"
            problems.append(Problem(library.location, message + did_you_mean(library.module, modules)))
        elif library.class_name not in classes:
            template = f"templates/{modules[library.module]}"
            message = f"library '{library.name}' is opened by class '{library.class_name}', which {template} lacks"
            problems.append(Problem(library.location, message + did_you_mean(library.class_name, classes)))


def _check_calls(
    spec: Spec,
    backend: Backend,
    ops: Mapping[str, _Module],
    folders: str,
    mistakes: dict[tuple[FunctionCall, str], str],
) -> None:
    """Note the calls of a backend's cells that no function of its ops answers, and libraries that it does not name."""
    libraries = [library.name for library in backend.libraries]
    for method, call in _calls(spec, backend):
        reason = _mistake(method, call, ops, folders)
        if reason is not None:
            mistakes.setdefault((call, method.name), f"'{method.name}' calls '{call}'{reason}")
        elif call.library is not None and call.library not in libraries:
            mend = did_you_mean(call.library, libraries) if libraries else "; write it to 'libraries'"
            message = f"'{method.name}' of backend '{backend.name}' calls the unknown library '{call.library}'{mend}"
            mistakes.setdefault((call, method.name), message)


def _calls(spec: Spec, backend: Backend) -> Iterator[tuple[Method, FunctionCall]]:
    table = spec.lowerings[backend.name]
    methods = (*spec.device_methods, *spec.storage_methods())
    # Of two methods of one name, which is noted, one is looked at.
    for method in {method.name: method for method in reversed(methods)}.values():
        # A user's op is not called, and of a method whose operands are wrong, what a call is given is not known.
        names = {name for operand in method.operands for name in (operand.name, operand.layout) if name is not None}
        if custom_class(method) is None and names <= {"self", *method.signature.arguments}:
            lowerings = (lowering for op in spec.ops(method) for lowering in table.get((method.name, op), {}).values())
            for call in dict.fromkeys(call for lowering in lowerings for call in lowering.calls):
                yield method, call


def _mistake(method: Method, call: FunctionCall, ops: Mapping[str, _Module], folders: str) -> str | None:
    """The end of the message about a call that none of `ops` answers; None where one does."""
    module = ops.get(call.module)
    if module is None:
        return f", but {folders} has no module '{call.module}'{did_you_mean(call.module, ops)}"
    template = f"templates/{module.template}"
    if module.functions is None:
        # Of a module that is copied as it is, `render` tells that it is no Python.
        rendered = f", but {template} is no Python before it is rendered; write the function to another module"
        return rendered if template.endswith(".j2") else None
    function = module.functions.get(call.function)
    if function is None:
        mend = did_you_mean(call.function, module.functions) if module.functions else "; write it"
        return f", but {template} has no function '{call.function}'{mend}"
    given = [call.library] if call.library is not None else []
    given += [argument.removeprefix(".") for argument in call_arguments(method, "")]
    if not function.fits(given):
        mend = "give it these parameters or call another function"
        return f" with ({', '.join(given)}), but it takes ({function}); {mend}"
    return None
