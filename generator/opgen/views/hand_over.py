"""How a storage leaves a call with a recorded or a batched operand to what records it, or runs it for a batch."""

from collections.abc import Iterator

from opgen.batching import takes_wrapped
from opgen.gradients import writes
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.views.python import quoted


def hand_over(spec: Spec, method: Method) -> Iterator[str]:
    """The statement that leaves the call to the class that records it, or to `vmap`, where an operand asks for it.

    There is no plan for such operands, so only calls without a plan ask.
    """
    if not takes_wrapped(spec, method):
        return
    names = written_elsewhere(method) if method.holds_blocks else []
    names += [it.name for it in method.operands if it.name not in ("self", *names) and not it.is_of_blocks]
    conditions = [*["self.is_wrapped"] * (not method.holds_blocks), *(_asks(method, name) for name in names)]
    call = f"self.recorded.{method.name}({', '.join(['self', *method.signature.arguments])})"
    statement = f"{call}; return" if method.signature.returns == "None" else f"return {call}"
    yield f"if {' or '.join(conditions)}: {statement}"


def written_storages(method: Method) -> list[str]:
    """The storages to which a method writes; none where it returns one."""
    if not writes(method):
        return []
    layouts = {item.call.arguments[0] for item in method.checks if item.call.name == "no_repeats"}
    others = [it.name for it in method.operands if it.name != "self" and it.layout in layouts]
    return [*(written_elsewhere(method) or ["self"]), *others]


def written_elsewhere(method: Method) -> list[str]:
    """The operands besides the storage itself to which a method writes."""
    instead = {} if method.gradient is None else method.gradient.instead
    return [name for name in instead if name != "self" and writes(method)]


def _asks(method: Method, name: str) -> str:
    if method.signature.type_of(name).startswith("tuple"):
        return f"any(getattr(item, {quoted('is_wrapped')}, False) for item in {name})"
    return f"getattr({name}, {quoted('is_wrapped')}, False)"
