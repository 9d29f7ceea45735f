"""The content of each page of the reference."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath
from types import SimpleNamespace as View

import jinja2

from opgen.banner import REFERENCE
from opgen.cpp import camel
from opgen.docstrings import sentence
from opgen.formats import BLOCKS
from opgen.formula.nodes import Call, Node, Number, walk
from opgen.formula.primitives import Primitive
from opgen.formula.printing import text_of
from opgen.formula.simplification import shared
from opgen.functor_methods import result_dtype
from opgen.gradient_ops import op_of_numbers, primitives_by_ops, saved_numbers, second_gradients
from opgen.gradients import differentiable
from opgen.kernels import Kernel, KernelFamily
from opgen.launched import launched
from opgen.matrix import Cell, cells, implementations
from opgen.model.functors import Functor
from opgen.model.methods import Method, Operand
from opgen.model.reductions import Monoid, Position
from opgen.model.results import Result
from opgen.model.spec import Spec
from opgen.project import Project
from opgen.reference import markdown
from opgen.reference.excerpts import Excerpt, of_functor, of_method
from opgen.results import results_of
from opgen.rows import readable
from opgen.scan_gradients import explained
from opgen.scopes import derivatives, is_differentiable
from opgen.write import changes, write


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("opgen.reference"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Markdown
    )
    environment.filters.update(text=markdown.escaped, cell=markdown.cell, code=markdown.code)
    return environment.get_template(name)


@dataclass(frozen=True)
class Subject:
    """The subject of a page: an op, a method, or a method that is one op."""

    name: str
    functor: Functor | None
    methods: tuple[Method, ...]  # that compute it
    family: str  # the file of spec/storage that has the first of them; of device methods, `device`
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Reference:
    """The pages about a project; `notes` are what it adds to the pages of ops, by their names."""

    project: Project
    notes: Mapping[str, str]

    @property
    def spec(self) -> Spec:
        """The project's spec."""
        return self.project.spec

    @cached_property
    def cells(self) -> list[Cell]:
        """The complete support matrix."""
        return cells(self.spec)

    @cached_property
    def subjects(self) -> tuple[Subject, ...]:
        """All ops and methods, in the order of the spec."""
        families = {method.name: family.name for family in self.spec.families for method in family.methods}
        own: dict[str, list[Cell]] = {}
        for name, those_of_it in groupby(self.cells, lambda cell: cell.method):
            for cell in those_of_it:
                if cell.op is not None:
                    own.setdefault(name, [])  # a method that chooses between ops has a page too
                own.setdefault(cell.op or name, []).append(cell)
        methods = {method.name: method for method in self.spec.methods}
        subjects = []
        for name, of_it in own.items():
            by_name = dict.fromkeys(cell.method for cell in of_it) or {name: None}
            those = tuple(methods[each] for each in by_name)
            op = next((cell.op for cell in of_it), None)
            functor = self.spec.functor(those[0], op)
            subjects.append(Subject(name, functor, those, families.get(those[0].name, "device"), tuple(of_it)))
        return tuple(subjects)

    def pages(self, folder: Path) -> dict[PurePosixPath, str]:
        """The text of each page by its path below `folder`, from where they include emitted files."""
        pages = {PurePosixPath("ops", f"{it.name}.md"): self.page(it, folder) for it in self.subjects}
        pages[PurePosixPath("index.md")] = _template("index.md.j2").render(view=self._index())
        pages[PurePosixPath("matrix.md")] = _template("matrix.md.j2").render(data=self._matrix())
        return pages

    def page(self, subject: Subject, folder: Path) -> str:
        """The page about an op or a method."""
        return _template("op.md.j2").render(view=self._op(subject, folder / "ops"))

    def _index(self) -> View:
        docs = {family.name: family.doc for family in self.spec.families} | {"device": self.spec.device_doc}
        groups: dict[str, list[Subject]] = {}
        for subject in self.subjects:
            groups.setdefault(subject.family, []).append(subject)
        return View(
            package=self.spec.package.name,
            groups=[
                View(name=name, doc=docs[name], rows=[(each.name, _doc(each)) for each in members])
                for name, members in groups.items()
            ],
        )

    def _op(self, subject: Subject, folder: Path) -> View:
        functor, first = subject.functor, subject.methods[0]
        return View(
            name=subject.name,
            doc=_doc(subject),
            note=functor.note if functor is not None else None,
            source=(functor or first).location,
            member=functor.member if functor is not None else None,
            methods=subject.methods,
            tensor=_tensor_method(functor, first),
            ops=[] if subject.cells else [op for op in self.spec.ops(first) if op is not None],
            operands=[] if functor is not None else [self._operand(operand) for operand in first.operands],
            results=[_result(result, first, functor) for result in results_of(first)],
            formula=[*self._saved(functor), *_formula(functor)],
            primitives=self._primitives(functor),
            gradients=self._gradients(functor, first),
            examples=[str(example) for example in first.examples],
            notes=self.notes.get(subject.name, "").strip(),
            edges=functor.edges if functor is not None else (),
            tables=[_table(name, list(own)) for name, own in groupby(subject.cells, lambda cell: cell.name)],
            kernels=[(family.path.as_posix(), _rows(kernels, functor)) for family, kernels in self._launched(subject)],
            excerpts=[
                (os.path.relpath(excerpt.file, folder), excerpt.file.relative_to(self.project.root), excerpt)
                for excerpt in self._excerpts(subject)
            ],
        )

    def _operand(self, operand: Operand) -> tuple[str, str]:
        words = {"same": "that of `self`", "op": "those of the op"}
        texts = operand.dtypes.texts
        return operand.name, words.get(texts[0], ", ".join(texts)) if len(texts) == 1 else ", ".join(texts)

    def _primitives(self, functor: Functor | None) -> list[Primitive]:
        """The primitives of its formula."""
        node = functor.computed.node if functor is not None and functor.computed is not None else Number(0)
        used = dict.fromkeys(part.primitive for part in walk(node) if isinstance(part, Call))
        return [self.spec.primitives[name] for name in used if name.isidentifier() and name in self.spec.primitives]

    def _saved(self, functor: Functor | None) -> list[str]:
        """The numbers of each row that an op saves and its gradient op reads, as lines of a formula."""
        op = None if functor is None else op_of_numbers(self.spec, functor)
        saved = {} if op is None else saved_numbers(self.spec, op)
        return [f"{name} = {text_of(readable(node))}" for name, node in saved.items()]

    def _gradients(self, functor: Functor | None, method: Method) -> View | None:
        """The gradients of its operands, or why there are none; None of what makes no floats of floats."""
        if functor is not None:
            if (op := op_of_numbers(self.spec, functor)) is not None:
                rows = [(operand, _lines(node)) for operand, node in second_gradients(self.spec, op).items()]
                return View(rows=rows, none=None)
            if not is_differentiable(self.spec, functor) or isinstance(functor.reduction, Position):
                return None
            if functor.is_scan:
                texts = explained(self.spec, functor).items()
                rows = [(name, [it.replace("`", "")] if isinstance(it, str) else _lines(it)) for name, it in texts]
                return View(rows=rows, none=None)
            known = primitives_by_ops(self.spec) if functor.is_gradient else self.spec.primitives
            gradients = derivatives(self.spec, functor, known)
            return View(rows=[(operand, _lines(node)) for operand, node in gradients.items()], none=None)
        gradient = method.gradient
        if method.body is not None and (operands := differentiable(self.spec, method)):
            rows = [(operand.name, ["follows from the parts"]) for operand in operands]
            return View(rows=rows, none=None)
        if gradient is None:
            return None
        rows = [(operand, [expression.text]) for operand, expression in gradient.functions.items()]
        rows += [("all operands", [gradient.all.text])] if gradient.all is not None else []
        rows += [(f"{operand}, by another call", [it.text]) for operand, it in gradient.instead.items()]
        return View(rows=rows, none=gradient.none or gradient.missing)

    def _launched(self, subject: Subject) -> Iterator[tuple[KernelFamily, Sequence[Kernel]]]:
        return launched(self.spec, self.project.sources, subject.functor, subject.cells)

    def _excerpts(self, subject: Subject) -> Iterator[Excerpt]:
        if subject.functor is not None:
            excerpts = [of_functor(self.project, it, camel(subject.functor.name)) for it, _ in self._launched(subject)]
        else:
            excerpts = [of_method(self.project, subject.family, method.name) for method in subject.methods]
        yield from (excerpt for excerpt in excerpts if excerpt is not None)

    def _matrix(self) -> str:
        """The support matrix as the script of its page reads it."""
        dtypes = [*self.spec.groups["all"], *self.spec.sets[BLOCKS]]
        backends = [backend.name for backend in self.spec.backends]
        texts: dict[str, int] = {}
        ops = []
        for _, cells_of_it in groupby(self.cells, lambda cell: cell.name):
            own = [*cells_of_it]
            by_way: dict[tuple[int, int, int], list[int]] = {}
            for cell in own:
                is_supported = cell.status == "supported"
                text = texts.setdefault((cell.via if is_supported else cell.reason) or "", len(texts))
                key = (backends.index(cell.backend), int(is_supported), text)
                by_way.setdefault(key, []).append(-1 if cell.dtype is None else dtypes.index(cell.dtype))
            ops.append(
                {
                    "name": own[0].op or own[0].method,
                    "method": own[0].method,
                    "gradient": any(cell.gradient for cell in own),
                    "internal": _is_internal(own[0].op or own[0].method),
                    "cells": [[*key, those] for key, those in by_way.items()],
                }
            )
        groups = {name: [dtypes.index(each) for each in own] for name, own in self.spec.sets.items()}
        data = {"backends": backends, "dtypes": dtypes, "groups": groups, "texts": [*texts], "ops": ops}
        # An end tag in a text would end the script.
        return json.dumps(data, separators=(",", ":")).replace("</", "<\\/")


def _result(result: Result, method: Method, functor: Functor | None) -> str:
    """Return the results of a method; with an op that it chooses, in the dtype of that op."""
    if functor is None or method.functor is not None:
        return result.text
    first = method.operands[0].name
    return result.text.replace("op.dtype", result_dtype(functor, first))


def _doc(subject: Subject) -> str:
    return sentence(subject.functor.doc) if subject.functor is not None else subject.methods[0].doc


def _is_internal(name: str) -> bool:
    """Whether it is a part of gradients, which `backward` calls and users do not."""
    return re.search(r"_gradients?(_[xy])?$", name) is not None


def _tensor_method(functor: Functor | None, method: Method) -> str | None:
    """The tensor method that is an op alone."""
    if functor is None:
        return str(method.tensor) if method.tensor is not None else None
    if not functor.has_front or functor.is_gradient:
        return None
    defaults = [name if value is None else f"{name}={value:g}" for name, value in functor.parameters.items()]
    return f"{functor.name}({', '.join([*functor.operands[1:], *defaults])})"


def _formula(functor: Functor | None) -> list[str]:
    if functor is None:
        return []
    if functor.computed is not None:
        return _lines(functor.computed.node)
    if not isinstance(functor.reduction, Monoid):
        return []
    monoid = functor.reduction
    element = "x" if monoid.element is None else text_of(monoid.element.node)
    lines = [f"identity = {monoid.identity}", f"element(x) = {element}"]
    lines.append(f"combine(x, y) = {text_of(monoid.combine.node)}")
    written = {"finish(x)": monoid.finish, "row(x)": monoid.row}
    return lines + [f"{of} = {text_of(formula.node)}" for of, formula in written.items() if formula is not None]


def _lines(node: Node) -> list[str]:
    """A formula, with a line for each part that it has more than once."""
    parts, body = shared(readable(node))
    return [*(f"{name} = {text_of(part)}" for name, part in parts.items()), text_of(body)]


def _rows(kernels: Iterable[Kernel], functor: Functor | None) -> list[View]:
    """The kernels of a family, each pattern once."""
    name, struct = (functor.name, camel(functor.name)) if functor is not None else ("{op}", "{op}")
    rows = {
        kernel.name: View(
            name=kernel.name.replace("{op}", name),
            arguments=kernel.arguments,
            call=kernel.call.replace("{op}", struct),
        )
        for kernel in kernels
    }
    return [*rows.values()]


def _table(name: str, own: Sequence[Cell]) -> View:
    """Return the support for each dtype on each backend."""
    backends = [*dict.fromkeys(cell.backend for cell in own)]
    supported = {(cell.dtype, cell.backend): cell.status == "supported" for cell in own}
    dtypes = [*dict.fromkeys(cell.dtype for cell in own)]
    rows = [(dtype or "any", ["yes" if supported[dtype, each] else "no" for each in backends]) for dtype in dtypes]
    return View(name=name, backends=backends, rows=rows, implementations=[row[1:] for row in implementations(own)[1]])


def write_pages(pages: Mapping[PurePosixPath, str], output: Path) -> int:
    """Write the pages that changed below `output`, and remove those that are left over; how many these are."""
    texts = {path: REFERENCE.line(text, "% ") + text for path, text in pages.items()}
    changed = changes(texts, output, banner=REFERENCE)
    write(changed, output)
    return len(changed)
