"""The results of storage methods: their types in Python, and the checks of the key `result`."""

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from opgen.model.methods import Method
from opgen.model.results import COMPLEX, Result
from opgen.model.spec import Spec
from opgen.problem import Problem, did_you_mean
from opgen.sources import Sources
from opgen.terms import (
    ARRAY,
    DIMS,
    DTYPE,
    OPERAND,
    OPTIONAL,
    Attributes,
    FlawOfCall,
    Scope,
    TermError,
    Typed,
    argument_kind,
    named_dtypes,
    parsed,
)

SHAPES: Final = PurePosixPath("runtime/core/result_shapes.py")
"""The functions that results may call."""
_OP, _STORAGE = "an op", "a storage"
_ATTRIBUTES: Final[Attributes] = {
    OPERAND: {"shape": ("it.shape", DIMS), "dtype": ("it.dtype", DTYPE)},
    # Without a layout, its elements are side by side.
    _STORAGE: {"shape": ("(it.length,)", DIMS), "dtype": ("it.dtype", DTYPE)},
    DTYPE: {"compute": ("it.compute", DTYPE), "real": ("it.real", DTYPE), COMPLEX: ("complex_of(it)", DTYPE)},
}


def results_of(method: Method) -> tuple[Result, ...]:
    """Return the results of a method; by default the dtype and the shape of its first operand."""
    text = _default(method)
    return method.results if method.results or text is None else (Result(text, method.location),)


def typed_result(
    spec: Spec,
    method: Method,
    result: Result,
    array: Callable[[ast.expr, Typed], ast.expr],
    names: Mapping[str, str],
    flaw_of_call: FlawOfCall = lambda *_: None,
) -> tuple[Typed, frozenset[str]]:
    """A result in Python, and the arguments that it depends on; TermError says what is wrong with it.

    `array` makes Python of a dtype and sizes, and `names` are what Python calls arguments, where that is another name.
    """
    kinds = {parameter.name: argument_kind(parameter.type) for parameter in method.signature.parameters}
    for operand in method.operands:
        kinds.pop(operand.layout or "", None)
        if operand.is_of_blocks:
            kinds.pop(operand.name, None)
        elif not method.is_several(operand):
            kind = _STORAGE if operand.layout is None else OPERAND
            kinds[operand.name] = kind + OPTIONAL * method.is_optional(operand.name)
    attributes = _ATTRIBUTES
    if method.chooses_op:
        kinds["op"], first = _OP, method.operands[0].name
        attributes = {**attributes, _OP: {"dtype": (f"it.result_of({names.get(first, first)}.dtype)", DTYPE)}}
    known = {name: Typed(parsed(names.get(name, name)), kind) for name, kind in kinds.items()}
    scope = Scope({**named_dtypes(spec.dtype_names), **known}, attributes, array, flaw_of_call, SHAPES.stem)
    return scope.typed(result.node, ARRAY, ARRAY + OPTIONAL), frozenset(scope.read & kinds.keys())


def python_names(method: Method) -> dict[str, str]:
    """Return the name of a method's storage in emitted functions of results."""
    return {"self": "first" if "x" in method.signature.arguments else "x"}


def arguments_of(spec: Spec, method: Method) -> tuple[str, ...]:
    """The arguments that the results of a method depend on: the op, the operands and the others."""
    read: set[str] = set()
    for result in results_of(method):
        with suppress(TermError):
            read |= typed_result(spec, method, result, lambda dtype, _: dtype, python_names(method))[1]
    order = ["op", *(operand.name for operand in method.single_operands), *method.signature.arguments]
    return tuple(dict.fromkeys(name for name in order if name in read))


def check_results(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note what methods do not say of their results, and what is wrong with what they say."""
    functions = sources.functions(SHAPES) or {} if SHAPES in sources.paths else {}

    def flaw_of_call(module: str, name: str, count: int) -> str | None:
        if name not in functions or module != SHAPES.stem:
            shown = name if module == SHAPES.stem else f"{module}.{name}"
            return f"unknown function '{shown}'{did_you_mean(shown, functions, f'write it to {SHAPES}')}"
        fits = functions[name].fits(["_"] * count)
        return None if fits else f"'{name}' takes ({functions[name]}), not {count} arguments; give it these"

    for method in spec.storage_methods():
        if not method.is_broken and (method.kind is None or method.kind in spec.functors):
            problems += _problems(spec, method, flaw_of_call)


def _problems(spec: Spec, method: Method, flaw_of_call: FlawOfCall) -> Iterator[Problem]:
    what, returns = f"'result' of method '{method.name}'", method.signature.returns
    gives_several = returns == "tuple[Storage, ...]"
    if not gives_several and returns != "Storage":
        if method.results:
            yield Problem(method.results[0].location, f"{what} is for storages, and it gives {returns}; remove it")
        return
    results = results_of(method)
    if not results:
        yield Problem(method.location, f"method '{method.name}' says nothing of its results; write 'result'")
    elif len(results) > 1 and not gives_several:
        yield Problem(results[1].location, f"{what} has {len(results)}, and it gives one storage; write one")
    elif method.functor is None and [each.text for each in method.results] == [_default(method)]:
        yield Problem(results[0].location, f"{what} is that without the key; remove it")
    is_joined = method.body is None and method.functor is None and len(method.operands) > 1
    if method.tensor is not None and is_joined and method.results:
        message = f"{what} is not that of its operands, of which there are several; write its tensor method in Python"
        yield Problem(results[0].location, message)
    for result in results:
        try:
            typed, _ = typed_result(spec, method, result, lambda dtype, _: dtype, {}, flaw_of_call)
        except TermError as error:
            yield Problem(result.location, f"{what}: {error}")
        else:
            if typed.kind != ARRAY and not gives_several:
                yield Problem(result.location, f"{what} may be null, and it gives one storage; write dtype[sizes]")


def _default(method: Method) -> str | None:
    """Return the default result of a method; None if the method must state its result."""
    if method.signature.returns != "Storage" or not method.operands or method.operands[0].is_of_blocks:
        return None
    first = method.operands[0].name
    return f"{'op' if method.chooses_op else first}.dtype[{first}.shape]"
