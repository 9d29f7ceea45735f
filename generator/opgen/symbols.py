"""Stage 3: the symbol table. Which names exist where, and the names of the spec that nothing answers to.

`read_symbols` reads what cells and docs follow from; `check_symbols` looks every other name up. At a name that is noted
here a compiler, an import or a call would fail.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePosixPath

from opgen.cache.memo import memoize
from opgen.cells import FunctionCall
from opgen.errors import CHECKS, check_functions
from opgen.expression import outer_names
from opgen.folders import BACKENDS, BASE, NUMERICS, RUNTIME
from opgen.kernel_symbols import check_kernels, with_headers
from opgen.launch_ops import launch_ops, launch_packages
from opgen.model.backends import Backend
from opgen.model.callables import Callable
from opgen.model.methods import Method
from opgen.model.package import PublicModule
from opgen.model.spec import Spec
from opgen.problem import Location, Problems, did_you_mean
from opgen.sources import Sources, package_folders
from opgen.word_symbols import NumPyNames, check_words
from opgen.words import uses_of_words

# The module of the class Operand, which holds a storage and its layout.
_OPERAND = "operand"
_FUNCTION = re.compile(r"^def ([a-z]\w*)\(", re.MULTILINE)
_CLASS = re.compile(r"^class (?!_)(\w+)", re.MULTILINE)
# The first parameter of an op that builds a program.
_BUILDER = "build"
# A method of a class, and the names in `__slots__`. Templates are read as text: not all are Python yet.
_METHOD = re.compile(r"^    (?:async )?def ([a-z]\w*)\(", re.MULTILINE)
_SLOTS = re.compile(r"^    __slots__ = \((.*)\)$", re.MULTILINE)


def read_symbols(spec: Spec, sources: Sources, problems: Problems) -> Spec:
    """The spec with what the runtime defines: modules, functions, public names, and what each check raises."""
    packages = dict.fromkeys(owner.package for owner in spec.owners if owner.package is not None)
    public: dict[str, PublicModule] = {}
    for name, (home, location) in spec.package.public.items():
        module = sources.public(name, home)
        if module is not None:
            public[name] = module
        else:
            known = (str(path.relative_to(RUNTIME).with_suffix("")) for path in sources.below(RUNTIME))
            message = f"module '{name}' has the names of {RUNTIME / home}, which is not there"
            problems.unknown(location, message, home, known, "write it")
    modules, ops = dict(_functions_of_ops(tuple(packages), sources)), launch_ops(spec, sources, problems)
    for launches, package in launch_packages(spec).items():
        own = {method: op.callable for (home, method), op in ops.items() if home == launches}
        if own and package is not None:
            modules[package] = {**modules.get(package, {}), launches: own}
    return replace(
        spec,
        own_modules={
            **{package: frozenset(sources.modules(BACKENDS / package)) for package in packages},
            NUMERICS.name: frozenset(sources.modules(NUMERICS)) - {NUMERICS.name, "rows", "__init__"},
        },
        kernels=with_headers(spec),
        modules=modules,
        launch_ops=ops,
        checks=check_functions(sources),
        uses=uses_of_words(tuple(packages), sources) if any(backend.refused for backend in spec.backends) else None,
        public=public,
    )


@memoize(lambda packages, sources: (*packages, sources), size=4)
def _functions_of_ops(
    packages: tuple[str, ...], sources: Sources
) -> Mapping[str, Mapping[str, Mapping[str, Callable]]]:
    """The functions that cells may call, by package and module."""
    files = {package: sources.python(BACKENDS / package / "ops") for package in packages}
    return {
        package: {name: sources.functions(path) or {} for name, path in modules.items()}
        for package, modules in files.items()
    }


def check_symbols(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note the names that clash, and those that nothing answers to."""
    _check_members(spec, sources, problems)
    _check_methods(spec, sources, problems)
    missing = _check_packages(spec, sources, problems)
    # A cell of a family serves several backends: what is wrong with it is noted once.
    errors: dict[tuple[FunctionCall, str], str] = {}
    for backend in spec.backends:
        if spec.packages[backend.name] and missing.isdisjoint(spec.packages[backend.name]):
            _Runtime(spec, backend, sources, problems).check(errors)
    for (call, _), message in errors.items():
        problems.note(call.location, message)
    check_kernels(spec, sources, problems)
    numpy = NumPyNames(sources)
    for primitive in spec.primitives.values():
        array = primitive.implementation("array")
        fix = f"write one of {', '.join(primitive.parameters)}, or a name of NumPy"
        keys = {name: primitive.written_in("array", text) for text in array.texts for name in outer_names(text)}
        for dotted, key in keys.items():
            known = numpy.in_place_of(dotted, primitive.parameters)
            if known is not None:
                name = ".".join(dotted)
                message = f"unknown name '{name}' in '{key}' of primitive '{primitive.name}'"
                problems.unknown(array.location, message, name, known, fix)
    check_words(spec, sources, problems)


# Names of the package's own code.


def _check_members(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note the names of the spec that clash with those of the package's own classes, or with each other."""
    chosen = [functor for kind in spec.functors.values() for functor in kind.chosen if functor.has_front]
    backends = [(backend.name, Location(backend.path)) for backend in spec.backends]
    fronts = [(method.tensor.name, method.location) for method in spec.storage_methods() if method.tensor is not None]
    folders = package_folders(spec.package)
    of_classes: Mapping[str, tuple[Iterable[PurePosixPath], list[tuple[str, Location]]]] = {
        "a tensor": (
            (path for path in sources.below(RUNTIME / "tensor") if path.suffix == ".py"),
            [*((functor.name, functor.location) for functor in chosen), *fronts, *backends],
        ),
        "a storage": (
            [RUNTIME / "storage/calls.py", *(folder / "storage/base.py.j2" for folder in folders)],
            [(method.name, method.location) for method in spec.storage_methods()],
        ),
        "a device": (
            [folder / "device.py.j2" for folder in folders],
            [*backends, *((method.name, method.location) for method in spec.device_methods)],
        ),
    }
    for owner, (paths, names) in of_classes.items():
        taken: dict[str, object] = {}
        for path in paths:
            taken.update(dict.fromkeys(_members_in(sources.text(path) or ""), path))
        for name, location in names:
            if name in taken:
                problems.note(location, f"{owner} has '{name}' already, from {taken[name]}; choose another name")
            taken.setdefault(name, location)


@memoize(lambda text: (text,))
def _members_in(text: str) -> Sequence[str]:
    """Return the methods of the classes of a text, and the names in their `__slots__`."""
    return [*_METHOD.findall(text), *(name for listed in _SLOTS.findall(text) for name in re.findall(r"\w+", listed))]


def _check_methods(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note checks and errors of methods that the package does not have."""
    checks = [name for path in CHECKS.values() for name in _FUNCTION.findall(sources.text(path) or "")]
    errors = _CLASS.findall(sources.text(BASE / "error.py") or "")
    for method in spec.methods:
        for item in method.checks:
            if checks and item.call.name not in checks:
                message = f"unknown check '{item.call.name}' of method '{method.name}'"
                problems.unknown(item.location, message, item.call.name, checks)
        for name, location in method.errors.items():
            if errors and name not in errors:
                problems.unknown(location, f"unknown error '{name}' of method '{method.name}'", name, errors)


# What cells call.


def _check_packages(spec: Spec, sources: Sources, problems: Problems) -> set[str]:
    """The subpackages that the spec names and that the runtime lacks, each of which is noted."""
    owners = {family.package: Location(family.path) for family in spec.backend_families}
    owners.update({backend.package: backend.location_of("runtime") for backend in spec.backends if backend.package})
    packages = {name for path in sources.below(BACKENDS) for name in path.parts[2:3]}
    # A backend that extends another one may leave all modules to it; that of an array library is emitted.
    others = {backend.name for backend in spec.backends}
    spared = {backend.package for backend in spec.backends if backend.extends in others or backend.array is not None}
    missing = {*owners} - packages - spared
    invalid_files = problems.invalid_files
    for name in missing:
        if owners[name].path not in invalid_files:
            message = f"package '{name}' has no modules; write them below {BACKENDS / name}"
            problems.note(owners[name], message)
    return missing


class _Runtime:
    """The packages of a backend, in which what it does not have itself is that of the next one."""

    def __init__(self, spec: Spec, backend: Backend, sources: Sources, problems: Problems) -> None:
        self.spec, self.backend, self.sources, self.problems = spec, backend, sources, problems
        self.folders = [BACKENDS / package for package in spec.packages[backend.name]]

    def _modules(self, subfolder: str) -> dict[str, PurePosixPath]:
        modules: dict[str, PurePosixPath] = {}
        for folder in reversed(self.folders):
            modules |= self.sources.python(folder / subfolder)
        return modules

    @cached_property
    def ops(self) -> dict[str, PurePosixPath]:
        """The modules that cells may call."""
        return self._modules("ops")

    def check(self, errors: dict[tuple[FunctionCall, str], str]) -> None:
        """Note what cells call that is not there; errors of cells go to `errors`."""
        self._check_libraries()
        where = " or ".join(f"{folder}/ops" for folder in self.folders)
        if _OPERAND not in self.ops:
            message = f"{where} has no module '{_OPERAND}'; write the modules that cells call, and this one"
            self.problems.note(self.backend.location_of("runtime"), f"{message} with the class Operand")
            return
        libraries = [library.name for library in self.backend.libraries]
        for method, call in self._calls():
            reason = self._flaw(method, call, where)
            if reason is not None:
                errors.setdefault((call, method.name), f"'{method.name}' calls '{call}'{reason}")
            elif call.library is not None and call.library not in libraries:
                fix = did_you_mean(call.library, libraries) if libraries else "; write it to 'libraries'"
                message = f"'{method.name}' of {self.backend} calls the unknown library '{call.library}'{fix}"
                errors.setdefault((call, method.name), message)

    def _check_libraries(self) -> None:
        """Note the libraries that neither the backend's package nor one that it extends has a class for."""
        for library in self.backend.libraries:
            module, name = library.module, library.class_name
            folder = module.rpartition(".")[0]
            modules = {f"{folder}.{stem}".lstrip("."): path for stem, path in self._modules(folder).items()}
            if module not in modules:
                message = f"library '{library.name}' is opened by module '{module}', which {self.folders[0]} lacks"
                self.problems.unknown(library.location, message, module, modules)
                continue
            classes = _CLASS.findall(self.sources.text(modules[module]) or "")
            if name not in classes:
                message = f"library '{library.name}' is opened by class '{name}', which {modules[module]} lacks"
                self.problems.unknown(library.location, message, name, classes)

    def _calls(self) -> Iterator[tuple[Method, FunctionCall]]:
        table = self.spec.lowerings[self.backend.name]
        # Of two methods of one name, which is noted, one is looked at.
        for method in {method.name: method for method in self.spec.methods}.values():
            names = {name for item in method.operands for name in (item.name, item.layout) if name is not None}
            # A user's op is not called, and the arguments are unknown if the operands of the method are wrong.
            if method.custom_class is None and names <= {"self", *method.signature.arguments}:
                of_ops = (table.get((method.name, op), {}).values() for op in self.spec.ops(method))
                # Many dtypes have the same.
                lowerings = {id(lowering): lowering for each in of_ops for lowering in each}
                for call in {id(call): call for each in lowerings.values() for call in each.calls}.values():
                    yield method, call

    def _flaw(self, method: Method, call: FunctionCall, where: str) -> str | None:
        """The end of the message about a call that no function answers; None where one does."""
        path = self.ops.get(call.module)
        if launch_packages(self.spec).get(call.module) in self.spec.packages[self.backend.name]:
            launched = {name: op.callable for (home, name), op in self.spec.launch_ops.items() if home == call.module}
            return _misfit(method, call, launched, "spec/kernels")
        if path is None:
            return f", but {where} has no module '{call.module}'{did_you_mean(call.module, self.ops)}"
        functions = self.sources.functions(path)
        if functions is None:
            return None  # which is noted
        return _misfit(method, call, functions, str(path))


@memoize(lambda *arguments: arguments)
def _misfit(method: Method, call: FunctionCall, functions: Mapping[str, Callable], path: str) -> str | None:
    """The end of the message about a call that no function of a module answers; None where one does."""
    function = functions.get(call.function)
    if function is None:
        fix = did_you_mean(call.function, functions) if functions else "; write it"
        return f", but {path} has no function '{call.function}'{fix}"
    arguments = [*([] if call.library is None else [call.library]), *method.call_arguments()]
    if function.parameters[:1] == (_BUILDER,):
        # It takes no device either.
        arguments = [_BUILDER, *(argument for argument in arguments if method.operands or argument != "inner")]
    if function.fits(arguments):
        return None
    fix = "give it these parameters or call another function"
    return f" with ({', '.join(arguments)}), but it takes ({function}); {fix}"
