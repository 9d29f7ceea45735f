"""The view of results: a function for each storage method that has results."""

import ast
from types import SimpleNamespace as View

from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.results import arguments_of, python_names, results_of, typed_result
from opgen.terms import ARRAY, NUMBER, Typed, call
from opgen.views.dispatch_names import argument_names


def results(spec: Spec) -> View:
    """The functions of all methods."""
    own = [function(spec, method) for method in spec.storage_methods() if results_of(method)]
    modules = argument_names(spec)
    return View(
        results=own,
        names={name: modules[name] for name in ("op", "runtime.core.conv", "runtime.core.pool") if name in modules},
    )


def function(spec: Spec, method: Method) -> View:
    """The function of a method."""
    names, several = python_names(method), method.signature.returns != "Storage"
    typed = [typed_result(spec, method, result, _type, names)[0] for result in results_of(method)]
    types = ["TensorType" if each.kind == ARRAY else "TensorType | None" for each in typed]
    values = ", ".join(each.text for each in typed)
    arguments = arguments_of(spec, method)
    return View(
        made_from=(method.location,),
        name=method.name,
        parameters=", ".join(f"{names.get(name, name)}: {_type_of(method, name)}" for name in arguments),
        returns=f"tuple[{', '.join(types)}]" if several else types[0],
        value=f"({values},)" if several else values,
    )


def _type(dtype: ast.expr, sizes: Typed) -> ast.expr:
    return call("TensorType", dtype, dims(dtype, sizes))


def dims(_: ast.expr, sizes: Typed) -> ast.expr:
    """The sizes of a result in Python, without its dtype."""
    return ast.Tuple([sizes.node], ast.Load()) if sizes.kind == NUMBER else sizes.node


def _type_of(method: Method, name: str) -> str:
    operand = next((each for each in method.operands if each.name == name), None)
    if operand is None:
        text = method.signature.type_of(name)
        return "Ranks" if text == "Group" else text
    if method.is_several(operand):
        return "Sequence[Shaped]"
    kind = "Typed" if operand.layout is None else "Shaped"
    return f"{kind} | None" if method.is_optional(name) else kind
