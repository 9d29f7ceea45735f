"""The view of examples.py: calls of every method."""

from collections.abc import Sequence
from types import SimpleNamespace as View

from opgen.examples import SELF, SHAPED, VECTOR, examples_of
from opgen.formula.printing import text_of
from opgen.model.examples import Example
from opgen.model.methods import Method, Operand
from opgen.model.reductions import Monoid
from opgen.model.spec import Spec
from opgen.views.python import quoted

_PRODUCT = "x * y"
# No file of spec/storage is called so.
_OF_DEVICES = "device_methods"


def examples(spec: Spec) -> View:
    """The modules with the calls, and the ops of which not every number will do."""
    products = [
        functor.name
        for kind in spec.functors.values()
        for functor in kind.functors
        if isinstance(functor.reduction, Monoid) and text_of(functor.reduction.combine.node) == _PRODUCT
    ]
    families = [View(name=name, constant=name.upper()) for name, _ in called(spec)]
    return View(families=families, products=_tuple([quoted(name) for name in products]))


def called(spec: Spec) -> list[tuple[str, Sequence[Method]]]:
    """The files of spec/storage with their methods, and those of devices."""
    return [*((family.name, family.methods) for family in spec.families), (_OF_DEVICES, spec.device_methods)]


def calls(spec: Spec, methods: Sequence[Method]) -> View:
    """The calls of the methods of a file."""
    return View(methods=[_method(spec, method) for method in methods])


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _method(spec: Spec, method: Method) -> View:
    return View(
        method=method,
        operands=[View(name=each.name, arguments=_operand(spec, method, each)) for each in method.operands],
        parameters={parameter.name: parameter.type for parameter in method.signature.parameters},
        calls=[repr(_arguments(method, example)) for example in examples_of(method)],
    )


def _arguments(method: Method, example: Example) -> dict[str, object]:
    """Return the arguments of a call: the shape of each operand, and the values of the others."""
    written, own = example.arguments, example.arguments.get(SELF, VECTOR)
    shapes = {
        each.name: written.get(each.name, None if method.is_optional(each.name) else own) for each in method.operands
    }
    others = {each.name: own for each in method.signature.parameters if each.type in SHAPED}
    return {**shapes, **others, **written}


def _operand(spec: Spec, method: Method, operand: Operand) -> str:
    values = operand.values
    arguments = [repr(operand.layout), quoted(_dtype(spec, method, operand))]
    if values is not None and values.bound is not None:
        names = f" {', '.join(values.bound.names)}" if values.bound.names else ""
        arguments += [quoted("below"), f"lambda{names}: {values.bound.text}"]
    elif values is not None:
        arguments.append(quoted(str(values.word)))
    return ", ".join(arguments)


def _dtype(spec: Spec, method: Method, operand: Operand) -> str:
    """The dtype of an operand in examples."""
    texts = operand.dtypes.texts
    if (
        texts in (("same",), ("op",))
        or operand.is_of_blocks
        or operand is method.operands[0]
        or method.custom_class is not None
    ):
        return "same"
    names = spec.resolve(operand.dtypes)
    dtypes = [dtype for dtype in spec.dtypes if dtype.name in names]
    if all(dtype.is_exact for dtype in dtypes):
        # A condition is of the smallest one.
        is_index = {*names} == {*spec.groups["index"]}
        words = [dtype.name for dtype in dtypes if dtype.kind == "unsigned" and dtype.bytes == (4 if is_index else 1)]
        return next(iter(words or names))
    floats = [dtype.name for dtype in dtypes if not dtype.is_exact]
    return "compute" if len(floats) > 1 and not method.holds_blocks else floats[-1]
