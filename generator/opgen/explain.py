"""Explanations of names of the spec and of the emitted package, with the locations of everything that belongs to them.

An explanation is a tree of facts: what each is called, what it is, and where it stands. The look-ups read the checked
spec, the sources, the tests and the files below generated/; they change nothing.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from opgen.cells import FunctionCall, Lowering
from opgen.comparison.records import ORDER, records
from opgen.dtypes import DType
from opgen.emitted_names import assigned, defined, defined_in_cpp, definitions, emitted_modules, emitted_text
from opgen.errors import errors_of
from opgen.explain_line import explain_line
from opgen.explanation import Fact, generated
from opgen.folders import BACKENDS, HEADERS
from opgen.formula.printing import text_of
from opgen.formula.simplification import shared
from opgen.gradient_ops import op_of_numbers, saved_numbers, second_gradients
from opgen.kernels import Kernel, KernelFamily
from opgen.launched import launched
from opgen.matrix import Cell, op_cells
from opgen.model.backends import Backend
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.methods import Method
from opgen.model.reductions import BOUNDS, Monoid, Position
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.op_search import by_size, op_of
from opgen.problem import Location, Refusal, did_you_mean, lines_of
from opgen.project import Project
from opgen.results import results_of
from opgen.rows import readable
from opgen.scopes import derivatives, is_differentiable, scopes
from opgen.views.kernel_patterns import kernel_rows

_TESTS = "tests"
_MAX_TESTS = 6
# The module whose classes have Tensor's methods that are ops.
_TENSOR = "tensor_ops"
_FRONT = ("Storage", "Device", "Tensor")
# Kinds that have explanations of their own.
_TOLD = ("op", "gradient op", "storage method", "device method", "dtype", "backend", "cells of", "kernel", ORDER)


@dataclass(frozen=True)
class Scope:
    """The backend and the dtype of a question; all where none is named."""

    backend: str | None = None
    dtype: str | None = None

    def has(self, dtype: str | None) -> bool:
        """Return True if a dtype is in scope."""
        return self.dtype is None or dtype in (None, self.dtype)


_Thing: TypeAlias = tuple[tuple[str, ...], Callable[[str], Fact]]


def explain(project: Project, name: str, scope: Scope) -> list[Fact]:
    """Return the facts about everything in the spec or the output with this name. Refusal if there is nothing."""
    match = re.fullmatch(r"(.+):(\d+)", name)
    if match is not None:
        return [explain_line(project, Path(match[1]), int(match[2]))]
    explainer = Explainer(project, scope)
    # Methods of the front are explained by their entries of the spec.
    holder, _, tail = name.rpartition(".")
    requested = tail if holder in _FRONT else name
    facts = [make(requested) for known, make in explainer.things() if requested in known]
    facts = facts or [*explainer.symbols(name)]
    if not facts:
        known = dict.fromkeys(each for names, _ in explainer.things() for each in names)
        fix = "give a name of the spec or of generated/, or FILE:LINE"
        raise Refusal(f"nothing is called '{name}'{did_you_mean(name, known, fix)}")
    return facts


class Explainer:
    """Explains the names of a project."""

    def __init__(self, project: Project, scope: Scope) -> None:
        self.project, self.scope = project, scope
        self.spec: Spec = project.spec

    def things(self) -> Iterator[_Thing]:
        """All that the spec names: what each is called, and what explains it."""
        spec = self.spec
        for kind in spec.functors.values():
            for functor in kind.functors:
                yield (functor.name, f"{kind.name}.{functor.name}"), partial(self.op, kind, functor)
        for method in spec.methods:
            if method.functor is None:
                yield (method.name,), partial(self.method, method)
        for dtype in spec.dtypes:
            yield (dtype.name,), partial(self.dtype, dtype)
        for backend in spec.backends:
            yield (backend.name,), partial(self.backend, backend)
        for family in spec.kernels:
            for kernel in family.kernels:
                names = [row.name for row in kernel_rows(spec, kernel)]
                yield tuple(dict.fromkeys((kernel.name, *names))), partial(self.kernel, family, kernel)
        for subject, record in records(spec, _TOLD).items():
            facts = tuple(
                Fact(".".join(path), _shown(leaf.value), leaf.location)
                for path, leaf in record.leaves.items()
                if path[-1] not in (ORDER, "name") and leaf.value != ""
            )
            fact = Fact(subject.kind, subject.name, record.location, facts)
            yield (subject.name, subject.name.rpartition(".")[2]), partial(_same, fact)

    # Ops and methods.

    def op(self, kind: FunctorKind, functor: Functor, _: str) -> Fact:
        """An op."""
        spec = self.spec
        methods = [
            method
            for method in spec.storage_methods()
            if method.kind == kind.name and method.functor in (None, functor.name)
            if (method.functor is None) != functor.is_method
        ]
        parts = [
            Fact("computes", functor.doc, functor.location),
            *self._formula(functor),
            *self._gradient(functor),
            Fact("dtypes", " ".join(spec.resolve(functor.dtypes)), _place(functor.dtypes)),
        ]
        parts += [Fact("result", functor.result, functor.location)] if functor.result is not None else []
        parts += [
            Fact("parameter", name if default is None else f"{name} = {default}", functor.location)
            for name, default in functor.parameters.items()
        ]
        parts += [Fact("edge", str(edge), edge.location) for edge in functor.edges]
        for method in methods:
            how = f"{functor.member}, " if method.functor is None else ""
            parts.append(Fact("called by", f"{how}storage method {method.name}", method.location))
        if functor.has_front and not functor.is_gradient:
            parts.append(Fact("called by", f"Tensor.{functor.name}", defined(self.project, functor.name, _TENSOR)))
        op = None if functor.is_method else functor.name
        # A method that works in place has cells of its own.
        for method in methods[:1]:
            parts += self._cells(method, op, functor)
        parts += self._edits(functor)
        return Fact("op", f"{kind.name}.{functor.name}", functor.location, (*parts, *self._tests(functor.name)))

    def method(self, method: Method, _: str) -> Fact:
        """A storage method or a device method."""
        spec = self.spec
        parts = [
            Fact("does", " ".join(method.doc.split()), method.location),
            Fact("signature", str(method.signature), method.location),
        ]
        for operand in method.operands:
            values = f", {operand.values}" if operand.values is not None else ""
            parts.append(Fact("operand", f"{operand.name}: {_written(operand.dtypes)}{values}", operand.location))
        parts += [Fact("example", str(example), example.location) for example in method.examples]
        parts += [Fact("result", it.text, it.location) for it in results_of(method)]
        parts += [Fact("check", f"{it.call.name}({', '.join(it.call.arguments)})", it.location) for it in method.checks]
        parts.append(Fact("raises", ", ".join(sorted(errors_of(spec, method)))))
        parts += [Fact(f"part {name}", part.text, part.location) for name, part in method.let.items()]
        parts += [] if method.body is None else [Fact("body", method.body.text, method.body.location)]
        if method.gradient is not None:
            gradient = method.gradient
            parts += [Fact("gradient", f"{name}: {it.text}", it.location) for name, it in gradient.expressions()]
            reason = gradient.none or gradient.missing
            parts += [Fact("gradient", f"none: {reason}", gradient.location)] if reason is not None else []
        if method.kind is not None:
            kind = spec.functors[method.kind]
            parts.append(Fact("ops", " ".join(functor.name for functor in kind.chosen), Location(kind.path)))
        # Ops have the cells of a method that chooses between them, unless it works in place.
        if method.kind is None or method.signature.returns == "None":
            parts += self._cells(method, spec.ops(method)[0], None)
        return Fact(f"{method.owner} method", method.name, method.location, (*parts, *self._tests(method.name)))

    def _formula(self, functor: Functor) -> Iterator[Fact]:
        """Yield the formula of an op, and its primitives."""
        reduction = functor.reduction
        if isinstance(reduction, Position):
            yield Fact("position", f"where {reduction.of} finds its element", functor.location)
        elif reduction is not None:
            yield Fact("identity", reduction.identity, reduction.identity_location)
            for name in ("element", "combine", "finish", "row"):
                formula = getattr(reduction, name)
                if formula is not None:
                    yield Fact(name, text_of(formula.node), formula.location)
        elif functor.computed is not None:
            used = [self.spec.primitives[name] for name in self._primitives(functor)]
            primitives = []
            for primitive in used:
                ops = [
                    Fact(f"in {language}", text, implementation.location)
                    for language in ("array", "kernel")
                    for implementation in [primitive.implementation(language)]
                    for text in implementation.texts
                ]
                primitives.append(
                    Fact("primitive", f"{primitive.call}: {primitive.doc}", primitive.location, tuple(ops))
                )
            location = functor.written.location
            yield Fact("formula", text_of(functor.computed.node), location, tuple(primitives))

    def _primitives(self, functor: Functor) -> list[str]:
        """The primitives of an op's formula."""
        every = [name for scope in scopes(self.spec, functor).values() for name in scope.used()]
        return [name for name in dict.fromkeys(every) if name in self.spec.primitives]

    def _gradient(self, functor: Functor) -> Iterator[Fact]:
        """The gradients of an op's operands; what they have more than once has a name."""
        op_of_rows = op_of_numbers(self.spec, functor)
        if op_of_rows is None and not is_differentiable(self.spec, functor):
            yield Fact("gradient", "none")
            return
        for name, node in saved_numbers(self.spec, op_of_rows or functor).items():
            yield Fact("number of each row", f"{name} is {text_of(readable(node))}", functor.location)
        gradients = second_gradients(self.spec, op_of_rows) if op_of_rows else derivatives(self.spec, functor)
        for operand, node in gradients.items():
            written = functor.gradient.get(operand) or functor.computed or functor
            how = "" if operand in functor.gradient else ", which follows from the formula"
            parts, body = shared(readable(node))
            known = op_of(functor, node, by_size(self.spec.every_functor))
            facts = [Fact(f"where {name} is", text_of(part)) for name, part in parts.items()]
            if known is not None:
                op, arguments = known
                facts.insert(0, Fact("one op", f"{op.name}({', '.join(arguments)})", op.location))
            yield Fact("gradient", f"of {operand}, {text_of(body)}{how}", written.location, tuple(facts))

    # Cells.

    def _cells(self, method: Method, op: str | None, functor: Functor | None) -> Iterator[Fact]:
        """Yield the lowerings on each backend, grouped by dtypes with the same lowering."""
        for backend in self.spec.backends:
            if self.scope.backend not in (None, backend.name):
                continue
            groups: dict[tuple[str, Location], list[Cell]] = {}
            for cell in op_cells(self.spec, method, op):
                if cell.backend == backend.name and self.scope.has(cell.dtype):
                    how = cell.via or f"unsupported: {cell.reason}"
                    groups.setdefault((how, cell.source), []).append(cell)
            for (how, source), own in groups.items():
                dtypes = " ".join(cell.dtype for cell in own if cell.dtype is not None)
                parts: list[Fact] = []
                if own[0].status == "supported":
                    lowering = self.spec.lowerings[backend.name][method.name, op][own[0].dtype]
                    parts += self._branch(method, backend, lowering)
                    parts += self._kernels(backend, functor, own)
                yield Fact(f"on {backend.name}", f"{how}{f' of {dtypes}' if dtypes else ''}", source, tuple(parts))

    def _branch(self, method: Method, backend: Backend, lowering: Lowering) -> Iterator[Fact]:
        """The functions that a cell names, and the branch that calls them."""
        for call in lowering.calls:
            op = self.spec.launch_ops.get((call.module, call.function))
            if op is not None:
                parts = (Fact("emitted", op.name, defined(self.project, call.function, call.module)),)
                yield Fact("launch", f"{op.struct} of {op.family.name}", op.location, parts)
                continue
            path, node = self._function(backend, call)
            where = None if node is None else self.project.sources.location_of(path, node.lineno)
            yield Fact("function", f"{path.parts[2]}.ops.{call.module}.{call.function}", where)
            libraries = [library for library in backend.libraries if library.name == call.library]
            yield from (Fact("library", f"{each.name}, {each.opener}", each.location) for each in libraries)
        branch = self._case(method, backend)
        if branch is not None:
            yield Fact("branch", f"of {method.name}", branch)

    def _function(self, backend: Backend, call: FunctionCall) -> tuple[PurePosixPath, ast.FunctionDef | None]:
        """The module and the definition of the function that a cell calls."""
        paths = [BACKENDS / package / "ops" / f"{call.module}.py" for package in self.spec.packages[backend.name]]
        for path in paths:
            for node in (self.project.sources.tree(path) or ()) if path in self.project.sources.paths else ():
                if isinstance(node, ast.FunctionDef) and node.name == call.function:
                    return path, node
        return paths[0], None

    def _case(self, method: Method, backend: Backend) -> Location | None:
        """Where the branch of a backend is emitted."""
        name = re.compile(rf"\b(Q?{backend.class_prefix}Storage|{backend.class_prefix}Device)\b")
        for path, tree in emitted_modules(self.project).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and node.name == method.name:
                    cases = [case for part in ast.walk(node) if isinstance(part, ast.Match) for case in part.cases]
                    for case in cases:
                        if name.search(ast.unparse(case.pattern)):
                            return generated(path, case.pattern.lineno)
        return None

    # Kernels.

    def _kernels(self, backend: Backend, functor: Functor | None, own: Sequence[Cell]) -> Iterator[Fact]:
        """The kernels that compute an op on a backend, whose cells are `own`."""
        for family, kernels in launched(self.spec, self.project.sources, functor, own):
            if backend.code_objects is None or family.host != backend.code_objects.host:
                continue
            if functor is None:
                names = ", ".join(dict.fromkeys(kernel.name for kernel in kernels))
                yield Fact("kernels", f"of {family.name}: {names}", kernels[0].location)
                continue
            for kernel in kernels:
                every = (row for row in kernel_rows(self.spec, kernel) if row.op == functor.name)
                rows = [row for row in every if self.scope.has(row.dtype)]
                if len(rows) > 2:
                    names = ", ".join(row.name for row in rows[:2])
                    yield Fact("kernels", f"{len(rows)} of {kernel.name}: {names}, ...", kernel.location)
                else:
                    yield from (self.kernel(family, kernel, row.name) for row in rows)

    def kernel(self, family: KernelFamily, kernel: Kernel, name: str) -> Fact:
        """A kernel, or a pattern of them."""
        struct = next(struct for struct in family.structs if struct.name == kernel.arguments)
        fields = ", ".join(f"{field.name}: {field.type}" for field in struct.fields)
        body = kernel.call.partition("<")[0].partition("(")[0]
        row = next((row for row in kernel_rows(self.spec, kernel) if row.name == name), None)
        call = kernel.call if row is None else row.call
        parts = [
            Fact("family", f"{family.name}: {family.doc}", Location(family.path)),
            Fact("body", call, next(self._in_headers(body), None)),
            Fact("takes", f"{struct.name}({fields})", struct.location),
        ]
        dtype = next((dtype for dtype in self.spec.dtypes if row is not None and dtype.name == row.dtype), None)
        functor = next((each for each in self.spec.every_functor if row is not None and each.name == row.op), None)
        if functor is not None:
            parts.append(Fact("op", f"{functor.kind}.{functor.name}", functor.location))
        if dtype is not None:
            parts.append(self._accumulated(family, dtype, functor))
        for op in self.spec.launch_ops.values():
            if kernel in op.kernels:
                parts.append(Fact("launched by", op.name, op.location))
        if row is None:
            names = [each.name for each in kernel_rows(self.spec, kernel)]
            parts.append(Fact("makes", f"{len(names)}: {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"))
        else:
            parts.append(Fact("emitted", row.name, self._kernel_line(family, row.name)))
        return Fact("kernel", name, kernel.location, tuple(parts))

    def _accumulated(self, family: KernelFamily, dtype: DType, functor: Functor | None) -> Fact:
        """In what a kernel computes."""
        reduction = functor.reduction if functor is not None else None
        is_compared = isinstance(reduction, Position) or (
            isinstance(reduction, Monoid) and reduction.identity in BOUNDS
        )
        if is_compared or (functor is not None and functor.condition is not None):
            text = f"in nothing: elements are {'compared' if is_compared else 'moved'}"
        elif isinstance(reduction, Monoid) and functor is not None and functor.result is not None:
            text = f"in {functor.result}, the dtype of the result"
        elif isinstance(reduction, Monoid) and reduction.accumulate and family.host and dtype.name == dtype.compute:
            # The host keeps a wider state where no conversion makes one.
            text = f"in {reduction.accumulate if dtype.kind == 'float' else dtype.compute}"
        else:
            text = f"in {dtype.compute}" + (", rounded once" if dtype.compute != dtype.name else "")
        return Fact("accumulates", text, dtype.location)

    def _in_headers(self, function: str) -> Iterator[Location]:
        """Yield the first definition of a function in each header of the kernels."""
        sources = self.project.sources
        pattern = re.compile(rf"(?:^|[ *&]){re.escape(function)}\(")
        for path in sources.below(HEADERS):
            if function in sources.defined(path):
                lines = enumerate(lines_of(sources.text(path) or ""), 1)
                numbers = (number for number, line in lines if pattern.search(line) and "return" not in line)
                yield from (sources.location_of(path, number) for number in islice(numbers, 1))

    def _kernel_line(self, family: KernelFamily, name: str) -> Location | None:
        pattern = re.compile(rf"\b{re.escape(name)}\b")
        for output in self.project.outputs:
            if output.path.stem == family.name and output.path.suffix != ".py":
                for number, line in enumerate(lines_of(emitted_text(self.project, output.path)), 1):
                    if pattern.search(line):
                        return generated(output.path, number)
        return None

    # What to edit.

    def _edits(self, functor: Functor) -> Iterator[Fact]:
        """Where an op is changed."""
        parts = []
        if functor.computed is not None:
            parts.append(Fact("what it computes", "the formula", functor.written.location))
            for name in self._primitives(functor):
                primitive = self.spec.primitives[name]
                for where in self._in_headers(primitive.name):
                    parts.append(Fact("how kernels compute it", f"the function {primitive.name}", where))
                texts = " or ".join(primitive.implementation("array").texts)
                parts.append(Fact("how arrays compute it", texts, primitive.implementation("array").location))
        else:
            parts.append(Fact("what it computes", "the reduction", functor.location))
        parts.append(Fact("which dtypes it has", _written(functor.dtypes), _place(functor.dtypes)))
        for backend in self.spec.backends:
            if backend.package is not None and self.scope.backend in (None, backend.name):
                key = f"functors: {{{functor.kind}.{functor.name}: module.function}}"
                parts.append(Fact(f"what {backend.name} calls", f"a cell '{key}'", Location(backend.path)))
        yield Fact("to change", "", None, tuple(parts))

    def _tests(self, name: str) -> Iterator[Fact]:
        """Where tests say a name first, each file once; what defines it, or has it as a key, comes first."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        key = re.compile(rf"^\s*(?:def {re.escape(name)}\b|[\"']?{re.escape(name)}[\"']?\s*[:=])")
        matches: list[tuple[bool, Location, str]] = []
        for file in sorted((self.project.root / _TESTS).rglob("*.py")):
            lines = list(enumerate(lines_of(file.read_text(encoding="utf-8", errors="replace")), 1))
            matching = [(number, line) for number, line in lines if word.search(line)]
            defining = [(number, line) for number, line in matching if key.search(line)]
            for number, line in (defining or matching)[:1]:
                where = Location(file.relative_to(self.project.root), number)
                matches.append((not defining, where, line.strip()))
        yield from (Fact("test", text, where) for _, where, text in sorted(matches)[:_MAX_TESTS])

    # Dtypes and backends.

    def dtype(self, dtype: DType, _: str) -> Fact:
        """A dtype."""
        spec = self.spec
        groups = [name for name, members in spec.groups.items() if dtype.name in members]
        without = [f"{f.kind}.{f.name}" for f in spec.every_functor if dtype.name not in spec.resolve(f.dtypes)]
        parts = [
            Fact("is", dtype.doc, dtype.location),
            Fact(
                "kind",
                f"{dtype.kind}, {dtype.bytes} bytes, {dtype.numpy or 'none'} in NumPy, {dtype.cpp} in kernels",
                dtype.location,
            ),
            Fact("computes", f"in {dtype.compute}", dtype.location),
            Fact("groups", " ".join(groups)),
            Fact("ops without it", f"{len(without)} of {len(spec.every_functor)}: {' '.join(without)}"),
        ]
        for backend in spec.backends:
            if self.scope.backend in (None, backend.name) and dtype.name in backend.lacking:
                reason, where = backend.lacking[dtype.name]
                parts.append(Fact(f"not on {backend.name}", reason, where))
        parts.append(
            Fact("emitted", f"DType.{dtype.name.upper()}", assigned(self.project, dtype.name.upper(), "DType"))
        )
        return Fact("dtype", dtype.name, dtype.location, (*parts, *self._tests(dtype.name)))

    def backend(self, backend: Backend, _: str) -> Fact:
        """A backend."""
        spec = self.spec
        parts = [Fact("is", backend.doc, Location(backend.path))]
        parts += [Fact("extends", str(owner), Location(owner.path)) for owner in spec.chain(backend)[1:]]
        if backend.missing is not None:
            parts.append(Fact("runtime", f"missing: {backend.missing}", backend.location_of("runtime")))
        else:
            folders = ", ".join(str(BACKENDS / package) for package in spec.packages[backend.name])
            parts.append(Fact("runtime", folders, backend.location_of("runtime")))
        parts += [Fact("library", f"{each.name}: {each.opener}", each.location) for each in backend.libraries]
        if backend.code_objects is not None:
            targets = " ".join(backend.code_objects.targets)
            parts.append(Fact("compiled for", targets, backend.location_of("code_objects")))
        prefix = backend.class_prefix
        for suffix in ("Device", "Storage"):
            # A dummy has classes of the same names.
            where = defined(self.project, f"{prefix}{suffix}", folder=backend.package or "")
            parts.append(Fact("emitted", f"{prefix}{suffix}", where))
        own = [f"{part}.{key}" for part, key in backend.cells]
        parts.append(Fact("cells of its own", " ".join(own)))
        return Fact("backend", backend.name, Location(backend.path), (*parts, *self._tests(backend.name)))

    # What is emitted.

    def symbols(self, name: str) -> Iterator[Fact]:
        """Yield the facts about an emitted name: `name`, or `Class.name`."""
        holder, _, own = name.rpartition(".")
        in_cpp = [("", *definition) for definition in defined_in_cpp(self.project, own)]
        for owner, known, kind, where in (*definitions(self.project), *in_cpp):
            if known == own and holder in ("", owner):
                line = explain_line(self.project, where.path, where.line)
                yield Fact(kind, f"{owner}.{known}" if owner else known, where, line.parts)


def _same(fact: Fact, _: str) -> Fact:
    return fact


def _written(names: Names) -> str:
    return f"[{', '.join(names.texts)}]" if names.listed else " ".join(names.texts)


def _place(names: Names) -> Location | None:
    return next(iter(names.locations), None)


def _shown(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
