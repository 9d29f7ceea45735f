"""The plans of a method: the key by which a call finds its plan, and what a plan takes."""

from collections.abc import Iterator
from itertools import takewhile
from types import SimpleNamespace as View

from opgen.cells import FunctionCall
from opgen.gradients import writes
from opgen.model.methods import Method, inner_name
from opgen.model.spec import Spec
from opgen.views.python import quoted, tuple_text


def has_plans(method: Method) -> bool:
    """Return True if calls of a method are cached as plans: they depend on the arguments alone, on no user's op."""
    is_own = method.body is None and method.custom_class is None
    return is_own and bool(method.operands) and bool(method.signature.parameters)


def _calls(spec: Spec, method: Method) -> Iterator[FunctionCall]:
    """Yield the calls of the branches of a method, on all backends."""
    for backend in spec.backends:
        for lowering in spec.lowered(backend, method).values():
            yield from lowering.calls


def plan_numbers(spec: Spec, method: Method) -> list[str]:
    """Return the arguments that each run of a plan takes anew: numbers, except those that a library may refuse.

    It may refuse floats that say how something is computed, such as a scale. What computes a functor takes all numbers,
    and elements, which may be integers too, are refused by none. Plans of block-quantized weights store theirs.
    """
    if method.holds_blocks:
        return []
    may_be_refused = method.kind is None and any(call.library is not None for call in _calls(spec, method))
    types = ("int | float", "complex") if may_be_refused else ("float", "int | float", "complex")
    return [item.name for item in method.signature.parameters if item.type in types]


def _attribute(method: Method, name: str, attribute: str, holder: str | None = None) -> str:
    """The attribute of a storage or a layout: None where that is None."""
    holder = holder or name
    value = f"{holder}.{attribute}"
    return f"None if {holder} is None else {value}" if method.is_optional(name) else value


def _plan(arguments: list[str]) -> str:
    return f"plan({', '.join(arguments)})"


def call_plan(spec: Spec, method: Method, stored: list[str]) -> View:
    """Return the view of a plan and its key: the layouts, the arguments except numbers, and storage kinds."""
    several = [operand for operand in method.operands if method.is_several(operand)]
    inners = [inner_name(name) for name in stored]
    optional = [inner_name(name) for name in stored if method.is_optional(name)]
    numbers = plan_numbers(spec, method)
    known = {*numbers, *stored, *(name for operand in several for name in (operand.name, operand.layout))}
    values = [
        _attribute(method, item.name, "number") if "Layout" in item.type else item.name
        for item in method.signature.parameters
        if item.name not in known
    ]
    kinds = [_attribute(method, name, "kind", inner_name(name)) for name in stored]
    kinds += [f"{operand.name}_key" for operand in several]
    # What is written may be read through another operand.
    is_written = writes(method)
    shared = [f"{inner} is inner" for inner in inners[1:]] if is_written else []
    modes = ["is_deterministic()"] * any(call.nondeterministic for call in _calls(spec, method))
    further = [*(f"*{inner_name(operand.name)}" for operand in several), *numbers]
    if len(optional) > 1:
        # In the order of the operands.
        arguments = list(takewhile(lambda inner: inner not in optional, inners))
        call = _plan([*arguments, f"*filter(None, {tuple_text(inners[len(arguments) :])})", *further])
    else:
        call = _plan([*inners, *further])
        for inner in optional:
            # Cheaper than a call of filter.
            call = f"{_plan([*(it for it in inners if it != inner), *further])} if {inner} is None else {call}"
    storages = [f"{', '.join(inners)} = {', '.join(_attribute(method, name, 'inner') for name in stored)}"]
    for operand in several:
        # A list that is written to has its length for good.
        most = "MAX_WRITTEN" if is_written else "MAX_JOINED"
        inner, operands = (
            inner_name(operand.name),
            f"operands_of(inner.device, {operand.name}, {operand.layout}, {most})",
        )
        storages.append(f"{inner}, {operand.name}_key = {operands}")
    key = ", ".join([quoted(method.name), *values, *kinds, *shared, *modes])
    without = " or ".join(f"{operand.name}_key is None" for operand in several)
    near = {name: f"{inner_name(name)}.device is inner.device" for name in stored[1:]}
    near = {name: f"({inner_name(name)} is None or {text})" if method.is_optional(name) else text
            for name, text in near.items()}  # fmt: skip
    return View(
        storages=storages,  # the statements that name the storages of the backend
        key=f"None if {without} else ({key})" if several else key,  # all on which it depends what is done
        condition=" and ".join(["plan is not None", *near.values()]),  # whether the storages are on one device
        call=call,
        makes_storage=method.signature.returns == "Storage" and not method.holds_blocks,
    )
