"""The view of batches: how `vmap` carries out a call of each storage method."""

from types import SimpleNamespace as View

from opgen.batching import rule_of, takes_wrapped
from opgen.gradients import in_order
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.views.python import quoted


def batching(spec: Spec) -> View:
    """The rules of all methods, and why others have none."""
    methods = [method for method in spec.storage_methods() if takes_wrapped(spec, method)]
    return View(methods=[_row(spec, method) for method in methods])


def _row(spec: Spec, method: Method) -> View:
    stored = [operand for operand in in_order(method, method.operands) if not operand.is_of_blocks]
    layouts = {it.name: it.layout for it in stored}
    return View(
        made_from=(method.location,),
        name=method.name,
        parameters=_tuple(method.signature.arguments),
        operands=f"{{{', '.join(f'{quoted(name)}: {layout and quoted(layout)}' for name, layout in layouts.items())}}}",
        rule=_rule(spec, method),
    )


def _rule(spec: Spec, method: Method) -> str:
    """The function that does a call for a batch, or None and why there is none."""
    name = rule_of(spec, method)
    return f"None, {quoted(method.unbatched or '')}" if name is None else f"rules.{name}"


def _tuple(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(quoted, names))}{',' * (len(names) == 1)})"
