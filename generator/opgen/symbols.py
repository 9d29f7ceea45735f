"""Stage 3: the symbol table. Which names exist where, and the names of the spec that nothing answers to.

`read_symbols` reads what cells and docs follow from; `check_symbols` looks every other name up. At a name that is noted
here a compiler, an import or a call would fail.
"""

import ast
import builtins
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from opgen.aliases import LIBRARIES
from opgen.arrays import LIBRARY, ArrayLibrary, Spelling
from opgen.cache.memo import memoize
from opgen.cells import FunctionCall
from opgen.cpp import camel, names_in
from opgen.errors import raised_by_checks
from opgen.formula import Primitive, text_of
from opgen.kernels import KernelFamily
from opgen.launch_ops import launch_ops, launch_packages
from opgen.model import (
    Backend,
    BackendFamily,
    Callable,
    Functor,
    Method,
    Monoid,
    Position,
    PublicModule,
    Spec,
)
from opgen.problem import Location, Problem, Problems, did_you_mean, nearest, unknown_dtype
from opgen.scopes import decisive, scopes, state_scopes
from opgen.sources import BACKENDS, BASE, CORE, HEADERS, NUMERICS, RUNTIME, Sources, package_folders, place

# The modules that the expressions over arrays see.
_NP, _NUMERICS = "np", "numerics"
# The module of the class Operand, in which a call is given a storage and its layout.
_OPERAND = "operand"
# What is at hand in spellings besides modules, words and parameters: the emitted module itself is one of these.
_AT_HAND = (_NP, "os", "library")
# What the ops of a family call its library.
_USE = re.compile(rf"\b(?:np|library|{LIBRARY})\.([a-z]\w*)")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_PLACEHOLDER = re.compile(r"{\w+}")
_FUNCTION = re.compile(r"^def ([a-z]\w*)\(", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
# The first parameter of an op that builds a program.
_BUILDER = "build"
# A method of a class, and the names that instances have room for. Templates are read as text: not all are Python yet.
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
        own_modules={package: frozenset(sources.modules(BACKENDS / package)) for package in packages},
        modules=modules,
        launch_ops=ops,
        raised=raised_by_checks(sources),
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


# The modules of NumPy's types.
_TYPE_MODULES = ("numpy", "ml_dtypes")


def check_symbols(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note the names that clash, and those that nothing answers to."""
    _check_members(spec, sources, problems)
    _check_methods(spec, sources, problems)
    missing = _check_packages(spec, sources, problems)
    # A cell of a family serves several backends: what is wrong with it is noted once.
    mistakes: dict[tuple[FunctionCall, str], str] = {}
    for backend in spec.backends:
        if spec.packages[backend.name] and missing.isdisjoint(spec.packages[backend.name]):
            _Runtime(spec, backend, sources, problems).check(mistakes)
    for (call, _), message in mistakes.items():
        problems.note(call.location, message)
    _check_kernels(spec, sources, problems)
    numpy = _NumPy(sources)
    for dtype in spec.dtypes:
        module, _, name = dtype.numpy.rpartition(".")
        if name and module not in _TYPE_MODULES and (not module or module.partition(".")[0] in LIBRARIES):
            message = f"'numpy' of dtype '{dtype.name}' is '{dtype.numpy}', which Python cannot import"
            problems.note(dtype.location, f"{message}; write {'numpy' if numpy.has(name) else 'ml_dtypes'}.{name}")
        if module == "numpy" and not numpy.has(name):
            what = f"unknown name '{name}' in 'numpy' of dtype '{dtype.name}'"
            problems.unknown(dtype.location, what, name, numpy.names, "write a type of NumPy")
    for primitive in spec.primitives.values():
        array = primitive.implementation("array")
        mend = f"write one of {', '.join(primitive.parameters)}, or a name of NumPy"
        keys = {name: primitive.written_in("array", text) for text in array.texts for name in _outer_names(text)}
        for dotted, key in keys.items():
            known = numpy.in_place_of(dotted, primitive.parameters)
            if known is not None:
                name = ".".join(dotted)
                message = f"unknown name '{name}' in '{key}' of primitive '{primitive.name}'"
                problems.unknown(array.location, message, name, known, mend)
    _check_words(spec, sources, problems)


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
    """The methods of the classes of a text, and the names that their instances have room for."""
    return [*_METHOD.findall(text), *(name for listed in _SLOTS.findall(text) for name in re.findall(r"\w+", listed))]


def _check_methods(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note checks and errors of methods that the package does not have."""
    checks = _FUNCTION.findall(sources.text(CORE / "check.py") or "")
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
    owners.update({backend.package: backend.place("runtime") for backend in spec.backends if backend.package})
    found = {name for path in sources.below(BACKENDS) for name in path.parts[2:3]}
    # A backend that extends another one may leave all modules to it, and that of an array library is made for it.
    others = {backend.name for backend in spec.backends}
    spared = {backend.package for backend in spec.backends if backend.extends in others or backend.array is not None}
    missing = {*owners} - found - spared
    torn = problems.torn
    for name in missing:
        if owners[name].path not in torn:
            message = f"package '{name}' has no modules; write them below {BACKENDS / name}"
            problems.note(owners[name], message)
    return missing


class _Runtime:
    """The packages of a backend, in which what it does not have itself is that of the next one."""

    def __init__(self, spec: Spec, backend: Backend, sources: Sources, problems: Problems) -> None:
        self.spec, self.backend, self.sources, self.problems = spec, backend, sources, problems
        self.folders = [BACKENDS / package for package in spec.packages[backend.name]]

    def _modules(self, subfolder: str) -> dict[str, PurePosixPath]:
        found: dict[str, PurePosixPath] = {}
        for folder in reversed(self.folders):
            found |= self.sources.python(folder / subfolder)
        return found

    @cached_property
    def ops(self) -> dict[str, PurePosixPath]:
        """The modules that cells may call."""
        return self._modules("ops")

    def check(self, mistakes: dict[tuple[FunctionCall, str], str]) -> None:
        """Note what cells call that is not there; mistakes of cells go to `mistakes`."""
        self._check_libraries()
        where = " or ".join(f"{folder}/ops" for folder in self.folders)
        if _OPERAND not in self.ops:
            message = f"{where} has no module '{_OPERAND}'; write the modules that cells call, and this one"
            self.problems.note(self.backend.place("runtime"), f"{message} with the class Operand")
            return
        libraries = [library.name for library in self.backend.libraries]
        for method, call in self._calls():
            reason = self._mistake(method, call, where)
            if reason is not None:
                mistakes.setdefault((call, method.name), f"'{method.name}' calls '{call}'{reason}")
            elif call.library is not None and call.library not in libraries:
                mend = did_you_mean(call.library, libraries) if libraries else "; write it to 'libraries'"
                message = f"'{method.name}' of {self.backend} calls the unknown library '{call.library}'{mend}"
                mistakes.setdefault((call, method.name), message)

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
            # A user's op is not called, and of a method whose operands are wrong, what a call is given is not known.
            if method.custom_class is None and names <= {"self", *method.signature.arguments}:
                of_ops = (table.get((method.name, op), {}).values() for op in self.spec.ops(method))
                # Many dtypes have the same.
                lowerings = {id(lowering): lowering for each in of_ops for lowering in each}
                for call in {id(call): call for each in lowerings.values() for call in each.calls}.values():
                    yield method, call

    def _mistake(self, method: Method, call: FunctionCall, where: str) -> str | None:
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


@memoize(lambda *given: given)
def _misfit(method: Method, call: FunctionCall, functions: Mapping[str, Callable], path: str) -> str | None:
    """The end of the message about a call that no function of a module answers; None where one does."""
    function = functions.get(call.function)
    if function is None:
        mend = did_you_mean(call.function, functions) if functions else "; write it"
        return f", but {path} has no function '{call.function}'{mend}"
    given = [*([] if call.library is None else [call.library]), *method.call_arguments()]
    if function.parameters[:1] == (_BUILDER,):
        # It is given no device either.
        given = [_BUILDER, *(argument for argument in given if method.operands or argument != "inner")]
    if function.fits(given):
        return None
    mend = "give it these parameters or call another function"
    return f" with ({', '.join(given)}), but it takes ({function}); {mend}"


# What expressions name.


@memoize(lambda expression: (expression,))
def _outer_names(expression: str) -> Sequence[tuple[str, ...]]:
    """The names, with their attributes, that an expression of Python takes from its surroundings."""
    try:
        nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    except SyntaxError:
        return ()
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parts = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    names = (_dotted(node) for node in nodes if node not in parts)
    return [name for name in names if name and name[0] not in own]


def _dotted(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            base = _dotted(value)
            return (*base, name) if base else ()
    return ()


class _NumPy:
    """What expressions over arrays may name: NumPy, and the functions of `numerics`."""

    def __init__(self, sources: Sources) -> None:
        modules = (path for path in sources.below(RUNTIME) if path.name == f"{_NUMERICS}.py")
        # Functions of a module, or methods of an object in its place. One that cannot be read is noted elsewhere.
        read = (sources.methods(path) or {*(sources.functions(path) or ())} for path in modules)
        self._numerics: list[Collection[str]] = [names for names in read if names]

    @property
    def names(self) -> list[str]:
        """The names that NumPy has."""
        return dir(importlib.import_module("numpy"))

    def has(self, name: str) -> bool:
        """Whether NumPy has a name. It is imported only for one that its stub does not list."""
        return name in _listed_by_numpy() or name in self.names

    def in_place_of(self, dotted: tuple[str, ...], operands: Iterable[str]) -> Iterable[str] | None:
        """None where something answers to a name; else the names that are known in its place."""
        first, *rest = dotted
        if first in operands or (first == _NP and (not rest or (len(rest) == 1 and self.has(rest[0])))):
            return None
        if first == _NUMERICS:
            # Each of the modules of this name has all of them.
            lacking = next((known for known in self._numerics if rest and rest[0] not in known), None)
            return None if lacking is None else [f"{first}.{other}" for other in lacking]
        if first != _NP:
            return [*operands, *([f"{_NP}.{first}"] if self.has(first) else [])]
        value: object = importlib.import_module("numpy")
        prefix = first
        for attribute in rest:
            if not hasattr(value, attribute):
                return [f"{prefix}.{other}" for other in dir(value)]
            value, prefix = getattr(value, attribute), f"{prefix}.{attribute}"
        return None


@cache
def _listed_by_numpy() -> Collection[str]:
    """What NumPy's stub lists: nearly all that a spec names, in a hundredth of the time that importing NumPy takes."""
    found = importlib.util.find_spec("numpy")
    stub = Path(found.origin).with_suffix(".pyi") if found is not None and found.origin is not None else None
    text = stub.read_text(encoding="utf-8") if stub is not None and stub.is_file() else ""
    listed = re.search(r"^__all__ = \[([^\]]*)\]", text, re.MULTILINE)
    return frozenset(re.findall(r'"(\w+)"', listed[1])) if listed is not None else frozenset()


# What kernels name.


def _check_kernels(spec: Spec, sources: Sources, problems: Problems) -> None:
    folders = package_folders(spec.package)
    headers = _headers(folders, sources)
    is_whole = bool(headers) and bool(spec.kernels)
    unknown: dict[tuple[str, str, str], list[str]] = {}
    defined_anywhere: set[str] = set()
    for family in spec.kernels:
        before = len(problems)
        for header, location in family.headers.items():
            if header not in headers:
                mend = f"write a header to {HEADERS}"
                problems.unknown(location, f"unknown header '{header}'", header, headers, mend)
        defined_there, flaws = reached(tuple(family.headers), folders, sources)
        problems += flaws
        # A header that is missing would have defined something.
        if len(problems) > before:
            is_whole = False
            continue
        known = (
            defined_there | {struct.name for struct in family.structs} | {constant.name for constant in spec.constants}
        )
        for kernel in family.kernels:
            for name in names_in(_PLACEHOLDER.sub("", kernel.call)):
                if name not in known:
                    message = f"unknown name '{name}' in 'call' of kernel '{kernel.name}'"
                    mend = f"define it in a header of {family.path.as_posix()}"
                    problems.unknown(kernel.call_location, message, name, known, mend)
        _check_functor_names(spec, family, defined_there, problems)
        for primitive in _primitives_of(spec, family):
            texts = primitive.implementation("kernel").texts
            keys = {first: primitive.written_in("kernel", text) for text in texts for first, *_ in _outer_names(text)}
            for name, key in keys.items():
                if name not in defined_there and name not in primitive.parameters:
                    unknown.setdefault((primitive.name, name, key), []).append(family.path.as_posix())
        defined_anywhere |= defined_there
    # One primitive serves several families.
    for (primitive_name, name, key), families in unknown.items():
        parameters = spec.primitives[primitive_name].parameters
        message = f"unknown name '{name}' in '{key}' of primitive '{primitive_name}'"
        mend = f"write one of {', '.join(parameters)}, or define it in a header of {' and '.join(families)}"
        location = spec.primitives[primitive_name].implementation("kernel").location
        problems.unknown(location, message, name, {*defined_anywhere, *parameters}, mend)
    # Kernels name the types of all dtypes and widths, so that what one header defines is enough.
    defined = {name for path in headers.values() for name in sources.defined(path)}
    types = {f"'cpp' of dtype '{dtype.name}'": (dtype.cpp, dtype.location) for dtype in spec.dtypes}
    types.update({f"width '{width}'": text for width, text in spec.widths.items()})
    for what, (text, location) in types.items() if is_whole else ():
        for name in names_in(text):
            if name not in defined:
                mend = f"define it in a header of {HEADERS}"
                problems.unknown(location, f"unknown name '{name}' in {what}", name, defined, mend)


def _check_functor_names(spec: Spec, family: KernelFamily, defined: Collection[str], problems: Problems) -> None:
    """Note ops whose structs, and parameters whose names, kernels of a family have for something else."""
    structs: dict[str, str] = {}
    for functor in spec.functors_of(family):
        struct = camel(functor.name)
        first = structs.setdefault(struct, functor.name)
        if struct in defined or first != functor.name:
            other = "a header of its kernels defines" if struct in defined else f"op '{first}' has"
            message = f"op '{functor.name}' becomes the struct {struct}, which {other} too; choose another name"
            problems.note(functor.location, message)
        own = {*functor.named, *functor.parameters} - {"x", "y"}
        # Most ops have no other names.
        names = _primitives_of_functor(spec, functor) if own else ()
        used = (spec.primitives[name] for name in names if name in spec.primitives)
        called = {
            first
            for primitive in used
            for text in primitive.implementation("kernel").texts
            for first, *_ in _outer_names(text)
            if first not in primitive.parameters
        }
        for name in (*functor.named, *functor.parameters):
            if name in own and name in called:
                message = f"'{name}' cannot be a parameter of op '{functor.name}', its kernels call a function '{name}'"
                problems.note(functor.location, f"{message}; choose another one")


@memoize(lambda spec, family: (family, spec.primitives, spec.known_dtypes, *spec.functors.values()), size=256)
def _primitives_of(spec: Spec, family: KernelFamily) -> list[Primitive]:
    """The primitives that a family's kernels compute."""
    used = dict.fromkeys(name for functor in spec.functors_of(family) for name in _primitives_of_functor(spec, functor))
    return [spec.primitives[name] for name in used if name in spec.primitives]


@memoize(decisive)
def _primitives_of_functor(spec: Spec, functor: Functor) -> Sequence[str]:
    """The primitives that a functor and its state have."""
    found = [*scopes(spec, functor).values()]
    if isinstance(functor.reduction, Monoid):
        own = (state_scopes(spec, it) for name, it in spec.states.items() if name == functor.reduction.state)
        found += [scope for formulas in own for scope in formulas.values()]
    return list(dict.fromkeys(name for scope in found for name in scope.used()))


@memoize(lambda headers, folders, sources: (*headers, *folders, sources), size=1024)
def reached(
    headers: tuple[str, ...], folders: tuple[PurePosixPath, ...], sources: Sources
) -> tuple[frozenset[str], Sequence[Problem]]:
    """What headers define, and those that they include; and what is wrong there."""
    problems = Problems()
    known = _headers(folders, sources)
    waiting = [header for header in headers if header in known]
    seen: set[str] = set()
    while waiting:
        header = waiting.pop()
        if header in seen:
            continue
        seen.add(header)
        text = sources.text(known[header]) or ""
        for match in _INCLUDE.finditer(text):
            if match[1] in known:
                waiting.append(match[1])
            else:
                where = place(known[header], text.count("\n", 0, match.start()) + 1)
                message = f"it includes an unknown header, '{match[1]}'"
                problems.unknown(where, message, match[1], known, "write it, or remove the include")
    return frozenset(name for header in seen for name in sources.defined(known[header])), problems


def _headers(folders: Iterable[PurePosixPath], sources: Sources) -> dict[str, PurePosixPath]:
    """The headers of kernels, by the names by which others include them."""
    paths = [*sources.below(HEADERS), *(path for folder in folders for path in sources.below(folder / "kernels"))]
    return {path.name.removesuffix(".j2"): path for path in paths if ".hpp" in path.suffixes}


# The words that array libraries spell, and what is written in them.


def _check_words(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note what is wrong between vocabularies, the backends that spell them, and what is written in them."""
    for backend in spec.backends:
        family = spec.family_of(backend)
        has_words = family is not None and bool(family.vocabulary)
        if backend.array is not None and family is not None and has_words:
            _check_spellings(family, backend, backend.array, problems)
            _check_dtypes(spec, backend, backend.array, problems)
            _check_spelled(spec, family, backend, backend.array, problems)
        elif backend.array is not None:
            message = f"{backend} has an 'array', but extends no family with a vocabulary; remove it"
            problems.note(backend.array.location, message)
        elif has_words and backend.missing is None:
            message = f"{backend} lacks the key 'array', which says what it computes with; add it"
            problems.note(backend.place("extends"), message)
    for family in spec.backend_families:
        if family.vocabulary:
            _check_uses(spec, family, sources, problems)
            _check_functors(spec, family, problems)


def _check_spellings(family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: Problems) -> None:
    """Note the words that a library need not spell, and those that it has to."""
    words = family.vocabulary
    for name, spelling in array.spellings.items():
        own = words[name].spelling if name in words else None
        if name not in words:
            problems.unknown(spelling.location, f"unknown word '{name}' of {backend}", name, words)
        elif own is not None and own.text == spelling.text:
            message = f"{backend} spells '{name}' as {family} does; remove the spelling"
            problems.note(spelling.location, message)
    wanted = [word for word in words.values() if not (word.spelling or word.is_optional)]
    lacking = ", ".join(str(word) for word in wanted if word.name not in array.spellings)
    if lacking:
        problems.note(array.location, f"{backend} lacks a spelling of {lacking}; write it below 'spellings'")


def _check_dtypes(spec: Spec, backend: Backend, array: ArrayLibrary, problems: Problems) -> None:
    """Note the dtypes of a library that there are not, and those of which it says nothing."""
    dtypes = [dtype.name for dtype in spec.dtypes]
    places = {name: spelling.location for name, spelling in (array.dtypes or {}).items()}
    places.update({name: place for name, (_, place) in array.lacking.items()})
    for name, location in places.items():
        if name not in dtypes:
            problems.note(location, f"unknown dtype '{name}' of {backend}{unknown_dtype(name, dtypes)}")
    missing = ", ".join(name for name in dtypes if name not in places and array.dtypes is not None)
    if missing:
        mend = "write the library's, or '{unsupported: reason}'"
        problems.note(array.location, f"'dtypes' of {backend} lacks {missing}; {mend}")


def _check_spelled(
    spec: Spec, family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: Problems
) -> None:
    """Note the names in a library's spellings that nothing answers to."""
    modules = [*dict.fromkeys((*array.modules, LIBRARY, *_AT_HAND))]  # that the library is missing is noted
    helpers = [name for name in spec.own_modules.get(family.package, ()) if "." not in name]
    spelled: list[tuple[str, Spelling, Iterable[str]]] = [
        ("'count' of the devices", array.devices.count, ()),
        ("'handle' of the devices", array.devices.handle, ("ordinal",)),
        ("'name' of the devices", array.devices.name, ("handle",)),
        *((f"dtype '{name}'", spelling, ()) for name, spelling in (array.dtypes or {}).items()),
    ]
    for name, word in family.vocabulary.items():
        spelling = array.spellings.get(name) or word.spelling
        if spelling is not None:
            spelled.append((f"word '{name}'", spelling, (*word.parameters, *family.vocabulary, *helpers)))
    for what, spelling, own in spelled:
        known = [*modules, *own]
        for name in spelling.free_names:
            if name not in known and not hasattr(builtins, name):
                problems.unknown(spelling.location, f"unknown name '{name}' in {what} of {backend}", name, known)


def _check_uses(spec: Spec, family: BackendFamily, sources: Sources, problems: Problems) -> None:
    """Note the words that nothing is written in."""
    texts = [sources.text(path) or "" for top in (BACKENDS / family.package, NUMERICS) for path in sources.below(top)]
    used = {name for text in texts for name in _USE.findall(text)}
    used |= {name for primitive in spec.primitives.values() for name in _library_names(primitive)}
    used |= {functor.name for functor in spec.every_functor if isinstance(functor.reduction, Position)}
    combined, scanned = (
        {text_of(functor.reduction.combine.node) for functor in functors if isinstance(functor.reduction, Monoid)}
        for functors in (spec.reductions, spec.scans)
    )
    libraries = [backend.array for backend in spec.backends if spec.family_of(backend) is family and backend.array]
    spellings = [word.spelling for word in family.vocabulary.values() if word.spelling is not None]
    for spelling in [*spellings, *(spelling for library in libraries for spelling in library.spellings.values())]:
        used.update(spelling.free_names)
    for name, word in family.vocabulary.items() if texts else ():
        if word.location.is_of_base:
            continue
        for key, formula, known in (("combine", word.combine, combined), ("scan", word.scan, scanned)):
            if formula is not None and (text := text_of(formula.node)) not in known:
                kind = "scan" if key == "scan" else "reduction"
                message = f"no {kind} has the 'combine' '{text}' of word '{name}'"
                problems.unknown(word.location, message, text, sorted(known))
        if word.combine is None and word.scan is None and name not in used:
            problems.note(word.location, f"word '{name}' of {family} is used by no op and no functor; remove it")


def _check_functors(spec: Spec, family: BackendFamily, problems: Problems) -> None:
    """Note the names of NumPy in primitives that are no words, and reductions that no word joins or finds."""
    words = family.vocabulary
    joining: dict[str, str] = {}
    scanning: dict[str, str] = {}
    for name, word in words.items():
        for key, formula, known in (("combine", word.combine, joining), ("scan", word.scan, scanning)):
            combine = None if formula is None else text_of(formula.node)
            if combine is not None and known.setdefault(combine, name) != name:
                message = f"word '{name}' joins by '{combine}' as '{known[combine]}' does; remove one '{key}'"
                problems.note(word.location, message)
    mend = f"write words of {family.path.as_posix()}, or add it there"
    for primitive in spec.primitives.values():
        for name in dict.fromkeys(_library_names(primitive)):
            if name not in words:
                near = nearest(name, words)
                message = f"'np.{name}' of primitive '{primitive.name}' is no word of {family}; {mend}"
                problems.note(
                    primitive.implementation("array").location, message + (f" (is it '{near}'?)" if near else "")
                )
    for functor in spec.every_functor:
        reduction = functor.reduction
        if isinstance(reduction, Position) and functor.name not in words:
            message = f"op '{functor.name}' is no word of {family}"
            problems.unknown(functor.location, message, functor.name, words, f"add it to {family.path.as_posix()}")
        elif functor.is_scan or not isinstance(reduction, Monoid):
            continue
        elif (combine := text_of(reduction.combine.node)) not in joining:
            message = (
                f"op '{functor.name}' joins two contributions by '{combine}', as no word of {family} does; "
                f"known are {', '.join(joining)}; write 'combine: {combine}' to a word, or a storage method instead"
            )
            problems.note(reduction.combine.location, message)


def _library_names(primitive: Primitive) -> Iterator[str]:
    """What a primitive takes of NumPy, and of an array library in its place."""
    for text in primitive.implementation("array").texts:
        for first, *rest in _outer_names(text):
            if first == _NP and rest:
                yield rest[0]
