"""The architectures' part of the model: what spec/architectures says of decoders and of their layers."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from opgen.fields import Fields
from opgen.loader import Document, Value
from opgen.problem import Location, Problem, did_you_mean

# What a layer is given, and what its last step gives.
_STREAM = "x"
# What the function of a layer has besides.
_TAKEN_NAMES = ("at", "steps", "weights")
_TENSORS = ("embedding", "norm", "head")
_FREQUENCIES = "frequencies"
VOCABULARY = "vocabulary"
"""In shapes the rows of the embedding; the other sizes are those of the config."""


@dataclass(frozen=True)
class Step:
    """A line of a layer: what is computed, and what it is called then."""

    target: str
    value: ast.expr
    location: Location


@dataclass(frozen=True)
class ModelTensor:
    """A tensor of a model: what files call it, and its shape."""

    name: str
    shape: tuple[tuple[ast.expr, Location], ...]  # products and quotients of sizes by name


@dataclass(frozen=True)
class Architecture:
    """A decoder: the tensors of its files, and the steps of a layer."""

    name: str
    doc: str
    names: tuple[str, ...]  # by which files call it
    tensors: Mapping[str, ModelTensor]  # around the layers
    layer: Mapping[str, ModelTensor]
    optional: Mapping[str, ModelTensor]  # those that a file may lack
    steps: tuple[Step, ...]
    location: Location

    @property
    def all_tensors(self) -> Mapping[str, ModelTensor]:
        """Those around the layers and those of a layer."""
        return {**self.tensors, **self.layer, **self.optional}


def build_architecture(document: Document, problems: list[Problem]) -> Architecture:
    """The architecture of a file."""
    what = f"architecture '{document.stem}'"
    fields = Fields(document.root, what, problems)
    doc = fields.text("doc")
    names = fields.texts("names")
    if not names:
        fields.problem(fields.place("names"), f"{what} has no names; write those that files have for it")
    tensors = _tensors(fields, problems)
    layer, optional = (
        {name: _tensor(f"tensor '{name}' of {what}", value, problems) for name, value in fields.named(key).items()}
        for key in ("layer", "optional")
    )
    for name in layer:
        if name in optional:
            fields.problem(fields.place("optional"), f"'{name}' of {what} is in 'layer' too; remove one of the two")
    for name in (*layer, *optional):
        if name in (_STREAM, *_TAKEN_NAMES, *_TENSORS, _FREQUENCIES):
            fields.problem(fields.place("layer"), f"a tensor of {what} cannot be named '{name}'; choose another name")
    steps = tuple(_steps(fields))
    fields.finish()
    _check_use(fields, steps, (*layer, *optional))
    return Architecture(
        name=document.stem,
        doc=doc,
        names=tuple(text for text, _ in names),
        tensors=tensors,
        layer=layer,
        optional=optional,
        steps=steps,
        location=Location(document.path),
    )


def _tensors(fields: Fields, problems: list[Problem]) -> Mapping[str, ModelTensor]:
    value = fields.required("tensors")
    if value is None:
        return {}
    parts = Fields(value, f"'tensors' of {fields.what}", problems)
    values = {name: parts.required(name) for name in _TENSORS} | {_FREQUENCIES: parts.optional(_FREQUENCIES)}
    parts.finish()
    return {
        name: _tensor(f"tensor '{name}' of {fields.what}", inner, problems)
        for name, inner in values.items()
        if inner is not None
    }


def _tensor(what: str, value: Value, problems: list[Problem]) -> ModelTensor:
    fields = Fields(value, what, problems)
    name = fields.text("name")
    written = fields.required("shape")
    sizes = [] if written is None else fields.text_list(written, "shape")
    fields.finish()
    shape = []
    for text, location in sizes:
        try:
            size = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError):
            size = ast.Constant(None)
        if _is_size(size):
            shape.append((size, location))
        else:
            message = f"size '{text}' of {what} must be of names and numbers with * and //, as 'heads * head_dim'"
            fields.problem(location, message)
    return ModelTensor(name, tuple(shape))


def _is_size(value: ast.expr) -> bool:
    match value:
        case ast.Name():
            return True
        case ast.Constant(int(number)):
            return number > 0 and not isinstance(number, bool)
        case ast.BinOp(left=left, op=ast.Mult() | ast.FloorDiv(), right=right):
            return _is_size(left) and _is_size(right)
    return False


def _steps(fields: Fields) -> Iterator[Step]:
    lines = fields.texts("steps")
    if not lines:
        fields.problem(fields.place("steps"), f"{fields.what} has no steps; write what a layer does")
    for text, location in lines:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            body = []
        match body:
            case [ast.Assign(targets=[ast.Name(id=target)], value=value)] if _is_plain(value):
                yield Step(target, value, location)
            case _:
                message = f"step '{text}' of {fields.what} must be 'name = value', of calls, names and sums"
                fields.problem(location, message)


def _is_plain(value: ast.expr) -> bool:
    match value:
        case ast.Name():
            return True
        case ast.Call(func=ast.Name(), args=arguments, keywords=[]):
            return all(map(_is_plain, arguments))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_plain(left) and _is_plain(right)
    return False


def calls(value: ast.AST) -> Iterator[tuple[str, int]]:
    """The functions that a value of a step calls, and with how many arguments."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, len(node.args)


def used(value: ast.expr) -> set[str]:
    """The names in a value of a step, but for those of functions."""
    functions = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and id(node) not in functions}


def _check_use(fields: Fields, steps: tuple[Step, ...], tensors: Collection[str]) -> None:
    """Note names that nothing defines, and what no step uses."""
    known = {_STREAM, *tensors}
    waiting: dict[str, Location] = {}  # results that no step has used so far
    unused = set(tensors)
    for step in steps:
        for name in sorted(used(step.value)):
            if name not in known:
                message = f"unknown name '{name}' in a step of {fields.what}{did_you_mean(name, sorted(known))}"
                fields.problem(step.location, message)
            waiting.pop(name, None)
            unused.discard(name)
        if step.target in waiting:
            _note_unused(fields, step.target, waiting[step.target])
        if step.target in (*tensors, *_TAKEN_NAMES):
            message = f"a step of {fields.what} cannot give '{step.target}', which is taken; choose another name"
            fields.problem(step.location, message)
        known.add(step.target)
        waiting[step.target] = step.location
    if steps and steps[-1].target != _STREAM:
        fields.problem(steps[-1].location, f"the last step of {fields.what} must give '{_STREAM}'")
    for name, location in waiting.items():
        if name != _STREAM:
            _note_unused(fields, name, location)
    for name in sorted(unused):
        message = f"no step of {fields.what} uses the tensor '{name}'; use it or remove it"
        fields.problem(fields.place("layer"), message)


def _note_unused(fields: Fields, name: str, location: Location) -> None:
    fields.problem(location, f"no step of {fields.what} uses the result '{name}'; use it or remove the step")
