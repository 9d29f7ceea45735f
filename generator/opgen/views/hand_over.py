"""How a plain storage leaves a call to a recorded one: what an operand is, plans do not see."""

import re
from collections.abc import Iterable, Iterator

from opgen.gradients import differentiable, makes_elements, writes
from opgen.model import Method, Spec
from opgen.views.python import quoted


def hand_over(spec: Spec, method: Method) -> Iterator[str]:
    """The statement by which a plain storage leaves to a recorded one what has a recorded operand."""
    names = [operand.name for operand in differentiable(spec, method) if operand.name != "self"]
    if names and makes_elements(method) and not written_elsewhere(method):
        yield _handed_over(method, names, "is_recorded")


def hand_over_first(method: Method) -> Iterator[str]:
    """The same of a method that writes to another storage: that may be needed for gradients, which plans do not see."""
    if written_elsewhere(method):
        yield _handed_over(method, written_elsewhere(method), "is_watched")


def written_elsewhere(method: Method) -> list[str]:
    """The operands besides the storage itself to which a method writes."""
    instead = {} if method.gradient is None else method.gradient.instead
    return [name for name in instead if name != "self" and writes(method)]


def _handed_over(method: Method, names: Iterable[str], attribute: str) -> str:
    asked = " or ".join(_asks(method, name, attribute) for name in names)
    call = f"self.recorded.{method.name}({', '.join(['self', *method.signature.arguments])})"
    return f"if {asked}: {call}; return" if method.signature.returns == "None" else f"if {asked}: return {call}"


def _asks(method: Method, name: str, attribute: str) -> str:
    if method.signature.type_of(name).startswith("tuple"):
        return f"any(getattr(item, {quoted(attribute)}, False) for item in {name})"
    return f"getattr({name}, {quoted(attribute)}, False)"


def own(method: Method, type_text: str) -> str:
    """A type as the class of a method has it."""
    return type_text if method.holds_blocks else re.sub(r"\bStorage\b", "Self", type_text)
