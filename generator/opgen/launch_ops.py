"""The ops that opgen makes of launches: what each does with its arguments, and what is wrong with a launch."""

import ast
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from opgen.cpp import snake
from opgen.kernels import Kernel, KernelFamily, Member, Struct
from opgen.launches import Launch, Term
from opgen.model import Callable, Method, Spec
from opgen.problem import Location, Problem, Problems, did_you_mean
from opgen.results import arguments_of, results_of, typed_result
from opgen.sources import BACKENDS, Sources
from opgen.terms import (
    ANY,
    ARRAY,
    DIMS,
    DTYPE,
    FLAG,
    NULL,
    NUMBER,
    OPERAND,
    OPTIONAL,
    Attributes,
    Scope,
    TermError,
    Typed,
    argument_kind,
    call,
    named_dtypes,
    parsed,
)

MODULE: Final = "host_launches"
"""What cells call the module of the emitted ops."""
_RESULT: Final = "a result"
ATTRIBUTES: Final[Attributes] = {
    OPERAND: {
        "shape": ("it.shape", DIMS),
        "strides": ("it.strides", DIMS),
        "dtype": ("it.dtype", DTYPE),
        "itemsize": ("it.itemsize", NUMBER),
        "count": ("it.layout.elem_count", NUMBER),
        "is_contiguous": ("it.layout.is_contiguous", FLAG),
    },
    DTYPE: {
        "compute": ("it.compute", DTYPE),
        "itemsize": ("it.itemsize", NUMBER),
        "index_form": ("it.index_form", ANY),
    },
    _RESULT: {"shape": ("it.shape", DIMS), "count": ("it.elem_count", NUMBER)},
}
"""What expressions of launches may ask of each kind."""
_WORDS: Final = {"threads": "THREADS", "run_parts": "RUN_PARTS"}
# What emitted ops call something themselves.
_RESERVED: Final = frozenset({"build", "kernels", "kernel", "arguments", "math", "constants"})


class Part(NamedTuple):
    """A name with its value in an emitted op."""

    name: str
    text: str
    location: Location


@dataclass(frozen=True)
class LaunchOp:
    """An op that opgen makes of a launch, as the template writes it in Python."""

    method: Method
    family: KernelFamily
    struct: str
    kernels: tuple[Kernel, ...]  # the patterns of the one that it launches
    location: Location
    arguments: tuple[str, ...]  # behind the builder and the library
    parameters: str  # the same with their types
    kernel: str  # what stands between the quotes of an f-string
    condition: str
    locals: tuple[Part, ...]
    packer: str  # the function that packs the struct
    fields: tuple[Part, ...]
    options: str  # of the step that launches
    returns: str
    results: str
    has_optional: bool  # some of the results may be null
    calls: frozenset[tuple[str, str]]  # of functions of modules

    @property
    def callable(self) -> Callable:
        """How cells may call it."""
        names = ("build", "kernels", *self.arguments)
        return Callable(names, len(names), False, {})


def launch_ops(spec: Spec, sources: Sources, problems: Problems) -> dict[str, LaunchOp]:
    """The ops of all launches by their methods; what is wrong goes to `problems`."""
    methods = {method.name: method for method in spec.storage_methods()}
    found: dict[str, LaunchOp] = {}
    for family in spec.kernels:
        structs = {struct.name: struct for struct in family.structs}
        for launch in family.launches:
            # A project that stands on another package need not have its methods, nor a backend of the host.
            if launch.location.is_of_base and (host_package(spec) is None or methods.keys().isdisjoint(launch.ops)):
                continue
            if launch.struct not in structs:
                message = f"a launch is of unknown struct '{launch.struct}'"
                problems.unknown(launch.location, message, launch.struct, structs)
                continue
            if not family.host:
                message = f"launch '{launch.struct}' is of kernels for GPUs; write what launches them in Python"
                problems.note(launch.location, message)
                continue
            # What is wrong with the method is noted, and all of the launch follows from it.
            if any(methods[name].is_broken for name in launch.ops if name in methods):
                continue
            planner = _Planner(spec, sources, family, launch, structs[launch.struct])
            for name, (kernel, location) in launch.ops.items():
                if name not in methods and location.is_of_base:
                    continue
                if name not in methods:
                    planner.note(location, f" has unknown method '{name}'{did_you_mean(name, methods)}")
                elif name in found:
                    planner.note(location, f" has op '{name}' of launch '{found[name].struct}'; remove one")
                elif (op := planner.op(methods[name], kernel, location)) is not None:
                    found[name] = op
            planner.check_unused()
            problems += planner.noted
    return found


class _Planner:
    """Makes the ops of one launch."""

    def __init__(self, spec: Spec, sources: Sources, family: KernelFamily, launch: Launch, struct: Struct) -> None:
        self._spec, self._sources = spec, sources
        self._family, self._launch, self._struct = family, launch, struct
        self.noted: dict[Problem, None] = {}
        of = {method.name: _arguments(method) for method in spec.storage_methods() if method.name in launch.ops}
        self._of_any: Mapping[str, str] = {name: kind for each in of.values() for name, kind in each.items()}
        self._read: set[str] = set()

    def note(self, location: Location, message: str) -> None:
        """Note a mistake of the launch, once for all of its ops."""
        self.noted[Problem(location, f"launch '{self._launch.struct}'{message}")] = None

    def op(self, method: Method, kernel: str, location: Location) -> LaunchOp | None:
        """The op of a method; None of one that a launch cannot describe."""
        launch, own = self._launch, _arguments(method)
        patterns = [each for each in self._family.kernels if each.arguments == launch.struct]
        kernels = tuple(each for each in patterns if kernel in _names(each))
        if not kernels:
            known = dict.fromkeys(itertools.chain.from_iterable(map(_names, patterns)))
            self.note(location, f" has no kernel '{kernel}'{did_you_mean(kernel, known)}")
        returns = {"Storage": "Buffer", "tuple[Storage, ...]": "tuple[Buffer, ...]"}.get(method.signature.returns)
        is_fixed = method.kind is None and method.operands and not any(map(method.is_several, method.operands))
        if returns is None or not is_fixed:
            self.note(location, f" has '{method.name}', of which the operands or the results vary; write it in Python")
            return None
        scope = Scope(self._named(method.name, own), ATTRIBUTES, buffer, self._flaw_of_call)
        kinds = self._kinds_of_results(scope, method)
        conditions = [self._typed(scope, term, FLAG).node for term in launch.when]
        has_kernel = parsed(f"kernels.has({self._family.name!r}, kernel)")
        locals_: list[Part] = []
        values = self._values(scope, method, kinds, locals_)
        made = [values[name] for name in kinds]
        arguments = {f"_{name}" if name in launch.unused else _in_python(name): kind for name, kind in own.items()}
        op = LaunchOp(
            method=method,
            family=self._family,
            struct=launch.struct,
            kernels=kernels,
            location=location,
            arguments=tuple(arguments),
            parameters=", ".join(f"{name}: {kind}" for name, kind in arguments.items()),
            kernel=kernel.replace("{dtype}", f"{{{next(iter(arguments))}.dtype.value}}"),
            condition=ast.unparse(ast.BoolOp(ast.And(), [*conditions, has_kernel])),
            locals=tuple(locals_),
            packer=snake(launch.struct),
            fields=tuple(self._field(scope, member, values) for member in self._struct.members),
            options="" if launch.work is None else f", work={self._typed(scope, launch.work, NUMBER).text}",
            returns=returns,
            results=", ".join(each.text for each in made) + "," * (returns != "Buffer" and len(made) == 1),
            has_optional=any(each.kind.endswith(OPTIONAL) for each in made),
            calls=frozenset(scope.calls),
        )
        # What a mistake stands in may be what an argument is for.
        for name in () if self.noted else own.keys() - scope.read - launch.unused.keys():
            self.note(location, f" does nothing with '{name}' of '{method.name}'; name it, or write it to 'unused'")
        self._read |= scope.read
        return op

    def _kinds_of_results(self, scope: Scope, method: Method) -> dict[str, str]:
        """By field, the kinds of the results of a method, which expressions may name then. Others are null."""
        launch, results = self._launch, results_of(method)
        if len(results) > len(launch.results):
            what = f"names {len(launch.results)} results of '{method.name}', which gives {len(results)}"
            self.note(launch.location, f" {what}; write a field for each")
        names = {name: _in_python(name) for name in ("self", *method.signature.arguments)}
        kinds: dict[str, str] = {}
        for name, result in zip(launch.results, results, strict=False):
            # What is wrong with a result is noted of the method.
            with suppress(TermError):
                kinds[name] = typed_result(self._spec, method, result, buffer, names)[0].kind
                typed = Typed(ast.Name(f"{name}_type"), kinds[name].replace(ARRAY, _RESULT))
                # An argument may have the name of a field.
                scope.names.setdefault(name, typed)
        for name in launch.results:
            scope.names.setdefault(name, Typed(parsed("None"), NULL))
        return kinds

    def _values(self, scope: Scope, method: Method, kinds: Mapping[str, str], named: list[Part]) -> dict[str, Typed]:
        """What `let`, fields and buffers are in an op; those that it reads more than once go to `named`."""
        launch, own = self._launch, _arguments(method)
        numbers = {**launch.let, **launch.fields}
        terms = (*numbers.values(), *launch.scratch.values(), *filter(None, [launch.work]))
        read = {name for term in terms for name in term.names if name not in own}

        def local(name: str, value: Typed, location: Location) -> Typed:
            text = f"{name}_" if name in map(_in_python, own) or name in _RESERVED else name
            named.append(Part(text, value.text, location))
            return Typed(ast.Name(text), value.kind)

        depends_on = arguments_of(self._spec, method)
        scope.read.update(depends_on)
        types = call(f"results.{method.name}", *(parsed(_in_python(name)) for name in depends_on))
        types_of = dict.fromkeys(kinds, types)
        if len(results_of(method)) > 1 or not read.isdisjoint(kinds):
            types_of = {name: ast.Name(f"{name}_type") for name in kinds}
            named.append(Part(", ".join(f"{name}_type" for name in kinds), ast.unparse(types), launch.location))
        values = dict.fromkeys(launch.results, Typed(parsed("None"), NULL))
        for name, term in numbers.items():
            value = self._typed(scope, term)
            values[name] = local(name, value, term.location) if name in launch.let or name in read else value
            scope.names.setdefault(name, values[name])
        for name, kind in kinds.items():
            values[name] = local(name, Typed(call("build.output", types_of[name]), kind), launch.results[name])
        for name, term in launch.scratch.items():
            value = self._typed(scope, term, ARRAY, ARRAY + OPTIONAL, NULL)
            values[name] = value if value.kind == NULL else local(name, value, term.location)
        return values

    def _named(self, op: str, own: Mapping[str, str]) -> dict[str, Typed]:
        """What expressions may name at first. Arguments that only other ops have are null."""
        texts = {
            # One that depends on the size of an element is read as dims are.
            constant.name: (f"constants.{constant.name.upper()}", NUMBER if isinstance(constant.value, int) else DIMS)
            for constant in self._spec.constants
        }
        texts |= {"op": (repr(op), ANY)}
        texts |= dict.fromkeys(self._of_any, ("None", NULL))
        texts |= {name: (_in_python(name), argument_kind(text)) for name, text in own.items()}
        named = {name: Typed(parsed(text), kind) for name, (text, kind) in texts.items()}
        return {**named_dtypes(self._spec.dtype_names), **named}

    def _flaw_of_call(self, module: str, name: str, count: int) -> str | None:
        """Why a function of the backend's ops does not take so many arguments; None where it does."""
        folder = BACKENDS / str(host_package(self._spec))
        modules = {**self._sources.python(folder), **self._sources.python(folder / "ops")}
        functions = self._sources.functions(modules[module]) or {} if module in modules else {}
        if name not in functions:
            known = [f"{module}.{each}" for each in functions] if functions else modules
            mend = did_you_mean(f"{module}.{name}", known, "write it to the package of the host's backend")
            return f"unknown function '{module}.{name}'{mend}"
        if functions[name].fits(["_"] * count):
            return None
        return f"'{module}.{name}' takes ({functions[name]}), not {count} arguments; give it these"

    def _typed(self, scope: Scope, term: Term, *wanted: str) -> Typed:
        try:
            return scope.condition(term.node) if wanted == (FLAG,) else scope.typed(term.node, *wanted)
        except TermError as error:
            self.note(term.location, f": {error}")
            return Typed(ast.Constant(None), ANY)

    def _field(self, scope: Scope, member: Member, values: Mapping[str, Typed]) -> Part:
        """What is packed of a field."""
        name, launch = member.name, self._launch
        term = launch.scratch.get(name) or launch.fields.get(name)
        location = launch.results.get(name, launch.location if term is None else term.location)
        if name not in values and name not in self._of_any:
            if name not in _WORDS:
                self.note(location, f" says nothing of field '{name}'; write it to 'fields'")
            return Part(name, _WORDS.get(name, "0"), location)
        value = values[name] if name in values else self._typed(scope, Term(name, location))
        is_address = member.is_number and member.fields[0].type == "address"
        if is_address and value.kind.startswith((OPERAND, ARRAY)):
            text = value.text
            if value.kind.startswith(OPERAND) and (name if term is None else term.text) not in launch.strided:
                text = f"{text} and " * value.kind.endswith(OPTIONAL) + f"contiguous(build, {text})"
            return Part(name, f"address_of({text})" if value.kind.endswith(OPTIONAL) else f"{text}.address", location)
        wanted = (OPERAND, NULL) if is_address else (NUMBER, FLAG) if member.is_number else (DIMS,)
        if value.kind not in (*wanted, ANY):
            self.note(location, f" has {value.kind} for field '{name}'; write {wanted[0]}")
        return Part(name, "NULL" if value.kind == NULL else value.text, location)

    def check_unused(self) -> None:
        """Note what no op of the launch needs."""
        launch, fields = self._launch, [member.name for member in self._struct.members]
        terms = {**launch.fields, **launch.scratch}
        places = {**{name: term.location for name, term in terms.items()}, **launch.results}
        for name, location in places.items():
            if name not in fields:
                self.note(location, f" has '{name}', which is no field{did_you_mean(name, fields)}")
        for name, term in launch.let.items():
            if name in fields or name not in self._read:
                reason = "is a field; write it to 'fields'" if name in fields else "nothing names; remove it"
                self.note(term.location, f" has '{name}' in 'let', which {reason}")
        for name, location in launch.unused.items():
            if name not in self._of_any or name in self._read:
                reason = "it names; remove it" if name in self._read else "is no argument; remove it"
                self.note(location, f" has '{name}' in 'unused', which {reason}")
        operands = [name for name, kind in self._of_any.items() if argument_kind(kind).startswith(OPERAND)]
        for name, location in launch.strided.items():
            if name not in operands:
                self.note(location, f" has '{name}' in 'strided', which is no operand{did_you_mean(name, operands)}")


def host_package(spec: Spec) -> str | None:
    """The package of the backend that launches kernels for the host."""
    owners = (each for each in spec.backends if each.code_objects is not None and each.code_objects.host)
    return next((owner.package for owner in owners), None)


def _arguments(method: Method) -> dict[str, str]:
    """The arguments of a method's ops, by name, with their types."""
    optional = {each.name: " | None" * method.is_optional(each.name) for each in method.single_operands}
    taken = {name for operand in method.operands for name in (operand.name, operand.layout)}
    others = {each.name: each.type for each in method.signature.parameters if each.name not in taken}
    return {**{name: f"Operand{end}" for name, end in optional.items()}, **others}


def buffer(dtype: ast.expr, sizes: Typed) -> ast.expr:
    """A new buffer in Python."""
    count = call("math.prod", sizes.node) if sizes.kind == DIMS else sizes.node
    return call("build.empty", dtype, count)


def _in_python(name: str) -> str:
    return "x" if name == "self" else f"{name}_" if name in _RESERVED else name


def _names(kernel: Kernel) -> Iterator[str]:
    """The names of the kernels of a pattern, in which the dtype alone is open."""
    axes = {axis: texts for axis, texts in kernel.over.items() if axis != "dtype"}
    for values in itertools.product(*axes.values()):
        yield kernel.name.format(**dict(zip(axes, values, strict=True)), dtype="{dtype}")
