"""How the storage methods of ops of rows are recorded: their gradients are ops of rows too."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from opgen.functor_methods import number_of_row
from opgen.gradient_ops import GRADIENT_ENDING, TAKEN, row_gradient_name, row_gradient_sources, saved_numbers
from opgen.gradients import HANDLE, OTHERS
from opgen.model.examples import Example
from opgen.model.expressions import Expression
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.gradients import Gradient
from opgen.model.kinds import RESIDUAL, ROW, ROW_GRADIENT
from opgen.model.methods import Method
from opgen.model.results import Result
from opgen.model.spec import Spec
from opgen.signature import Parameter

SAVES = "saves"
"""The argument that says whether a call gives the numbers that its gradient needs."""


def with_row_gradient(spec: Spec, kinds: Mapping[str, FunctorKind], method: Method) -> Method:
    """Return a method with the gradient that it has if it is that of an op of rows."""
    functor = kinds[method.kind or ""].by_name[method.functor or ""]
    if not functor.is_of_rows or spec.package.without_gradients:
        return method
    if functor.is_gradient:
        return replace(method, gradient=_of_gradient(kinds[ROW], functor))
    gradients = kinds[ROW_GRADIENT].by_name if ROW_GRADIENT in kinds else {}
    gradient = gradients.get(row_gradient_name(functor))
    if functor.per_row:
        count = len(saved_numbers(spec, functor))
        return replace(
            _with_saved(functor, method, count) if count else method, gradient=_of_numbers(functor, gradient)
        )
    return replace(method, gradient=_of_op(spec, functor, gradient))


def _with_saved(functor: Functor, method: Method, count: int) -> Method:
    """Return a method with numbers of each row that its gradient needs as further results, where a call saves them."""
    parameters, examples, after = [*method.signature.parameters], [], len(functor.parameters)
    parameters.insert(len(parameters) - after, Parameter(SAVES, "bool"))
    for number, example in enumerate(method.examples):
        arguments = [*example.arguments.items()]
        arguments.insert(len(arguments) - after, (SAVES, number % 2 == 0))
        examples.append(Example.of(dict(arguments), example.location))
    saved = Result(f"{number_of_row(functor)} if {SAVES} else null", functor.location)
    return replace(
        method,
        signature=replace(method.signature, parameters=tuple(parameters)),
        results=(*method.results, *[saved] * count),
        examples=tuple(examples),
    )


def _of_numbers(functor: Functor, gradient: Functor | None) -> Gradient:
    """Return that of an op with a number for each row: its gradient op takes the numbers that it saved."""
    if gradient is None:
        return Gradient(None, {}, "the numbers do not depend on the elements", None, {}, functor.location)
    index = [functor.index] if functor.index is not None else []
    first = len(index)
    saved = [f"{OTHERS}[{first + offset}], g._layout.dense" for offset in range(len(gradient.numbers) - 1)]
    arguments = [
        "self._layout",
        *(_parts(it, it in gradient.optional) for it in gradient.vectors),
        _parts("g"),
        *saved,
        *map(_parts, index),
    ]
    arguments += [*["dim"] * (not functor.last_dim), *["ignore_index"] * len(index)]
    # Where nothing else needs the elements, their gradient is written over them.
    arguments += [f"walk.owns(node, 0, {HANDLE})", *gradient.parameters]
    call = f"self._like(self._storage.{gradient.name}({', '.join(arguments)}))"
    functions = {"self": Expression(call, functor.location)}
    for name in functor.vectors:
        call = f"row_formulas.row_vector({', '.join(['g', functor.member, repr(name), *_by_ops(functor, name)])})"
        functions[name] = Expression(call, functor.location)
    return Gradient(None, {}, None, None, functions, functor.location)


def _parts(name: str, is_optional: bool = False) -> str:
    """Return the storage and the layout of a tensor as arguments, None of one that may be left out."""
    condition = f"None if {name} is None else " * is_optional
    return f"{condition}{name}._storage, {condition}{name}._layout"


def _by_ops(functor: Functor, vector: str = "") -> list[str]:
    """Return the arguments of rules that compute gradients of numbers of rows, or of a vector, op by op."""
    first, *vectors = functor.operands
    # A vector that has a gradient is not left out.
    absent = {**functor.absent, vector: None}
    tensors = [f"{first!r}: self", *(f"{name!r}: ({name}, {absent.get(name)})" for name in vectors)]
    tensors += [f"{name!r}: {name}" for name in functor.numbers[:1]]
    name = functor.index
    index = "None" if name is None else f"({name!r}, {name}, ignore_index)"
    numbers = [f"{name!r}: {name}" for name in functor.parameters]
    dim = "len(self.shape) - 1" if functor.last_dim else "dim"
    return [f"{{{', '.join(tensors)}}}", index, dim, f"{{{', '.join(numbers)}}}"]


def _of_op(spec: Spec, functor: Functor, gradient: Functor | None) -> Gradient:
    """Return that of an op: the call of its gradient op, and which of the results each operand takes."""
    own = {functor.operands[0]: "self"}
    operands = () if gradient is None else gradient.operands[1:]
    read = [name for name in (TAKEN.get(name, name) for name in operands) if name != RESIDUAL]
    totals = () if gradient is None else gradient.totals
    dim = [] if functor.last_dim else ["dim"]
    numbers = [] if gradient is None else [*gradient.parameters]
    sources = [*row_gradient_sources(spec, functor).values()]
    if sources == [0] and not (functor.absent or functor.adds_residual):
        parts = [f"{own.get(name, name)}.{part}" for name in read for part in ("_storage", "_layout")]
        storage = f"g._storage.{row_gradient_name(functor)}({', '.join(['g._layout', *parts, *dim, *numbers])})"
        return Gradient(
            None, {}, None, None, {"self": Expression(f"g._like({storage})", functor.location)}, functor.location
        )
    arguments = [
        "g",
        repr(row_gradient_name(functor)),
        _tuple(sources),
        _tuple(own.get(name, name) for name in read),
        _tuple(dim),
        _tuple(f"node.takes({functor.operands.index(name)})" for name in totals),
        _tuple(numbers),
        f"adds={functor.adds_residual}",
    ]
    call = Expression(f"row_formulas.row_gradients({', '.join(arguments)})", functor.location)
    if not functor.adds_residual:
        return Gradient(call, {}, None, None, {}, functor.location)
    # The rule of the op without a residual is that of the sum, too.
    arguments = [
        f"_{functor.name}",
        "(self, layout)",
        f"({RESIDUAL}, {RESIDUAL}_layout)",
        _tuple(f"({name}, {name}_layout)" for name in functor.operands[1:]),
        _tuple(functor.operands.index(name) for name in read),
        _tuple([*dim, *functor.parameters]),
        _tuple([*dim, *numbers]),
    ]
    instead = Expression(f"row_formulas.row_of_sum({', '.join(arguments)})", functor.location)
    return Gradient(call, {RESIDUAL: instead}, None, None, {}, functor.location)


def _tuple(texts: Iterable[object]) -> str:
    items = [str(text) for text in texts]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _of_gradient(kind: FunctorKind, functor: Functor) -> Gradient:
    """Return that of a gradient op: what it computes is recorded op by op."""
    if functor.numbers:
        return _of_number_gradient(functor)
    op = kind.by_name.get(functor.name.removesuffix(GRADIENT_ENDING))
    if op is None:
        return Gradient(None, {}, "gradients that are recorded are computed op by op", None, {}, functor.location)
    tensors = ["'g': (self, layout, None)"]
    tensors += [
        f"{TAKEN.get(name, name)!r}: ({name}, {name}_layout, {functor.absent.get(name)})"
        for name in functor.operands[1:]
    ]
    numbers = [f"{name!r}: {name}" for name in functor.parameters]
    dim = "len(layout.shape) - 1" if functor.last_dim else "dim"
    wanted = [f"wanted={_tuple(f'of_{name}' for name in functor.totals)}"] if functor.totals else []
    arguments = ", ".join([op.member, f"{{{', '.join(tensors)}}}", dim, f"{{{', '.join(numbers)}}}", *wanted])
    chosen = "" if len(functor.results) > 1 else "[0]"
    call = Expression(f"row_formulas.row_by_ops({arguments}){chosen}", functor.location)
    return Gradient(None, {"self": call}, None, None, {}, functor.location)


def _of_number_gradient(functor: Functor) -> Gradient:
    """Return that of the gradient op of an op of numbers: of the elements and of the numbers' gradient, op by op."""
    arguments = ["g", functor.member, *_by_ops(functor)]
    call = Expression(f"row_formulas.row_numbers_gradient({', '.join(arguments)})", functor.location)
    return Gradient(call, {}, None, None, {}, functor.location)
