"""Stage 3, last part: what cells call, found in the modules of the ops of the backends."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from opgen.errors import raised_by_checks
from opgen.model import Backend, Callable, FunctionCall, Method, PublicModule, Spec
from opgen.problem import Location, Problem, did_you_mean
from opgen.sources import BACKENDS, RUNTIME, Sources
from opgen.views.dispatch import call_arguments, custom_class

_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
# The module of the class Operand, in which a call is given a storage and its layout.
_OPERAND = "operand"


@dataclass(frozen=True)
class _Module:
    path: PurePosixPath
    functions: Mapping[str, Callable] | None  # None where it is no Python


def resolve(spec: Spec, sources: Sources, problems: list[Problem]) -> Spec:
    """The spec with the functions that its cells may call; calls that nothing answers go to `problems`."""
    modules = {package: _modules(package, sources) for packages in spec.packages.values() for package in packages}
    missing = _note_missing(spec, sources, problems)
    # A cell of a family serves several backends: what is wrong with it is noted once.
    mistakes: dict[tuple[FunctionCall, str], str] = {}
    own = {package: _python(sources, BACKENDS / package) for package in modules}
    for backend in spec.backends:
        packages = spec.packages[backend.name]
        if packages and missing.isdisjoint(packages):
            _check_libraries(spec, backend, own, sources, problems)
            ops = {name: module for package in reversed(packages) for name, module in modules[package].items()}
            folders = " or ".join(f"{BACKENDS / package}/ops" for package in packages)
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
        raised=raised_by_checks(sources),
        public=_public(spec, sources, problems),
    )


def _public(spec: Spec, sources: Sources, problems: list[Problem]) -> dict[str, PublicModule]:
    """What the modules that users import are made of."""
    found: dict[str, PublicModule] = {}
    for name, (home, location) in spec.package.public.items():
        module = sources.public(home)
        if module is not None:
            found[name] = module
        else:
            known = (str(path.relative_to(RUNTIME).with_suffix("")) for path in sources.below(RUNTIME))
            message = f"module '{name}' has the names of {RUNTIME / home}, which is not there"
            problems.append(Problem(location, message + did_you_mean(home, known, "write it")))
    return found


def _modules(package: str, sources: Sources) -> dict[str, _Module]:
    """The modules of a subpackage's ops."""
    paths = _python(sources, BACKENDS / package / "ops")
    return {name: _Module(path, sources.functions(path)) for name, path in paths.items()}


def _python(sources: Sources, folder: PurePosixPath) -> dict[str, PurePosixPath]:
    """The Python modules in a folder by their names."""
    return {path.stem: path for path in sources.below(folder) if path.parent == folder and path.suffix == ".py"}


def _note_missing(spec: Spec, sources: Sources, problems: list[Problem]) -> set[str]:
    """The subpackages that the spec names and that the runtime lacks, each of which is noted."""
    owners = {family.package: Location(family.path) for family in spec.backend_families}
    owners.update({backend.package: backend.place("runtime") for backend in spec.backends if backend.package})
    found = {name for path in sources.below(BACKENDS) for name in path.parts[2:3]}
    # A backend that extends another one may leave all modules to it, and that of an array library is made for it.
    others = {backend.name for backend in spec.backends}
    spared = {backend.package for backend in spec.backends if backend.extends in others or backend.array is not None}
    torn = {problem.location.path for problem in problems}
    for name, place in owners.items():
        if name not in found | spared and place.path not in torn:
            message = f"package '{name}' has no modules; write them below {BACKENDS / name}"
            problems.append(Problem(place, message))
    return {*owners} - found - spared


def _check_libraries(
    spec: Spec,
    backend: Backend,
    own: Mapping[str, Mapping[str, PurePosixPath]],
    sources: Sources,
    problems: list[Problem],
) -> None:
    """Note the libraries of a backend that neither its package nor one that it extends has a class for."""
    packages = spec.packages[backend.name]
    folder = BACKENDS / packages[0]
    modules = {name: path for package in reversed(packages) for name, path in own[package].items()}
    for library in backend.libraries:
        classes = _CLASS.findall(sources.text(modules[library.module]) or "") if library.module in modules else []
        if library.module not in modules:
            message = f"library '{library.name}' is opened by module '{library.module}', which {folder} lacks"
            problems.append(Problem(library.location, message + did_you_mean(library.module, modules)))
        elif library.class_name not in classes:
            path = modules[library.module]
            message = f"library '{library.name}' is opened by class '{library.class_name}', which {path} lacks"
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
    if module.functions is None:
        return None  # which is noted
    function = module.functions.get(call.function)
    if function is None:
        mend = did_you_mean(call.function, module.functions) if module.functions else "; write it"
        return f", but {module.path} has no function '{call.function}'{mend}"
    given = [call.library] if call.library is not None else []
    given += [argument.removeprefix(".") for argument in call_arguments(method, "")]
    if not function.fits(given):
        mend = "give it these parameters or call another function"
        return f" with ({', '.join(given)}), but it takes ({function}); {mend}"
    return None
