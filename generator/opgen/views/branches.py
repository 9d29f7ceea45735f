"""The branches of a method: for each backend, what a call does there."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace as View
from typing import Final, NamedTuple, TypeAlias

from opgen.cells import FunctionCall, Lowering
from opgen.model.backends import Backend
from opgen.model.methods import Method, inner_name
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.call_plans import has_plans
from opgen.views.python import quoted, tuple_text

# An op of a method, where it chooses between several, and a dtype.
Case: TypeAlias = tuple[str | None, str | None]


# Calls with more arguments than this share a list of them.
_MAX_REPEATED: Final = 5


def storage_class(method: Method, backend: Backend, operand: str) -> str:
    """The class of an operand on a backend: block-quantized weights have one of their own."""
    return f"{'Q' * (operand == 'self' and method.holds_blocks)}{backend.class_prefix}Storage"


def _expression(method: Method, backend: Backend, call: FunctionCall, operands: str | None) -> str:
    """A call of a branch, which may have named all `operands` together."""
    function = f"{backend.name}.{call.module}.{call.function}"
    library = [] if call.library is None else [call.library]
    passed = method.call_arguments(f"{backend.name}.") if operands is None else [f"*{operands}"]
    if passed[:1] == ["inner"] and not method.operands:
        return f"inner.make({', '.join([function, *library, *passed[1:]])})"
    arguments = [*library, *passed]
    # Of a method with plans, what is called, and with what, so that it can be called again with other operands.
    return ", ".join([function, *arguments]) if has_plans(method) else f"{function}({', '.join(arguments)})"


def _last(method: Method, backend: Backend, lowering: Lowering, operands: str | None) -> str:
    """Return the last call of a lowering, for work that no library takes."""
    if lowering.attribute is not None:
        return f"inner.{lowering.attribute}"
    if lowering.forward is not None:
        stored = {operand.name for operand in method.operands}
        names = [inner_name(name) if name in stored else name for name in method.signature.arguments if name != "op"]
        return ", ".join(["op", f"op.{backend.name}_{lowering.forward}", "inner", *names])
    return _expression(method, backend, lowering.calls[-1], operands)


def branch(spec: Spec, method: Method, backend: Backend, suffix: str, stored: list[str], dtype: str) -> View:
    """The branch of `backend`: what it lacks raises, then come the calls of libraries, then the call that takes all."""
    lowered = spec.lowered(backend, method)
    # No storage has a dtype that the backend's library lacks, which the device says when it shall make one.
    absent = backend.lacking if suffix == "Storage" else {}
    lowered = {case: lowering for case, lowering in lowered.items() if case[1] not in absent} or lowered
    guarded: dict[str, list[Case]] = {}
    done: dict[Lowering, list[Case]] = {}
    for case, lowering in lowered.items():
        if lowering.unsupported is not None:
            guarded.setdefault(lowering.unsupported, []).append(case)
        else:
            done.setdefault(lowering, []).append(case)
    conditions = _Conditions(spec, method, dtype, frozenset(lowered))
    arguments = method.call_arguments(f"{backend.name}.")
    # A type checker does not know the classes in a list of which some are counted at run time.
    is_list = len(arguments) > _MAX_REPEATED and not any(map(method.is_several, method.operands))
    is_repeated = is_list and sum(len(lowering.calls) for lowering in done) > 1
    operands = f"{backend.name}_operands" if is_repeated else None
    # The call that serves most needs no condition.
    counts: dict[str, int] = {}
    for lowering, cases in done.items():
        text = _last(method, backend, lowering, operands)
        counts[text] = counts.get(text, 0) + len(cases)
    final = max(counts, key=counts.__getitem__, default=None)
    attempts = []
    for lowering, cases in done.items():
        last = _last(method, backend, lowering, operands)
        for where in conditions.of(cases, is_all=len(done) == 1):
            for call in lowering.calls[:-1]:
                tests = [*([where] if where else []), *["not is_deterministic()"] * call.nondeterministic]
                expression = _expression(method, backend, call, operands)
                condition, locations = " and ".join(tests), (call.location,)
                attempts.append(View(made_from=locations, condition=condition, library=call.library, call=expression))
            if last != final:
                locations = (lowering.location,)
                attempts.append(View(made_from=locations, condition=where, library=None, call=last))
    guards = [
        View(made_from=_places(lowered, cases), condition=where, reason=quoted(reason))
        for reason, cases in guarded.items()
        for where in conditions.of(cases, is_all=not done and len(guarded) == 1)
    ]
    is_device = suffix == "Device"
    uses_inner = final is not None or (dtype.startswith("inner.") and not has_plans(method))
    patterns = []
    for name in stored:
        kind = f"{backend.class_prefix}Device" if is_device else storage_class(method, backend, name)
        pattern = f"({kind}() | None)" if method.is_optional(name) else f"{kind}()"
        patterns.append(f"{pattern} as {inner_name(name)}" if uses_inner else pattern)
    return View(
        made_from=_places(lowered, [case for case in lowered if lowered[case].unsupported is None] or [*lowered]),
        backend=backend.name,
        pattern=patterns[0] if len(patterns) == 1 else f"({', '.join(patterns)})",
        guards=guards,  # each raises UnsupportedDType, on a condition or always
        # Calls that are preferred to the last one: on a condition, and where a library is there, which may give None.
        attempts=attempts,
        # The arguments that several calls share, and their name, if the list is long.
        operands=operands and View(name=operands, values=arguments),
        device="inner" if is_device else "inner.device",  # what has the libraries
        result=f"{backend.name}_result",  # the result of a library, whose class depends on the backend
        call=final,  # what is done in the end; None where nothing is supported
    )


def _places(lowered: Mapping[Case, Lowering], cases: Iterable[Case]) -> tuple[Location, ...]:
    """Where the cells of some ops and dtypes stand."""
    return tuple(dict.fromkeys(lowered[case].location for case in cases))


class _Conditions(NamedTuple):
    """How a branch asks for some ops and dtypes of a method."""

    spec: Spec
    method: Method
    dtype: str
    every: frozenset[Case]  # of the method on a backend

    def of(self, cases: list[Case], *, is_all: bool) -> list[str | None]:
        """Conditions of which one holds for each of the cases and for no other; None holds for everything."""
        if is_all:
            return [None]
        by_op: dict[str | None, list[str]] = {}
        for op, dtype in cases:
            by_op.setdefault(op, []).append(dtype or "")
        by_dtypes: dict[tuple[str, ...], list[str | None]] = {}
        for op, dtypes in by_op.items():
            is_whole = set(dtypes) == {dtype or "" for other, dtype in self.every if other == op}
            by_dtypes.setdefault(() if is_whole else tuple(dtypes), []).append(op)
        return [self._condition(ops, dtypes) for dtypes, ops in by_dtypes.items()]

    def _condition(self, ops: list[str | None], dtypes: tuple[str, ...]) -> str | None:
        parts = []
        if ops != list(self.spec.ops(self.method)):
            kind = self.spec.functor_kind(self.method.kind or "")
            parts.append(f"op in {tuple_text(f'{kind.class_name}.{str(op).upper()}' for op in ops)}")
        if dtypes:
            enum = "GgmlDType" if self.method.holds_blocks else "DType"
            parts.append(f"{self.dtype} in {tuple_text(f'{enum}.{dtype.upper()}' for dtype in dtypes)}")
        return " and ".join(parts) or None
