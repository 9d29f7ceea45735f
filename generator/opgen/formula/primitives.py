"""Primitives: the functions of formulas, and what computes them in each language."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from opgen.cache.memo import memoize
from opgen.declarations import by_name, repetitions
from opgen.decoder import Cursor, Diagnostics
from opgen.expression import ExpressionError, parse_expression
from opgen.formula.derivatives import gradients
from opgen.formula.formula import Formula, too_long
from opgen.formula.nodes import OPERATORS, WHERE, Kind, Node, Number, calls, names
from opgen.formula.parsing import pattern
from opgen.notes import Choice, Entry, Example, Mark, defines, like, names_of
from opgen.notes import Name as Name_
from opgen.problem import Location

Language: TypeAlias = Literal["array", "kernel"]
# A function of an array library in an expression over arrays.
_OF_LIBRARY: Final = r"(?<=np\.)\w+"


@dataclass(frozen=True)
class _SplitImplementation:
    """An implementation in two parts."""

    integer: Annotated[str, names_of("word", token=_OF_LIBRARY), "The expression for integers."]
    float: Annotated[str, names_of("word", token=_OF_LIBRARY), "The expression for floats."]


@dataclass(frozen=True)
class Implementation:
    """The implementation of a primitive in a language: expressions over its parameters, for integers and floats."""

    integer: str
    float: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, names_of("word", token=_OF_LIBRARY)] | _SplitImplementation

    @property
    def texts(self) -> tuple[str, ...]:
        """The distinct expressions: one or two."""
        return tuple(dict.fromkeys((self.integer, self.float)))

    @classmethod
    def decode(cls, cursor: Cursor) -> "Implementation":
        """An expression, or one of integers and one of floats."""
        if isinstance(cursor.value.content, dict):
            split: _SplitImplementation = cursor.decode(_SplitImplementation)
            implementation = cls(split.integer, split.float, cursor.value.location)
        else:
            text = cursor.decode(str)
            implementation = cls(text, text, cursor.value.location)
        for text in implementation.texts:
            for message in _is_expression(cursor, text):
                cursor.problem(message)
                return replace(implementation, integer="0", float="0")
        return implementation


def _is_expression(_: Cursor, text: str) -> Iterator[str]:
    try:
        parse_expression(text or "0")
    except ExpressionError as error:
        yield f"'{text}' is no expression ({error}); write one over the primitive's parameters"


def _is_pattern(_: Cursor, text: str) -> Iterator[str]:
    if pattern(text) is None:
        yield f"'{text}' is no primitive; write its name and parameters, as 'exp(x)', or an operator, as 'x + y'"


def _is_bool(cursor: Cursor, text: str) -> Iterator[str]:
    if text != "bool":
        yield f"{cursor.what} must be 'bool', not '{text}'; leave it out where it has the kind of the operands"


@dataclass(frozen=True)
class Primitive:
    """A function of formulas."""

    call: Annotated[str, Entry("primitive '{}'"), _is_pattern, defines("primitive", token=r"^\w+(?=\()")]
    doc: Annotated[str, "What the primitive gives."]
    kind: Annotated[
        str | None, Choice(("integer", "float")), "The kind of its operands; without this key it has both kinds."
    ]
    condition: Annotated[str | None, "The parameter that is a truth value."]
    result: Annotated[str | None, _is_bool, like("bool"), "`bool` if it gives truth values."]
    integer: Annotated[
        str | None,
        _is_expression,
        names_of("word", token=r"^\w+(?=\()"),
        "The expression of integers, where both languages have the same one: an operand, or a function that numerics "
        "and the kernels' headers have by one name.",
    ]
    array: Annotated[
        Implementation | None,
        "The expression over arrays, in words of spec/families/array.yaml: `np` is the library, `numerics` the "
        "functions of runtime/numerics/numerics.py, and another module there is known by its name, as in "
        "`number_theory.gcd(np, x, y)`. Without it, an operator is itself, another primitive np's function of its "
        "name.",
    ]
    kernel: Annotated[
        Implementation | None,
        "The expression over elements, of functions of the kernels' headers, overloaded for float and double. Without "
        "it, the primitive itself.",
    ]
    complex: Annotated[
        str | None,
        Choice(("none", "real")),
        "What it gives of complex numbers: `real` ones, or `none` where they have no such function, as they have no "
        "order. Without this key it gives complex ones.",
    ]
    header: Annotated[
        str | None,
        names_of("header", token=r"[\w./]+"),
        "The header of runtime/kernels that defines the kernel's function, if those of the families do not.",
    ]
    fast_math: Annotated[
        bool,
        "Whether the kernel's function has an overload in fast_math.hpp, quick and exact enough for floats of at most "
        "11 bits.",
    ]
    of_dtype: Annotated[
        bool,
        "Whether its functions take the dtype of the elements, to which the result is rounded: those of kernels as "
        "the first argument of their template, those of arrays as the last argument.",
    ]
    bounded: Annotated[bool, "Whether the function has an overload in vector_math.hpp, quick for floats of up to 1e5."]
    let: Annotated[Mapping[Annotated[Name_, defines("local")], Formula], Mark.OPTIONAL, "Named parts of the gradients."]
    formula: Annotated[
        Formula | None,
        "The formula of what it computes, of other primitives, where neither language has an expression of NumPy's "
        "functions or of C's. It emits no code: `opgen check` compares expressions, gradients and edges with it.",
    ]
    gradient: Annotated[
        Mapping[str, Formula],
        Mark.OPTIONAL,
        "By operand, the formula of its gradient, over the operands and `g`, the gradient of the result. An operand "
        "whose gradient is 0 nearly everywhere has 0.",
    ]
    complex_gradient: Annotated[
        Mapping[str, Formula],
        Mark.OPTIONAL,
        Example("x: g * conj(x) / abs(x)"),
        "By operand, the formula of its gradient of complex numbers, where it is not `gradient`: the derivative by the "
        "real part plus 1j times that by the imaginary part. Operands and the result are conjugated in it, so that the "
        "formulas of complex differentiable functions are those of real ones. It may have the imaginary unit, 1j.",
    ]
    location: Location = field(compare=False)

    @property
    def name(self) -> str:
        """The name in formulas; that of an operator is its expression of x and y."""
        return (pattern(self.call) or ("", ()))[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its operands."""
        return (pattern(self.call) or ("", ()))[1]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that its operands may have."""
        every: tuple[Kind, ...] = ("integer", "float")
        # One that is no kind is noted.
        return tuple(kind for kind in every if self.kind == kind) or every

    def implementation(self, language: Language) -> Implementation:
        """Return its implementation in a language: by default NumPy's function of its name, or that of the kernels."""
        default = f"np.{self.call}" if language == "array" and self.name not in OPERATORS else self.call
        written = self.array if language == "array" else self.kernel
        implementation = written or Implementation(default, default, self.location)
        if self.integer is None:
            return implementation
        is_called = language == "array" and self.integer not in self.parameters
        return replace(implementation, integer=f"numerics.{self.integer}" if is_called else self.integer)

    def written_in(self, language: Language, text: str) -> str:
        """The key that says an expression of an implementation."""
        is_of_integers = self.integer is not None and text == self.implementation(language).integer
        return "integer" if is_of_integers else language

    def gradient_of(self, operand: str) -> "Node | None":
        """The gradient of an operand; None where it has none."""
        return self.gradient[operand].with_parts(self.let).node if operand in self.gradient else None

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All that is written of it as formulas."""
        own = () if self.formula is None else (self.formula,)
        return (*own, *self.gradient.values(), *self.complex_gradient.values(), *self.let.values())

    def diagnostics(self, what: str) -> Diagnostics:
        """Note operands that it does not have."""
        known = ", ".join(self.parameters)
        if self.condition is not None and self.condition not in self.parameters:
            yield "condition", f"'condition' of {what} must be one of {known}, not '{self.condition}'"
        if self.integer is not None:
            if "integer" not in self.kinds:
                yield "integer", f"{what} is of floats alone; remove 'integer', or its 'kind'"
            for key, written in (("array", self.array), ("kernel", self.kernel)):
                if written is not None and len(written.texts) > 1:
                    yield key, f"'{key}' of {what} says again what 'integer' says; write the expression of floats alone"
        yield from too_long({**self.gradient, **self.complex_gradient}, self.let, what)
        for key, gradient in (("gradient", self.gradient), ("complex_gradient", self.complex_gradient)):
            for operand in gradient:
                if self.result is not None:
                    yield (key, operand, None), f"truth values such as {what} have no gradient; remove it"
                elif operand not in self.parameters or operand == self.condition:
                    message = f"'{key}' of {what} has an unknown operand '{operand}'; write one of {known}"
                    yield (key, operand, None), message
        if self.complex_gradient and self.complex == "none":
            yield "complex_gradient", f"{what} is not of complex numbers; remove 'complex_gradient'"


def built_in(
    call: str,
    doc: str,
    location: Location,
    *,
    kind: str | None = None,
    array: Implementation | None = None,
    kernel: Implementation | None = None,
    complex: str | None = None,
    has_gradient: bool = True,
) -> Primitive:
    """Return a primitive of the language itself, which no entry describes; its gradient of x is 0, if it has one."""
    return Primitive(
        call=call,
        doc=doc,
        kind=kind,
        condition=None,
        result=None,
        integer=None,
        array=array,
        kernel=kernel,
        complex=complex,
        header=None,
        fast_math=False,
        of_dtype=False,
        bounded=False,
        let={},
        formula=None,
        gradient={"x": Formula(Number(0), location)} if has_gradient else {},
        complex_gradient={},
        location=location,
    )


class Primitives(dict[str, Primitive]):
    """The primitives by their names. Derived values are cached."""

    def __init__(self, primitives: Mapping[str, Primitive]) -> None:
        super().__init__(primitives)
        self._gradients: dict[tuple[Node, tuple[str, ...]], Mapping[str, Node]] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._behind: dict[tuple[Node, ...], Primitives] = {}

    def used_by(self, nodes: tuple[Node, ...]) -> "Primitives":
        """Those on which anything depends that follows from formulas: the same object as long as these are the same.

        All of them where a formula calls one that there is not, or names one, as the message about it names others.
        """
        if nodes not in self._behind:
            called = {call.primitive for node in nodes for call in calls(node)}
            is_unknown = any(name.rpartition(".")[2] in self for node in nodes for name in names(node))
            reached = frozenset[str]().union(*map(self._reach, (WHERE, *OPERATORS, *called)))
            own = (primitive for name, primitive in self.items() if name in reached)
            self._behind[nodes] = _chosen(*own) if called <= self.keys() and not is_unknown else self
        return self._behind[nodes]

    def _reach(self, name: str) -> frozenset[str]:
        """A primitive with those that its gradients call, and so on."""
        if name not in self._reached:
            reached, waiting = {name}, [name]
            while waiting:
                primitive = self.get(waiting.pop())
                formulas = primitive.formulas if primitive is not None else ()
                new = {call.primitive for formula in formulas for call in calls(formula.node)} - reached
                reached |= new
                waiting += new
            self._reached[name] = frozenset(reached)
        return self._reached[name]

    def of_complex(self) -> "Primitives":
        """The primitives with the gradients of complex numbers."""
        return _of_complex(*self.values())

    def gradients(self, node: Node, wanted: Iterable[str]) -> Mapping[str, Node]:
        """The gradients of what a formula names: see `gradients`."""
        key = node, tuple(wanted)
        if key not in self._gradients:
            self._gradients[key] = gradients(*key, self)
        return self._gradients[key]


@memoize(lambda *primitives: primitives)
def _chosen(*primitives: Primitive) -> Primitives:
    return Primitives({primitive.name: primitive for primitive in primitives})


@memoize(lambda *primitives: primitives, size=4)
def _of_complex(*primitives: Primitive) -> Primitives:
    return Primitives({it.name: replace(it, gradient={**it.gradient, **it.complex_gradient}) for it in primitives})


@dataclass(frozen=True, eq=False)
class PrimitiveFile:
    """The primitives of the formulas of spec/functors."""

    primitives: Annotated[
        tuple[Primitive, ...], "The primitives, each as formulas write it of its parameters: `exp(x)` or `x + y`."
    ]

    @cached_property
    def named(self) -> Primitives:
        """The primitives by their names, the first one of each."""
        return Primitives(by_name(self.primitives))

    def diagnostics(self, _: str) -> Diagnostics:
        """Report names that several primitives have."""
        return repetitions("primitive", self.primitives)
