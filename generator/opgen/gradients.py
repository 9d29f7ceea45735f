"""The operands of storage methods that have gradients, and the checks of the key `gradient`."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from opgen.decoder import members
from opgen.formula.nodes import INCOMING, RESULT
from opgen.model.gradients import Gradient
from opgen.model.methods import Method, Operand
from opgen.model.spec import Spec
from opgen.problem import Problem, did_you_mean
from opgen.signature import is_optional
from opgen.sources import Sources

# The modules whose functions expressions may call.
RULES = PurePosixPath("runtime/gradient")
# What a method makes besides its result, which has no gradients.
OTHERS = "others"
# The results of a method of several, and the gradients of these; None of one that was left out, or has no gradient.
RESULTS = "results"
GRADIENTS = "gradients"
# What knows whether a tensor still shows the storage of which the method is called.
HANDLE = "handle"
# Other names in expressions, besides operands, arguments and modules: the makers of layouts, and the node that knows
# which gradients are requested.
_KNOWN = ("node", "BinaryOp", "MethodOp", "Layout", "list", "len", "range")


def differentiable(spec: Spec, method: Method) -> tuple[Operand, ...]:
    """The operands that may have gradients, those of floats and complex numbers, in the order of the signature."""
    floats = {*spec.groups["float"], *spec.groups["complex"]}
    operands: list[Operand] = []
    if spec.package.without_gradients:
        return ()
    for operand in method.operands:
        names = method.operands[0].dtypes if operand.dtypes.texts == ("same",) else operand.dtypes
        if not operand.is_of_blocks and (names.texts == ("op",) or floats & {*spec.resolve(names)}):
            operands.append(operand)
    return tuple(in_order(method, operands))


def in_order(method: Method, operands: Iterable[Operand]) -> list[Operand]:
    """Operands as the signature has them, the storage itself first."""
    order = ["self", *method.signature.arguments]
    return sorted(operands, key=lambda operand: order.index(operand.name))


def writes(method: Method) -> bool:
    """Whether a method writes to a storage of elements and makes none."""
    return method.signature.returns == "None" and not method.holds_blocks


def makes_elements(method: Method) -> bool:
    """Whether a method makes a storage of elements, or writes to one."""
    return method.signature.returns == "None" or method.signature.returns.startswith(("Storage", "tuple[Storage"))


def is_recorded(spec: Spec, method: Method) -> bool:
    """Whether the class of recorded storages has a method of its own for calls of a method."""
    return method.body is None and makes_elements(method) and bool(differentiable(spec, method))


def check_gradients(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note what methods do not say of their gradients, and what is unknown in what they say."""
    for method in spec.storage_methods():
        if method.is_broken or method.body is not None:
            continue
        gradient, operands = method.gradient, differentiable(spec, method)
        # Ops say what the gradients of one result are.
        is_row = method.functor is not None and gradient is not None
        is_own = method.kind is None or method.signature.returns.startswith("tuple") or is_row
        takes = is_own and makes_elements(method) and bool(operands)
        if gradient is None and takes:
            message = f"method '{method.name}' says nothing of gradients; write 'gradient' with an expression for"
            names = ", ".join(operand.name for operand in operands)
            problems.append(Problem(method.location, f"{message} {names}, or '{{none: reason}}'"))
        elif method.functor is not None:
            pass  # it follows from the op
        elif gradient is not None and not takes and all(map(spec.resolve, (it.dtypes for it in method.operands))):
            reason = "its ops say them" if method.kind is not None else "it makes nothing of floats"
            message = f"'gradient' of method '{method.name}' says what it cannot have: {reason}; remove it"
            problems.append(Problem(gradient.location, message))
        elif gradient is not None and takes:
            problems += _problems(method, gradient, [operand.name for operand in operands], sources)


def _problems(method: Method, gradient: Gradient, operands: list[str], sources: Sources) -> Iterator[Problem]:
    what = f"'gradient' of method '{method.name}'"
    keys = sorted(member.key for member in members(Gradient, "").values())
    for name, expression in gradient.functions.items():
        if name not in operands:
            message = f"{what} has '{name}', which is no operand of floats"
            yield Problem(expression.location, message + did_you_mean(name, [*operands, *keys]))
    for name, expression in gradient.instead.items():
        if name not in operands:
            message = f"'instead' of {what} has '{name}', which is no operand of floats"
            yield Problem(expression.location, message + did_you_mean(name, operands))
    always = any(not is_optional(method.signature.type_of(name)) for name in gradient.instead)
    for name in operands:
        is_written = name in gradient.functions or name in gradient.instead
        if gradient.functions and not always and not is_written:
            yield Problem(gradient.location, f"{what} lacks operand '{name}'; write an expression for it")
    modules = sources.python(RULES)
    for key, expression in gradient.expressions():
        known = _known(method, is_instead=key in gradient.instead)
        for name in expression.names:
            if name not in known and name not in modules:
                message = f"'{key}' of {what} names the unknown '{name}'"
                yield Problem(expression.location, message + did_you_mean(name, [*known, *modules]))
        for owner, name in expression.attributes:
            module = None if owner in known else modules.get(owner)
            functions = None if module is None else sources.functions(module)
            if functions is not None and name not in functions:
                message = f"'{key}' of {what} calls '{name}', which {module} lacks"
                yield Problem(expression.location, message + did_you_mean(name, functions))


def _known(method: Method, *, is_instead: bool) -> list[str]:
    """The names in expressions that are no modules."""
    signature = method.signature
    # Of several operands there is no one tensor.
    arguments = ["self", *(name for name in signature.arguments if "Storage, ..." not in signature.type_of(name))]
    known = [*arguments, *_KNOWN, *(() if is_instead else (INCOMING, RESULT, HANDLE))]
    if signature.returns == "tuple[Storage, ...]":
        known += [OTHERS, RESULTS, GRADIENTS]
    if writes(method) and not is_instead:
        # What was there before is overwritten, and there is no other result.
        known = [name for name in known if name not in ("self", RESULT)]
    return known


def modules_of(method: Method) -> set[str]:
    """The modules whose functions the gradients of a method call."""
    if method.gradient is None:
        return set()
    instead = method.gradient.instead
    return {
        owner
        for key, expression in method.gradient.expressions()
        for owner in dict(expression.attributes).keys() - _known(method, is_instead=key in instead)
    }
