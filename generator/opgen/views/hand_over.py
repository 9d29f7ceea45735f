"""How a storage leaves a call with a recorded operand to the class that records it."""

from collections.abc import Iterator

from opgen.gradients import differentiable, is_recorded, writes
from opgen.model import Method, Spec
from opgen.views.python import quoted


def hand_over(spec: Spec, method: Method) -> Iterator[str]:
    """The statement that leaves the call to the class that records it, where an operand is recorded.

    There is no plan for recorded operands, so only calls without a plan ask.
    """
    if not is_recorded(spec, method):
        return
    written = written_elsewhere(method)
    names = written or [operand.name for operand in differentiable(spec, method) if operand.name != "self"]
    asked = [*["self.is_recorded"] * (not method.holds_blocks), *(_asks(method, name) for name in names)]
    call = f"self.recorded.{method.name}({', '.join(['self', *method.signature.arguments])})"
    statement = f"{call}; return" if method.signature.returns == "None" else f"return {call}"
    yield f"if {' or '.join(asked)}: {statement}"


def written_storage(method: Method) -> str | None:
    """The storage to which a method writes; None where it makes one."""
    return (written_elsewhere(method) or ["self"])[0] if writes(method) else None


def written_elsewhere(method: Method) -> list[str]:
    """The operands besides the storage itself to which a method writes."""
    instead = {} if method.gradient is None else method.gradient.instead
    return [name for name in instead if name != "self" and writes(method)]


def _asks(method: Method, name: str) -> str:
    if method.signature.type_of(name).startswith("tuple"):
        return f"any(getattr(item, {quoted('is_recorded')}, False) for item in {name})"
    return f"getattr({name}, {quoted('is_recorded')}, False)"
