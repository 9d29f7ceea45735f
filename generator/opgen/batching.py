"""The keys `batch` and `unbatched` of storage methods: how `vmap` batches their calls."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from opgen.gradients import makes_elements, writes
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.problem import Problem, did_you_mean
from opgen.sources import Sources

LEADING = "leading"
ITEMS = "items"
WRITTEN = "written"
FRESH = "fresh"
ROW = "row"
RULES = PurePosixPath("runtime/transforms/rules.py")
_PREFIX = "rules."


def takes_wrapped(spec: Spec, method: Method) -> bool:
    """Whether operands may be recorded or batched: a call makes elements of elements."""
    takes = any(not operand.is_of_blocks for operand in method.operands)
    return takes and method.body is None and makes_elements(method) and not spec.package.without_gradients


def rule_of(spec: Spec, method: Method) -> str | None:
    """The function of the rules that does a call for a batch, by its name; None where none does."""
    if method.kind is not None:
        functor = None if method.functor is None else spec.functor_kind(method.kind).by_name[method.functor]
        if functor is not None and functor.vectors:
            return ROW
        if functor is not None and functor.numbers:
            return FRESH
        return WRITTEN if writes(method) else LEADING
    return None if method.batch is None else method.batch.removeprefix(_PREFIX)


def check_batches(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note what is unknown, or said twice."""
    functions = sources.functions(RULES) if RULES in sources.paths else None
    for method in spec.storage_methods():
        if not method.is_broken and method.body is None:
            problems += _problems(spec, method, [*functions] if functions is not None else None)


def _problems(spec: Spec, method: Method, functions: list[str] | None) -> Iterator[Problem]:
    what, batch = f"method '{method.name}'", method.batch
    said = [key for key, value in (("batch", batch), ("unbatched", method.unbatched)) if value is not None]
    if method.kind is not None and said:
        yield Problem(method.location, f"'{said[0]}' of {what} says what follows from its ops; remove it")
    elif not takes_wrapped(spec, method) and said:
        yield Problem(
            method.location,
            f"'{said[0]}' of {what} says what it cannot have: it makes no elements of others; remove it",
        )
    elif len(said) > 1:
        yield Problem(method.location, f"{what} has both 'batch' and 'unbatched'; keep one")
    elif batch is not None and batch not in (LEADING, ITEMS):
        known = [LEADING, ITEMS, *(f"{_PREFIX}{name}" for name in functions or ())]
        if not batch.startswith(_PREFIX) or (functions is not None and batch.removeprefix(_PREFIX) not in functions):
            problem = f"'batch' of {what} is the unknown '{batch}', which {RULES} lacks"
            yield Problem(method.location, problem + did_you_mean(batch, known))
