"""Views of methods that are composed of others: their functions of tensors, and the tensor methods that call them."""

from types import SimpleNamespace as View

from opgen.arguments import accepted
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.results import arguments_of, results_of, typed_result
from opgen.views.dispatch_names import argument_names
from opgen.views.python import quoted
from opgen.views.results import dims


def composed(spec: Spec) -> View:
    """The functions of all composed methods."""
    methods = [method for method in spec.storage_methods() if method.body is not None]
    return View(names=argument_names(spec), methods=[_function(spec, method) for method in methods])


def _function(spec: Spec, method: Method) -> View:
    """The function of a method: operands are tensors inside it, and storages with layouts outside."""
    operands = {operand.name: operand.layout for operand in method.operands}
    types = {"self": "Storage", **{it.name: accepted(it.type) for it in method.signature.parameters}}
    parameters = [f"{_storage(name) if name in operands else name}: {text}" for name, text in types.items()]
    tensors = {}
    for name, layout in operands.items():
        tensor = f"operand({_storage(name)}, {layout})"
        is_given = f"{_storage(name)} is not None and {layout} is not None"
        tensors[name] = f"{tensor} if {is_given} else None" if method.is_optional(name) else tensor
    assert method.body is not None
    expected = ", ".join(arguments_of(spec, method))
    is_one = method.signature.returns == "Storage"
    arguments = [
        f"stored({quoted(method.name)}, {text}, types{'' if is_one else f'[{index}]'})"
        for index, text in enumerate(method.body.results)
    ]
    return View(
        made_from=(method.location,),
        name=method.name,
        parameters=", ".join(parameters),
        returns=method.signature.returns,
        operands=tensors,
        parts=[View(made_from=(it.location,), name=name, text=it.text) for name, it in method.let.items()],
        types=f"results.{method.name}({expected})",
        body=arguments[0] if is_one else f"({', '.join(arguments)},)",
    )


def _storage(operand: str) -> str:
    return f"{operand}_storage"


def tensor_call(spec: Spec, method: Method) -> str:
    """The statements of the tensor method of a composed method: operands of other dtypes are promoted."""
    front = method.tensor
    assert front is not None
    operands = {operand.name: operand for operand in method.operands if operand.name != "self"}
    layouts = {operand.layout: operand.name for operand in method.operands}
    arguments = []
    for name in method.signature.arguments:
        if name in operands and method.is_optional(name):
            arguments.append(f"*parts({quoted(front.name)}, {quoted(name)}, {name})")
        elif name in operands:
            arguments += [f"{name}._storage", f"{name}._layout"]
        elif layouts.get(name) == "self":
            arguments.append("self._layout")
        elif name not in layouts:
            arguments.append(name)
    same = [name for name, operand in operands.items() if operand.dtypes.texts == ("same",)]
    lines = []
    required = [name for name in operands if not method.is_optional(name)]
    if required:
        lines.append(f"require_tensors({quoted(front.name)}, {', '.join(f'{name}={name}' for name in required)})")
    if method.is_wide:
        floats = ", ".join(["self", *same])
        lines.append(f"if live_autocasts: {floats}{'' if same else ','} = extensions.widened({floats})")
    call = f"self._storage.{method.name}({', '.join(arguments)})"
    if same:
        again = ", ".join(f"{name}={name}" for name in front.arguments)
        names = ", ".join(["x", *same])
        lines += [
            "try:",
            f"    output = {call}",
            "except DTYPE_ERRORS as error:",
            f"    {names} = promote_given(error, self, {', '.join(same)})",
            f"    again: Self = x.{front.name}({again})",
            "    return again",
        ]
    else:
        lines.append(f"output = {call}")
    arguments_by_name = {"self": "self", **{name: name for name in method.signature.arguments}}
    shape, _ = typed_result(spec, method, results_of(method)[0], dims, arguments_by_name)
    return "\n        ".join([*lines, f"return self._shaped(output, {shape.text})"])
