"""The Python of an op that opgen makes of a launch: its values, its buffers, the fields of the struct, and the grid."""

import ast
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from opgen.kernels import KernelFamily, Member, Struct
from opgen.launches import PLACEHOLDER, Launch, Term
from opgen.model.emitted_ops import Part, Step
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.results import arguments_of, results_of, typed_result
from opgen.terms import (
    ANY,
    ARRAY,
    BUILDER,
    DIMS,
    DTYPE,
    FLAG,
    NULL,
    NUMBER,
    OPERAND,
    OPTIONAL,
    TEXT,
    Attributes,
    Scope,
    TermError,
    Typed,
    argument_kind,
    call,
    parsed,
)

_RESULT: Final = "a result"
ATTRIBUTES: Final[Attributes] = {
    OPERAND: {
        "shape": ("it.shape", DIMS),
        "strides": ("it.strides", DIMS),
        "dtype": ("it.dtype", DTYPE),
        "itemsize": ("it.itemsize", NUMBER),
        "count": ("it.layout.elem_count", NUMBER),
        "address": ("it.address", ANY),
        "is_contiguous": ("it.layout.is_contiguous", FLAG),
    },
    DTYPE: {
        "compute": ("it.compute", DTYPE),
        "itemsize": ("it.itemsize", NUMBER),
        "index_form": ("it.index_form", ANY),
    },
    _RESULT: {"shape": ("it.shape", DIMS), "dtype": ("it.dtype", DTYPE), "count": ("it.elem_count", NUMBER)},
}
"""The attributes of each kind in expressions of launches."""
_WORDS: Final = {"threads": "THREADS", "run_parts": "RUN_PARTS"}
# What one launch of several is called, and the fields that it decides.
_PART: Final = "part"
# What stands for the word of a step in the name of a kernel.
_STEP: Final = "step"
_OF_PART: Final = {"count": "part.elements", "geometry": "part.geometry"}
# The group of fields by which a kernel notes indexes that are out of range.
_INDEX: Final = "index"
# What emitted ops call something themselves.
_RESERVED: Final = frozenset({BUILDER, "kernels", "kernel", "packed", _PART, "math", "constants", "results"})


class Writer:
    """Writes the parts of one op of a launch; errors go to `note`."""

    def __init__(
        self,
        spec: Spec,
        family: KernelFamily,
        launch: Launch,
        struct: Struct,
        method: Method,
        scope: Scope,
        known: Collection[str],
        note: Callable[[Location, str], None],
        before: "Writer | None" = None,
    ) -> None:
        """`before` has written the launch in front, whose names stay known."""
        self._spec, self._family, self._launch, self._struct = spec, family, launch, struct
        self._method, self._own, self.scope, self._note = method, arguments(method), scope, note
        self._known = known  # the arguments of all methods of the launch
        kinds = self._own.items()
        # By what the op calls them.
        self._operands = {in_python(name): name for name, kind in kinds if argument_kind(kind).startswith(OPERAND)}
        taken = {*map(in_python, self._own), *_RESERVED}
        self._taken: set[str] = taken if before is None else before._taken
        self.values: dict[str, Typed] = {} if before is None else dict(before.values)
        """By name, what `let` and buffers are."""
        self._fields: dict[str, Typed] = {}
        self.kinds: dict[str, str] = {} if before is None else before.kinds
        """By field, the kinds of the results of the method."""
        self._types: dict[str, ast.expr] = {}
        self._results = {
            next((name for name in names if name not in self._own), names[0]): location
            for names, location in ((result_names(text), location) for text, location in launch.result_fields.items())
        }
        self._contiguous_operands: dict[str, Typed] = {} if before is None else before._contiguous_operands
        self.copies: list[Part] = []
        """The operands that are copied where they are not contiguous."""
        if before is not None:
            self._results = before._results
            scope.read |= before.scope.read
            names = before.scope.names.items()
            scope.names |= {name: value for name, value in names if value.kind != NULL or name not in scope.names}
        # What is read more than once, or by an expression, has a name in the op.
        self._read = {name for term in launch.terms for name in term.names if name not in self._own}

    def typed(self, term: Term, *wanted: str) -> Typed:
        """An expression of one of the wanted kinds."""
        try:
            is_condition = wanted == (FLAG,)
            return self.scope.condition(term.node) if is_condition else self.scope.typed(term.node, *wanted)
        except TermError as error:
            self._note(term.location, f": {error}")
            return Typed(ast.Constant(None), ANY)

    def lets(self, names: Collection[str]) -> tuple[Part, ...]:
        """The entries of `let` that are not written yet, up to the last of these names."""
        left = [name for name in self._launch.let if name not in self.values]
        count = max((number for number, name in enumerate(left, 1) if name in names), default=0)
        return tuple([self._local(name, self.typed(self._launch.let[name])) for name in left[:count]])

    def _local(self, name: str, value: Typed, location: Location | None = None) -> Part:
        """A name in the op for a value, which later expressions and launches may read."""
        term = self._launch.let.get(name)
        part = self._named(name, value, location or (self._launch.location if term is None else term.location))
        self.values[name] = Typed(ast.Name(part.name), value.kind)
        self.scope.names.setdefault(name, self.values[name])
        return part

    def _named(self, name: str, value: Typed, location: Location) -> Part:
        """A value with a name that nothing else in the op has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return Part(name, value.text, location)

    def types(self) -> tuple[Part, ...]:
        """The types of the results, where expressions read them or there are several."""
        launch, method = self._launch, self._method
        if not method.operands:
            return ()
        depends_on = arguments_of(self._spec, method)
        self.scope.read.update(depends_on)
        results = results_of(method) if method.signature.returns != "None" else ()
        if len(results) > len(self._results):
            what = f"names {len(self._results)} results of '{method.name}', which gives {len(results)}"
            self._note(launch.location, f" {what}; write a field for each")
        names = {name: in_python(name) for name in ("self", *method.signature.arguments)}
        for name, result in zip(self._results, results, strict=False):
            # What is wrong with a result is noted of the method.
            with suppress(TermError):
                self.kinds[name] = typed_result(self._spec, method, result, buffer, names)[0].kind
                typed = Typed(ast.Name(f"{name}_type"), self.kinds[name].replace(ARRAY, _RESULT))
                # An argument may have the name of a field.
                if name not in self._own:
                    self.scope.names[name] = typed
        others = [name for text in launch.result_fields for name in result_names(text) if name not in self._own]
        for name in (*self._results, *others):
            self.scope.names.setdefault(name, Typed(parsed("None"), NULL))
            self.values[name] = Typed(parsed("None"), NULL)
        types = call(f"results.{method.name}", *(parsed(in_python(name)) for name in depends_on))
        self._types = dict.fromkeys(self.kinds, types)
        if len(results) <= 1 and self._read.isdisjoint(self.kinds):
            return ()
        self._types = {name: ast.Name(f"{name}_type") for name in self.kinds}
        return (Part(", ".join(f"{name}_type" for name in self.kinds), ast.unparse(types), launch.location),)

    def outputs(self) -> tuple[Part, ...]:
        """The buffers of the results."""
        if not self._method.operands:
            return self._outputs_of_fields()
        outputs = {name: Typed(call("build.output", self._types[name]), kind) for name, kind in self.kinds.items()}
        return tuple([self._local(name, value, self._results[name]) for name, value in outputs.items()])

    def _outputs_of_fields(self) -> tuple[Part, ...]:
        """Those of a device method, whose types stand in the launch."""
        parts = []
        for name, location in self._results.items():
            term = self._launch.fields.get(name)
            if term is None:
                self._note(location, f" has no dtype and sizes of '{name}'; write them to 'fields'")
                continue
            value = self.typed(term, ARRAY)
            self.kinds[name] = value.kind
            parts.append(self._local(name, value, term.location))
        return tuple(parts)

    def instead(self, term: Term) -> str:
        """Return the call for the case that nothing is launched."""
        return self._with_buffers(lambda: self.typed(term)).text

    def _with_buffers(self, typed: Callable[[], Typed]) -> Typed:
        """An expression in which results are buffers."""
        names = self.scope.names
        try:
            self.scope.names = {**names, **{name: self.values[name] for name in self.kinds}}
            return typed()
        finally:
            self.scope.names = names

    def locals(self) -> tuple[Part, ...]:
        """Return the entries of `let`, fields and buffers that are named in the op."""
        launch = self._launch
        parts = [*self.lets(launch.let)]
        if launch.parts is not None:
            self.scope.names[_PART] = Typed(ast.Name(_PART), ANY)
        for name, term in launch.fields.items():
            if name in self.kinds and not self._method.operands:
                continue
            value = self.typed(term)
            # Values of a part are written where they are packed; a call is evaluated once for all parts.
            is_called = launch.parts is not None and any(isinstance(node, ast.Call) for node in ast.walk(value.node))
            is_simple = isinstance(value.node, ast.Name)
            if _PART not in term.names and not is_simple and (name in self._read or is_called):
                part = self._named(name, value, term.location)
                value = Typed(ast.Name(part.name), value.kind)
                parts.append(part)
            self._fields[name] = value
            self.scope.names.setdefault(name, value)
        for name, term in launch.scratch.items():
            value = self._with_buffers(partial(self.typed, term, ARRAY, ARRAY + OPTIONAL, NULL))
            if value.kind == NULL:
                self.values[name] = value
            else:
                parts.append(self._local(name, value, term.location))
        return tuple(parts)

    def field(self, member: Member) -> Part:
        """Return the value that is packed for a field."""
        name, launch = member.name, self._launch
        term = launch.scratch.get(name) or launch.fields.get(name)
        location = self._results.get(name, launch.location if term is None else term.location)
        values = {**self.values, **self._fields}
        if name not in values and name not in self._known:
            if name in _OF_PART and launch.parts is not None:
                return Part(name, _OF_PART[name], location)
            if name not in _WORDS or not self._family.host:
                self._note(location, f" says nothing of field '{name}'; write it to 'fields'")
            return Part(name, _WORDS.get(name, "0"), location)
        value = values[name] if name in values else self.typed(Term(name, location))
        is_address = member.is_number and member.fields[0].type == "address"
        if is_address and value.kind.startswith((OPERAND, ARRAY)):
            offset = launch.offsets.get(name)
            start = None if offset is None else self.typed(offset, NUMBER)
            return Part(name, _address(self._contiguous(name, value, location), start), location)
        wanted = (OPERAND, NULL) if is_address else (NUMBER, FLAG) if member.is_number else (DIMS,)
        if value.kind not in (*wanted, ANY):
            self._note(location, f" has {value.kind} for field '{name}'; write {wanted[0]}")
        return Part(name, "NULL" if value.kind == NULL else value.text, location)

    def _contiguous(self, name: str, value: Typed, location: Location) -> Typed:
        """An operand in row-major order, unless the kernel reads it in any layout or it is none of the arguments."""
        operand = self._operands.get(value.text)
        if operand is None or operand in self._launch.strided:
            return value
        if value.text in self._contiguous_operands:
            return self._contiguous_operands[value.text]
        text = f"{value.text} and " * value.kind.endswith(OPTIONAL) + f"contiguous(build, {value.text})"
        part = self._named(name, Typed(parsed(text), value.kind), location)
        self.copies.append(part)
        copied = self._contiguous_operands[value.text] = Typed(ast.Name(part.name), value.kind)
        return copied

    def kernel(self, name: str, location: Location, step: str = "") -> str:
        """The name of the kernel in Python, or of that of a step."""

        def text(word: str) -> str:
            if word == _STEP and step:
                return step
            if word == "dtype" and word not in self.values:
                word = next(iter(self._operands.values()), word)
            value = self.typed(Term(word, location), DTYPE, OPERAND, NUMBER, TEXT)
            end = {DTYPE: ".value", OPERAND: ".dtype.value"}.get(value.kind, "")
            return f"{{{value.text}{end}}}"

        return ("f" if PLACEHOLDER.search(name) else "") + f'"{PLACEHOLDER.sub(lambda match: text(match[1]), name)}"'

    def parts(self) -> str:
        """The parts of the elements, where there may be several."""
        return "" if self._launch.parts is None else self.typed(self._launch.parts, ANY).text

    def steps(self, kernel: str, location: Location) -> tuple[Step, ...]:
        """The launches, one after the other."""
        launch = self._launch
        if launch.steps:
            steps = launch.steps.items()
            return tuple(
                [Step(self.kernel(kernel, location, name), self.typed(term, NUMBER).text) for name, term in steps]
            )
        blocks = "1" if self._family.host else f"{_PART}.blocks"
        if launch.blocks is not None:
            blocks = self.typed(launch.blocks, NUMBER).text
        elif launch.threads is not None:
            blocks = f"blocks_of({self.typed(launch.threads, NUMBER).text})"
        return (Step("kernel" if self._family.host else self.kernel(kernel, location), blocks),)

    def zeroed(self) -> tuple[Part, ...]:
        """The buffers that are set to 0, each with the condition under which there is one."""
        locations = self._launch.zero
        buffers = [(self.values[name], location) for name, location in locations.items() if name in self.kinds]
        return tuple(
            [
                Part(value.text, f"if {value.text} is not None: " * value.kind.endswith(OPTIONAL), location)
                for value, location in buffers
            ]
        )

    def condition_of_error(self) -> str | None:
        """The condition under which a kernel on a device may note an index that is out of range; None if never."""
        if self._family.host or all(member.group != _INDEX for member in self._struct.members):
            return None
        indexes = self._fields.get("indexes") or self.scope.names.get("indexes")
        is_optional = indexes is not None and indexes.kind == OPERAND + OPTIONAL
        return f"if {indexes.text} is not None: " if indexes is not None and is_optional else ""


def result_names(text: str) -> list[str]:
    """The fields of which a result is one, in order of preference."""
    return [name.strip() for name in text.split("|")]


def arguments(method: Method) -> dict[str, str]:
    """The arguments of a method's ops, by name, with their types."""
    optional = {each.name: " | None" * method.is_optional(each.name) for each in method.single_operands}
    taken = {name for operand in method.operands for name in (operand.name, operand.layout)}
    others = {each.name: each.type for each in method.signature.parameters if each.name not in taken}
    return {**{name: f"Operand{end}" for name, end in optional.items()}, **others}


def buffer(dtype: ast.expr, sizes: Typed) -> ast.expr:
    """A new buffer in Python."""
    count = call("math.prod", sizes.node) if sizes.kind == DIMS else sizes.node
    return call("build.empty", dtype, count)


def in_python(name: str) -> str:
    """Return the name of an argument in an emitted op."""
    return "x" if name == "self" else f"{name}_" if name in _RESERVED else name


def _address(value: Typed, offset: Typed | None) -> str:
    """The address of an operand or a buffer, or of one of its elements."""
    if value.kind == NULL:
        return "NULL"
    is_optional, base = value.kind.endswith(OPTIONAL), value.text
    if offset is None:
        return f"address_of({base})" if is_optional else f"{base}.address"
    size = f"{base}.itemsize" if value.kind.startswith(OPERAND) else f"{base}.dtype.itemsize"
    text = ast.unparse(ast.BinOp(offset.node, ast.Mult(), parsed(size)))
    return f"NULL if {base} is None else {base}.address + {text}" if is_optional else f"{base}.address + {text}"
