"""Methods that are composed of others: the keys `let` and `body` of storage methods."""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from opgen.folders import RUNTIME
from opgen.model.callables import Callable
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.parts import Part
from opgen.problem import Problem, did_you_mean
from opgen.sources import Sources

# What parts may call besides methods of tensors.
_FUNCTIONS: Final = ("len", "max", "min", "range")


def parts_of(method: Method) -> Mapping[str, Part]:
    """The parts of a composed method by their names, and last its body."""
    return {**method.let, **({} if method.body is None else {"body": method.body})}


def called_methods(method: Method) -> tuple[str, ...]:
    """The methods of tensors that a composed method calls."""
    return tuple(dict.fromkeys(name for part in parts_of(method).values() for name in part.methods))


def check_composed(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note what is unknown in composed methods, and what they say that follows from their parts."""
    known = tensor_methods(spec, sources)
    for method in spec.storage_methods():
        if not method.is_broken:
            problems += _problems(method, known)


def _problems(method: Method, known: Mapping[str, Callable | None]) -> Iterator[Problem]:
    what, body = f"method '{method.name}'", method.body
    if body is None:
        if method.let:
            yield Problem(method.location, f"{what} has 'let' but no 'body'; write what it gives, or remove 'let'")
        if method.is_wide:
            yield Problem(method.location, f"{what} has 'wide_in_autocast' but no 'body'; remove it")
        return
    if method.is_wide and method.tensor is None:
        yield Problem(method.location, f"{what} has 'wide_in_autocast' but no 'tensor'; remove it")
    follows = {"gradient": method.gradient, "batch": method.batch, "unbatched": method.unbatched, "ops": method.kind}
    for key in (key for key, value in follows.items() if value is not None):
        yield Problem(method.location, f"'{key}' of {what} follows from its body; remove it")
    results = max(len(method.results), 1)
    if method.signature.returns not in ("Storage", "tuple[Storage, ...]"):
        yield Problem(method.location, f"{what} has a body and gives {method.signature.returns}; let it give Storage")
    elif len(body.results) != results:
        count = f"{len(body.results)} tensors" if len(body.results) > 1 else "1 tensor"
        yield Problem(body.location, f"'body' of {what} gives {count}, and its 'result' has {results}; write as many")
    layouts = {operand.layout for operand in method.operands}
    names = ["self", *(name for name in method.signature.arguments if name not in layouts)]
    for name in method.let:
        if name in (*names, *layouts, *_FUNCTIONS):
            yield Problem(method.let[name].location, f"part '{name}' of {what} has the name of an argument; rename it")
    used = {name for part in parts_of(method).values() for name in part.names}
    for key, part in parts_of(method).items():
        of = f"'{key}' of {what}"
        own = {node.id for node in ast.walk(ast.parse(part.text)) if isinstance(node, ast.Name)
               and isinstance(node.ctx, ast.Store)}  # fmt: skip
        for name in part.names:
            if name not in (*names, *_FUNCTIONS, *own):
                yield Problem(part.location, f"{of} names the unknown '{name}'{did_you_mean(name, names)}")
        for call in part.calls:
            yield from _of_call(of, part, call, known)
        if key in method.let and key not in used:
            yield Problem(part.location, f"part '{key}' of {what} is used by no other; remove it")
        names.append(key)


def _of_call(what: str, part: Part, call: ast.Call, known: Mapping[str, Callable | None]) -> Iterator[Problem]:
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    if name not in known:
        yield Problem(part.location, f"{what} calls '{name}', which no tensor has{did_you_mean(name, known)}")
        return
    function = known[name]
    is_open = any(isinstance(it, ast.Starred) for it in call.args) or any(it.arg is None for it in call.keywords)
    if function is None or is_open:
        return
    arguments = [*(ast.unparse(it) for it in call.args), *(f"{it.arg}={ast.unparse(it.value)}" for it in call.keywords)]
    # An argument may have that sign too.
    count = len(call.args)
    if not function.fits(["_"] * count + [f"{it.arg}=_" for it in call.keywords]):
        yield Problem(part.location, f"{what} calls '{name}' with ({', '.join(arguments)}), but it takes ({function})")


def tensor_methods(spec: Spec, sources: Sources) -> Mapping[str, Callable | None]:
    """The public methods of tensors; None for those of ops that a template writes."""
    methods: dict[str, Callable | None] = {}
    for path in sources.below(RUNTIME / "tensor"):
        methods |= sources.methods_of_classes(path) if path.suffix == ".py" else {}
    for functor in spec.every_functor:
        if functor.has_front:
            methods.setdefault(functor.name, None)
    for method in spec.storage_methods():
        if (front := method.tensor) is not None:
            parameters = [str(it) for it in front.parameters]
            required = sum("=" not in it for it in parameters)
            methods[front.name] = Callable(tuple(front.arguments), required, False, {})
    return methods
