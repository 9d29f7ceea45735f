"""Calls of storages with batched operands: whether they are recorded first, and what they are for all examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ...storage import Storage
from ..base.error import BatchingError
from ..core.extensions import extensions
from ..core.layout import Layout
from ..storage.calls import BATCHED, RECORDED
from ..tensor import Tensor
from ..tensor.batch import Level, batched, depth_of, expanded, is_at, levels, stacked

Rule: TypeAlias = "Callable[[BatchedCall], Any]"


class Batching(NamedTuple):
    """How a storage method is called for a batch."""

    name: str
    parameters: tuple[str, ...]
    operands: Mapping[str, str | None]
    """The parameters that are storages, and `self`, each with that of its layout."""
    rule: Rule | None
    reason: str = ""
    """Why there is no rule, and what to do."""


class BatchedCall:
    """A call of a storage method, some of whose operands stand for the examples of a level."""

    __slots__ = ("arguments", "batching", "level")

    def __init__(self, batching: Batching, level: Level, arguments: dict[str, Any]) -> None:
        self.batching = batching
        self.level = level
        self.arguments = arguments

    def __getitem__(self, name: str) -> Any:
        """An argument by the name of its parameter."""
        return self.arguments[name]

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.level.size

    def is_batched(self, name: str) -> bool:
        """Return True if an operand is another one for each example."""
        storage = self.arguments[name]
        return storage is not None and is_at(storage, self.level) and storage.inner.step != 0

    def stacked(self, name: str) -> Any:
        """An operand of all examples, which are its first dim; None if it was left out."""
        storage, layout = self.arguments[name], self.arguments[str(self.batching.operands[name])]
        return None if storage is None else Tensor._new(*stacked(storage, layout, self.level))

    def shared(self, name: str) -> Any:
        """An operand that is the same for all examples; None if it was left out."""
        storage, layout = self.arguments[name], self.arguments[str(self.batching.operands[name])]
        if storage is None:
            return None
        return Tensor._new(storage.value if is_at(storage, self.level) else storage, layout)

    def run(self, operands: Mapping[str, Tensor | None], **changed: Any) -> Any:
        """Call the method with these operands, and some other arguments changed; the results are those of all."""
        arguments = {**self.arguments, **changed}
        for name, tensor in operands.items():
            arguments[name] = None if tensor is None else tensor._storage
            arguments[str(self.batching.operands[name])] = None if tensor is None else tensor._layout
        return self.call(arguments)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the method with all of its arguments."""
        method = getattr(arguments["self"], self.batching.name)
        return method(*[arguments[name] for name in self.batching.parameters])

    def results(self, outputs: Any) -> Any:
        """The results for one example of those of all, storages or tensors of which the examples are the first dim."""
        if isinstance(outputs, tuple):
            return tuple([self.results(each) for each in outputs])
        if isinstance(outputs, Tensor):
            outputs = (outputs if _is_contiguous(outputs) else outputs.copy())._storage
        return batched(outputs, self.level) if isinstance(outputs, Storage) else outputs


def _is_contiguous(tensor: Tensor) -> bool:
    layout = tensor._layout
    return layout.is_contiguous and not layout.start_offset and layout.elem_count == tensor._storage.inner.length


class Calls:
    """Has a function for each storage method, which takes the storage first, for recorded and batched operands."""

    def __init__(self, table: Mapping[str, Batching]) -> None:
        self._table: Final = table

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = partial(_call, self._table[name])
        setattr(self, name, function)
        return function


def _storages(batching: Batching, arguments: Mapping[str, Any]) -> Iterator[Any]:
    for name in batching.operands:
        value = arguments[name]
        if isinstance(value, tuple):
            yield from value
        elif value is not None:
            yield value


def _call(batching: Batching, storage: Any, *positional: Any) -> Any:
    arguments = {"self": storage, **dict(zip(batching.parameters, positional, strict=True))}
    innermost = max(_storages(batching, arguments), key=depth_of)
    depth = depth_of(innermost)
    if depth % 2:
        return _record(batching, depth, innermost, arguments)
    level: Level = innermost.inner.level
    if level not in levels():
        reason = "a tensor of one example was stored beyond its call; return it from the function instead"
        raise BatchingError("vmap", reason)
    if batching.rule is None:
        advice = "loop over the examples, and join the results with tl.stack"
        raise BatchingError(batching.name, batching.reason or f"it has no rule for batches; {advice}")
    call = BatchedCall(batching, level, arguments)
    return call.results(batching.rule(call))


def _record(batching: Batching, depth: int, innermost: Any, arguments: dict[str, Any]) -> Any:
    """Record a call. What is recorded further out is a constant of this record, whose own record is in its value."""
    if depth > 1:
        level = innermost.value.inner.level

        def constant(storage: Any) -> Any:
            is_outer = storage is not None and storage.inner.kind == RECORDED and depth_of(storage) < depth
            return expanded(storage, level) if is_outer else storage

        for name in batching.operands:
            value = arguments[name]
            arguments[name] = tuple(map(constant, value)) if isinstance(value, tuple) else constant(value)
    holds_elements = "self" in batching.operands
    owner = extensions.recorded_storage if holds_elements else extensions.recorded_blocks
    return getattr(owner, batching.name)(arguments["self"], *[arguments[name] for name in batching.parameters])


def require_target(call: BatchedCall) -> None:
    """Have the elements to which a call writes be those of each example; BatchingError where no example has its own."""
    storage, level = call["self"], call.level
    inner = storage.inner
    if not (inner.kind == BATCHED and inner.level is level):
        raise BatchingError(
            call.batching.name,
            "what is written differs between examples, and the tensor that is written to does not; write x = x + y"
            " instead of x += y, or create it from a batched one, as by zeros_like",
        )
    if not inner.step:
        layout = Layout.contiguous((inner.length,))
        value = Tensor._new(*stacked(storage, layout, level)).copy()._storage
        another = batched(value, level)
        storage.inner, storage.value = another.inner, value
