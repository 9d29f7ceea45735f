"""The ops that opgen makes of launches: what each does with its arguments, and what is wrong with a launch."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from opgen.cpp import snake
from opgen.folders import BACKENDS
from opgen.kernels import Kernel, KernelFamily, Struct
from opgen.launch_writer import ATTRIBUTES, Writer, arguments, buffer, in_python, result_names
from opgen.launches import PLACEHOLDER, Launch, Term
from opgen.model.callables import Callable
from opgen.model.emitted_ops import DEVICE_MODULE, HOST_MODULE, Launched, LaunchOp, module_of
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Location, Problem, Problems, did_you_mean
from opgen.sources import Sources
from opgen.terms import (
    ANY,
    BUILDER,
    DIMS,
    FLAG,
    NULL,
    NUMBER,
    OPERAND,
    OPTIONAL,
    Scope,
    Typed,
    appends_steps,
    argument_kind,
    named_dtypes,
    parsed,
)

_GRID: Final = ("parts", "blocks", "threads", "steps")
_RETURNS: Final = {"Storage": "Buffer", "tuple[Storage, ...]": "tuple[Buffer, ...]", "None": "None"}
_HOST_RETURNS: Final = {"None": "tuple[()]"}


def _returned(results: Sequence[str], returns: str) -> str:
    """The expression that an op returns, of a type."""
    if returns == _HOST_RETURNS["None"]:
        return "()"
    return ", ".join(results) + "," * (returns.startswith("t") and len(results) == 1)


def launch_packages(spec: Spec) -> Mapping[str, str | None]:
    """By module of emitted ops, the package of the backends that have them: that of the host, that of all devices."""
    owners = [each for each in spec.backends if each.code_objects is not None]
    packages: dict[str, str | None] = dict.fromkeys((HOST_MODULE, DEVICE_MODULE))
    for owner in reversed(owners):
        is_host = owner.code_objects is not None and owner.code_objects.host
        family = None if is_host else spec.family_of(owner)
        packages[HOST_MODULE if is_host else DEVICE_MODULE] = owner.package if family is None else family.package
    return packages


def launch_ops(spec: Spec, sources: Sources, problems: Problems) -> dict[tuple[str, str], LaunchOp]:
    """The ops of all launches by their modules and methods; what is wrong goes to `problems`."""
    methods = {method.name: method for method in (*spec.storage_methods(), *spec.device_methods)}
    packages = launch_packages(spec)
    ops: dict[tuple[str, str], LaunchOp] = {}
    last: dict[tuple[str, str], tuple[_Planner, Writer]] = {}
    planners: list[_Planner] = []
    every = {f"{family.name}.{launch.struct}": launch for family in spec.kernels for launch in family.launches}
    # One level is as far as a reader has to look.
    others = {name: launch for name, launch in every.items() if launch.like is None}
    for family in spec.kernels:
        structs = {struct.name: struct for struct in family.structs}
        module = module_of(family)
        for launch in family.launches:
            # A project that builds on another package need not have its methods, nor a backend that launches.
            if launch.location.is_of_base and (packages[module] is None or methods.keys().isdisjoint(launch.ops)):
                continue
            if launch.struct not in structs:
                message = f"a launch is of unknown struct '{launch.struct}'"
                problems.unknown(launch.location, message, launch.struct, structs)
                continue
            if launch.like is not None and launch.like not in others:
                message = f"launch '{launch.struct}' is like the unknown '{launch.like}'"
                problems.unknown(launch.location, message, launch.like, others)
                continue
            # What is wrong with the method is noted, and all of the launch follows from it.
            if any(methods[name].is_broken for name in launch.ops if name in methods):
                continue
            planner = _Planner(spec, sources, family, launch, structs[launch.struct], others.get(launch.like or ""))
            for name, (kernel, location) in launch.ops.items():
                if name not in methods and location.is_of_base:
                    continue
                if name not in methods:
                    planner.note(location, f" has unknown method '{name}'{did_you_mean(name, methods)}")
                    continue
                earlier = ops.get((module, name))
                if earlier is not None and earlier.family.name != family.name:
                    planner.note(location, f" has op '{name}' of launch '{earlier.struct}'; remove one")
                    continue
                _, before = last.get((module, name), (None, None))
                planned = planner.op(methods[name], kernel, location, earlier, before)
                if planned is not None:
                    ops[module, name], last[module, name] = planned[0], (planner, planned[1])
            planner.check_keys()
            planners.append(planner)
    for key, op in ops.items():
        planner, writer = last[key]
        planner.check_arguments(op, writer)
    for planner in planners:
        planner.check_unused()
        problems += planner.noted
    return {key: op.pruned() for key, op in ops.items()}


class _Planner:
    """Makes the ops of one launch."""

    def __init__(
        self, spec: Spec, sources: Sources, family: KernelFamily, launch: Launch, struct: Struct, other: Launch | None
    ) -> None:
        """Plan a launch that is like another one, if any."""
        self._spec, self._sources = spec, sources
        self._family, self._written, self._struct = family, launch, struct
        members = [member.name for member in struct.members]
        self._launch = launch if other is None else launch.resembling(other, members)
        self._package = launch_packages(spec)[module_of(family)]
        self.noted: dict[Problem, None] = {}
        methods = (*spec.storage_methods(), *spec.device_methods)
        of = {method.name: arguments(method) for method in methods if method.name in launch.ops}
        self._of_any: Mapping[str, str] = {name: kind for each in of.values() for name, kind in each.items()}
        self._read: set[str] = set()

    def note(self, location: Location, message: str) -> None:
        """Note an error of the launch, once for all of its ops."""
        self.noted[Problem(location, f"launch '{self._launch.struct}'{message}")] = None

    def op(
        self, method: Method, kernel: str, location: Location, earlier: LaunchOp | None, before: Writer | None
    ) -> tuple[LaunchOp, Writer] | None:
        """The op of a method with this launch after those of `earlier`, and its writer.

        None of a method that a launch cannot describe.
        """
        launch, own = self._launch, arguments(method)
        kernels = self._kernels(kernel, location)
        # On the host, an op that returns None leaves the call to the next one.
        returns = (_RETURNS | _HOST_RETURNS if self._family.host else _RETURNS).get(method.signature.returns)
        is_fixed = method.kind is None and not any(map(method.is_several, method.operands))
        if returns is None or not is_fixed:
            self.note(location, f" has '{method.name}', of which the operands or the results vary; write it in Python")
            return None
        names = self._named(method.name, own)
        scope = Scope(names, ATTRIBUTES, buffer, self._flaw_of_call, signature_of=self._function)
        writer = Writer(self._spec, self._family, launch, self._struct, method, scope, self._of_any, self.note, before)
        op = earlier or self._begun(writer, method, kernel, location, returns)
        options = "" if launch.work is None else f", work={writer.typed(launch.work, NUMBER).text}"
        locals_ = writer.locals()
        fields = tuple(writer.field(member) for member in self._struct.members)
        options += "" if launch.shared is None else f", {writer.typed(launch.shared, NUMBER).text}"
        launched = Launched(
            struct=launch.struct,
            kernels=kernels,
            locals=(*locals_, *writer.copies),
            packer=snake(launch.struct),
            fields=fields,
            parts=writer.parts(),
            steps=writer.steps(kernel, location),
            options=options,
            condition_of_error=writer.condition_of_error(),
        )
        self._read |= writer.scope.read
        calls = frozenset(scope.calls) | op.calls
        return replace(op, launched=(*op.launched, launched), calls=calls), writer

    def _begun(self, writer: Writer, method: Method, kernel: str, location: Location, returns: str) -> LaunchOp:
        """An op in front of its first launch."""
        launch, own, is_host = self._launch, arguments(method), self._family.host
        conditions = [*launch.when, *filter(None, [launch.unless, launch.instead])]
        early = {name for term in conditions for name in term.names}
        early |= {*PLACEHOLDER.findall(kernel)} if is_host else set()
        first = (*writer.types(), *writer.lets(early))
        when = [writer.typed(term, FLAG).node for term in launch.when]
        has_kernel = [parsed(f"kernels.has({self._family.name!r}, kernel)")] if is_host else []
        outputs = writer.outputs()
        results = [writer.values[name] for name in writer.kinds]
        unless = f"{results[0].text}.count == 0" if results and not is_host else ""
        if launch.unless is not None:
            condition = writer.typed(launch.unless, FLAG).node
            unless = "" if isinstance(condition, ast.Constant) else ast.unparse(condition)
        parameters = {f"_{name}" if name in launch.unused else in_python(name): kind for name, kind in own.items()}
        typed = [f"{BUILDER}: ProgramBuilder", *["kernels: HostKernels"] * is_host]
        typed += [f"{name}: {kind}" for name, kind in parameters.items()]
        return LaunchOp(
            method=method,
            family=self._family,
            location=location,
            arguments=tuple(parameters),
            parameters=", ".join(typed),
            kernel=writer.kernel(kernel, location) if is_host else "",
            first=first,
            condition=ast.unparse(ast.BoolOp(ast.And(), [*when, *has_kernel])) if has_kernel else "",
            outputs=outputs,
            unless=unless,
            instead="" if launch.instead is None else writer.instead(launch.instead),
            zeroed=writer.zeroed(),
            launched=(),
            returns=f"{returns} | None" if is_host else returns,
            results=_returned([each.text for each in results], returns),
            has_optional=any(each.kind.endswith(OPTIONAL) for each in results),
            calls=frozenset(writer.scope.calls),
        )

    def check_arguments(self, op: LaunchOp, writer: Writer) -> None:
        """Note the arguments with which the launches of an op do nothing."""
        # What an error is in may be what an argument is for.
        own = arguments(op.method).keys() - writer.scope.read - self._launch.unused.keys()
        for name in () if self.noted else own:
            message = f" does nothing with '{name}' of '{op.method.name}'; name it, or write it to 'unused'"
            self.note(op.location, message)

    def _kernels(self, name: str, location: Location) -> tuple[Kernel, ...]:
        """The patterns of the kernels that a name stands for, in which all but the dtype may be any word."""
        patterns = [each for each in self._family.kernels if each.arguments == self._launch.struct]
        parts = (part if number % 2 else re.escape(part) for number, part in enumerate(PLACEHOLDER.split(name)))
        form = re.compile(
            "".join(
                part if number % 2 == 0 else re.escape("{dtype}") if part == "dtype" else r"(?:\w*|\{dtype\})"
                for number, part in enumerate(parts)
            )
        )
        kernels = tuple(each for each in patterns if any(map(form.fullmatch, _names(each))))
        if not kernels:
            known = dict.fromkeys(itertools.chain.from_iterable(map(_names, patterns)))
            self.note(location, f" has no kernel '{name}'{did_you_mean(name, known)}")
        return kernels

    def check_keys(self) -> None:
        """Note the keys that are for launches of the other side, and a grid that is lacking or said twice."""
        launch = self._launch
        of_device: dict[str, Term | None] = {"unless": launch.unless, "instead": launch.instead}
        of_device |= {"steps": next(iter(launch.steps.values()), None)}
        of_device |= {key: getattr(launch, key) for key in (*_GRID[:-1], "shared")}
        of_host = {"when": next(iter(launch.when), None), "work": launch.work}
        for key, term in (of_device if self._family.host else of_host).items():
            if term is not None:
                side = "a device" if self._family.host else "the host"
                self.note(term.location, f" has '{key}', which is for kernels of {side}; remove it")
        grid = [key for key in _GRID if getattr(launch, key)]
        if not self._family.host and grid not in (["parts"], ["blocks"], ["threads"], ["steps"], ["parts", "blocks"]):
            what = f"has '{grid[0]}' and '{grid[1]}'; remove one" if grid else "has no grid; write 'threads' or 'parts'"
            self.note(launch.location, f" {what}")

    def check_unused(self) -> None:
        """Note what no op of the launch needs."""
        launch, fields = self._written, [member.name for member in self._struct.members]
        terms = {**launch.fields, **launch.scratch}
        locations = {name: term.location for name, term in terms.items()}
        # Of an op of several launches, the first one names the results of all.
        structs = {each.struct for each in self._family.launches if not each.ops.keys().isdisjoint(launch.ops)}
        written = {member.name for each in self._family.structs if each.name in structs for member in each.members}
        results = {name: location for text, location in launch.results.items() for name in result_names(text)}
        locations |= {name: location for name, location in results.items() if name not in written}
        locations |= {name: term.location for name, term in launch.offsets.items()}
        for name, location in locations.items():
            if name not in fields:
                self.note(location, f" has '{name}', which is no field{did_you_mean(name, fields)}")
        for name, location in launch.zero.items():
            if name not in {each for text in launch.result_fields for each in result_names(text)}:
                self.note(location, f" has '{name}' in 'zero', which is no result; remove it")
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

    def _named(self, op: str, own: Mapping[str, str]) -> dict[str, Typed]:
        """Return the names that expressions may use at first. Arguments that only other ops have are null."""
        texts = {
            # One that depends on the size of an element is read as dims are.
            constant.name: (f"constants.{constant.name.upper()}", NUMBER if isinstance(constant.value, int) else DIMS)
            for constant in self._spec.constants
        }
        texts |= {"op": (repr(op), ANY)}
        texts |= dict.fromkeys(self._of_any, ("None", NULL))
        texts |= {name: (in_python(name), argument_kind(text)) for name, text in own.items()}
        named = {name: Typed(parsed(text), kind) for name, (text, kind) in texts.items()}
        return {**named_dtypes(self._spec.dtype_names), **named}

    def _function(self, module: str, name: str) -> Callable | None:
        return self._functions(module).get(name)

    def _functions(self, module: str) -> Mapping[str, Callable]:
        modules = self._modules
        return (self._sources.functions(modules[module]) or {}) if module in modules else {}

    @property
    def _modules(self) -> Mapping[str, PurePosixPath]:
        package = BACKENDS / str(self._package)
        return {
            name: path
            for folder in (BACKENDS, package, package / "ops")
            for name, path in self._sources.python(folder).items()
        }

    def _flaw_of_call(self, module: str, name: str, count: int) -> str | None:
        """Return why a function of the backend's ops does not take this many arguments; None if it does."""
        functions = self._functions(module)
        if name not in functions:
            known = [f"{module}.{each}" for each in functions] if functions else self._modules
            side = "host's backend" if self._family.host else "devices' backends"
            fix = did_you_mean(f"{module}.{name}", known, f"write it to the package of the {side}")
            return f"unknown function '{module}.{name}'{fix}"
        function = functions[name]
        if function.fits(["_"] * (count + appends_steps(function))):
            return None
        return f"'{module}.{name}' takes ({function}), not {count} arguments; give it these"


def _names(kernel: Kernel) -> Iterator[str]:
    """The names of the kernels of a pattern, in which the dtype alone is open."""
    axes = {axis: texts for axis, texts in kernel.over.items() if axis != "dtype"}
    for values in itertools.product(*axes.values()):
        yield kernel.name.format(**dict(zip(axes, values, strict=True)), dtype="{dtype}")
