"""The graph of recorded calls: each node knows the nodes that it took, and what its gradients need."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import ref

from ...storage import Storage
from ..base.error import GradientError
from ..core.extensions import extensions
from ..core.layout import Layout, inverse
from ..storage.calls import RECORDED, new
from ..tensor import Tensor
from ..tensor.batch import alias
from .call_sites import CallSite, call_site, find, frame_at, latest, line_of
from .recording import mode

if TYPE_CHECKING:
    from ...device import Device
    from ...dtype import DType
    from ..backends.backend import BackendDevice

Contribution: TypeAlias = "Tensor | Callable[[Tensor | None], Tensor] | None"
"""A gradient of an operand; None is one of zeros. A function adds it to what the operand's other uses gave, if any."""


class Use(NamedTuple):
    """The part of a node's storage that a layout covers."""

    node: Node
    layout: Layout | None
    """None where that is all of it."""


class Part(NamedTuple):
    """The gradient of one of several results, of which the call's gradients are worked out together."""

    result: int
    gradient: Tensor


Contributions: TypeAlias = Iterable[tuple[int | Use, "Contribution | Part"]]
"""Gradients of operands, each with the operand's position or, if it was recomputed, with a `Use` of a node."""


class Rule:
    """How the gradients of a kind of call are worked out. What is read of it for each call takes little time."""

    __slots__ = ("depth", "gradients", "name")

    depth: int
    """See `call_sites.Hint`; counted from `record`."""

    def __init__(self, name: str, gradients: Callable[[Node, Any], Contributions]) -> None:
        self.name = name
        """The method or the op that is called."""
        self.gradients = gradients
        """Gives the gradients of a call's operands, in the shapes of their layouts, for the gradient of its result.

        Where a layout repeats elements, a gradient may have a dim of size 1.
        """
        self.depth = 1


def rule(function: Callable[[Node, Any], Contributions]) -> Rule:
    """Make a rule of a function that has the name of what is called."""
    return Rule(function.__name__.removeprefix("_"), function)


# Of nodes and writes, in one order.
_numbers: Final = itertools.count()


class Node:
    """A recorded call, or a variable (which no call returned); it is the `inner` of the storage that the call returned.

    A gradient is that of a storage, all of whose elements are counted in their order: views of it share it.
    """

    __slots__ = (
        "device",
        "dtype",
        "inputs",
        "length",
        "number",
        "result",
        "rule",
        "saved",
        "site",
    )

    kind: Final = RECORDED

    device: BackendDevice
    dtype: DType
    length: int
    """The number of elements of the storage that the call returned, or wrote to."""
    number: int
    """Higher than those of all nodes that it depends on."""
    rule: Rule | None
    """None of a variable."""
    inputs: tuple[Any, ...]
    """Two items for each operand: the node that returned it, None if it has no gradient; and the layout of what the
    call
    read of its storage, None for all of it and for an operand that was omitted. One tuple is faster than two."""
    saved: tuple[Any, ...]
    """The values that the rule reads: for each operand its storage, or None if the gradients do not need its elements;
    then the other arguments that they need. A rule that reads no elements may have these alone. Of a variable its
    layout, where that is not row-major."""
    result: Storage | None
    """The storage that the call returned, or wrote to, if the gradients need its elements."""
    site: CallSite
    """The call site, if the gradients need something that may be overwritten."""

    @classmethod
    def of(cls, storage: Storage, rule: Rule | None) -> Node:
        """Return a node for a storage; without a rule, for one that no call returned."""
        node = new(cls)
        inner = storage.inner
        node.device = inner.device
        node.dtype = inner.dtype
        node.length = inner.length
        node.number = next(_numbers)
        node.rule = rule
        node.inputs = node.saved = ()
        node.result = None
        return node

    @property
    def is_freed(self) -> bool:
        """Whether backward has dropped what the gradients need."""
        return self.rule is _freed

    @property
    def name(self) -> str:
        """The method or the op that was called."""
        return "" if self.rule is None else self.rule.name

    def takes(self, operand: int) -> bool:
        """Return True if the gradient of an operand is needed."""
        return self.inputs[2 * operand] is not None

    def operand(self, operand: int) -> Tensor:
        """Return an operand as it was passed, which must not have been overwritten."""
        node, layout = self.inputs[2 * operand : 2 * operand + 2]
        value = self.saved[operand]
        if _Writes.last > self.number:
            self.require_unchanged(value)
        tensor = new(Tensor)
        tensor._storage = value if node is None or not mode().keeps_graph else recorded_of(value, node)
        tensor._layout = layout
        return tensor

    def optional(self, operand: int) -> Tensor | None:
        """Return an operand that may have been omitted."""
        return None if self.saved[operand] is None else self.operand(operand)

    def result_as(self, shape: Iterable[int]) -> Tensor:
        """Return the result, which must not have been overwritten."""
        return self.result_view(Layout.contiguous(shape))

    def result_view(self, layout: Layout) -> Tensor:
        """Return a view of the result, or of what was written to, which must not have been overwritten."""
        result: Any = self.result
        if _Writes.last > self.number:
            self.require_unchanged(result)
        tensor = new(Tensor)
        tensor._storage = recorded_of(result, self) if mode().keeps_graph else result
        tensor._layout = layout
        return tensor

    def in_shape(self, gradient: Tensor) -> Tensor:
        """Return the gradient of a variable that is not row-major in its shape."""
        layout: Layout = self.saved[0]
        order = layout.memory_order()
        return gradient.reshape([layout.shape[dim] for dim in order]).permute(inverse(order))

    def free(self) -> None:
        """Drop all that the gradients needed: they were worked out."""
        self.saved = (self.rule,)
        self.inputs = ()
        self.result = None
        self.rule = _freed

    def require_unchanged(self, value: Storage) -> None:
        """Raise GradientError where a storage was written to since the call."""
        number, site = value.written or UNWRITTEN
        if number > self.number and site is not None:
            raise GradientError(
                "backward",
                f"{self.name} at {line_of(self.site)} needs elements for its gradient that"
                f" {line_of(site)} has overwritten;"
                " write x = x + y instead of x += y there, or give the op a copy",
            )


def next_number() -> int:
    """A number between those of the calls so far and those to come."""
    return next(_numbers)


UNWRITTEN: Final[tuple[int, CallSite | None]] = (-1, None)
"""`Storage.written` of a storage that gradients need and that was not written to since."""

# Not equal to the one above: Python would make one object of both.
BORROWED: Final[tuple[int, CallSite | None]] = (-2, None)
"""`Storage.written` of a gradient whose elements another tensor may share."""


class _Writes:
    """When a storage that gradients need was written to last: what was recorded since is as it was.

    As a hint, see `call_site`, it is that of all writes.
    """

    last = -1
    depth = 1

    @classmethod
    def note(cls, number: int) -> None:
        """Note a write; another thread may have noted a later one."""
        if number > cls.last:
            cls.last = number


@rule
def _freed(node: Node, _: Tensor) -> Contributions:
    """The rule of a node that has dropped what its gradients need."""
    raise GradientError(
        "backward",
        f"gradients went back through {node.saved[0].name} already, and what they need is"
        " gone; write backward(keep=True) the first time, or compute the loss again",
    )


class RecordedBase(Storage):
    """Members of recorded storages other than the methods that record."""

    __slots__ = ("__weakref__",)

    is_recorded = True

    inner: Node  # type: ignore[assignment]
    # Calls of the class make the object alone, in less time than `new`.
    __init__ = object.__init__

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.inner.dtype

    @property
    def device(self) -> Device:
        """The device that holds the elements."""
        device: Device = self.value.device
        return device


def handle_of(storage: Storage) -> Callable[[], object] | None:
    """A function that returns None once no tensor shows a recorded storage; None where that cannot be known."""
    return ref(storage) if isinstance(storage, RecordedBase) else None


def tracked(value: Storage | None) -> Any:
    """Track writes to a plain storage from now on, since gradients need its elements."""
    if value is not None and value.written is None:
        value.written = UNWRITTEN
    return value


def note_write(storage: Storage) -> None:
    """Note that a storage that gradients need was written to, and where."""
    number = next(_numbers)
    storage.written = number, call_site(_Writes)
    _Writes.note(number)


def borrowed(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Mark gradients whose elements another tensor may share: whoever needs one of its own gets a copy."""
    if mode().keeps_graph:
        return [None if tensor is None else tensor.copy() for tensor in tensors]
    return [None if tensor is None else Tensor._new(_borrowed(tensor._storage), tensor._layout) for tensor in tensors]


def _borrowed(storage: Storage) -> Storage:
    another = alias(unwrap(storage)[0])
    another.written = BORROWED
    return another


def unwrap(storage: Any) -> tuple[Any, Node | None]:
    """Return the plain storage of one that may be recorded, and its node."""
    inner = storage.inner
    return (storage.value, inner) if type(inner) is Node else (storage, None)


def unwrap_each(storages: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Node | None, ...]]:
    """Unwrap several storages: see `unwrap`."""
    pairs = [unwrap(storage) for storage in storages]
    return tuple([value for value, _ in pairs]), tuple([node for _, node in pairs])


def arguments_of(*operands: Tensor | None) -> list[Storage | Layout | None]:
    """Return the storage and the layout of each operand, as a method takes them; None twice of one that is left out."""
    arguments: list[Storage | Layout | None] = []
    for operand in operands:
        arguments += (None, None) if operand is None else (operand._storage, operand._layout)
    return arguments


def inputs_of(nodes: Iterable[Node | None], layouts: Iterable[Layout]) -> Iterator[Any]:
    """The `inputs` of several operands."""
    for node, layout in zip(nodes, layouts, strict=True):
        yield from (node, layout)


def recorded_of(value: Storage, node: Node) -> Storage:
    """Return a recorded storage for a node's result."""
    storage: Storage = extensions.recorded_storage()
    storage.value = value
    storage.inner = node  # type: ignore[assignment]
    return storage


def record(
    value: Storage,
    rule: Rule,
    inputs: tuple[Any, ...],
    saved: tuple[Any, ...],
    result: Storage | None = None,
    needs_site: bool = True,
) -> Any:
    """Return a recorded storage for a call's result; the result itself where nothing is recorded.

    `needs_site` is false where gradients need nothing that may be overwritten. All is done in place: an op takes little
    more time than calls of functions.
    """
    if not mode().records:
        return value
    value.written = UNWRITTEN
    inner = value.inner
    node = Node()
    node.device = inner.device
    node.dtype = inner.dtype
    node.length = inner.length
    node.number = next(_numbers)
    node.rule = rule
    node.inputs = inputs
    node.saved = saved
    node.result = result
    if needs_site:
        # As in `call_site`.
        try:
            frame = frame_at(rule.depth)
            code, sites = latest[0]
            node.site = sites[frame.f_lasti] if frame.f_code is code else find(rule, frame, frame_at(0))
        except (KeyError, ValueError):
            node.site = find(rule, frame_at(0), frame_at(0))
    storage = extensions.recorded_storage()
    storage.value = value
    storage.inner = node
    return storage


class Parts:
    """The gradients of the results of one call, by position; an unused result has none."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Tensor] = {}

    @property
    def total(self) -> Parts:
        """All parts, which the rule of the call takes instead of a gradient."""
        return self

    def add(self, part: Part, _: Layout) -> None:
        """Add the gradient of a result."""
        before = self._of.get(part.result)
        gradient = part.gradient
        self._of[part.result] = gradient if before is None else before + gradient.reshape(before.shape)

    def get(self, result: int) -> Tensor | None:
        """The gradient of the storage of a result: its elements in their order, in any shape."""
        return self._of.get(result)


def record_each(
    storages: Sequence[Storage | None], rule: Rule, inputs: tuple[Any, ...], saved: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return recorded storages for the results of one call; integers, and None for what was left out, stay.

    The rule takes `Parts`. For rules that call `result_of`, `saved` ends in the results.
    """
    first = next((it for it in storages if it is not None), None)
    if first is None or not mode().records:
        return tuple(storages)
    call = Node.of(first, rule)
    call.length = 0
    call.inputs, call.saved = inputs, saved
    call.site = call_site(rule)
    return tuple(
        [
            _recorded_part(call, position, tracked(it)) if it is not None and it.inner.dtype.is_inexact else it
            for position, it in enumerate(storages)
        ]
    )


def result_of(call: Node, position: int, layout: Layout) -> Tensor:
    """Return one of the results of a call, which must not have been overwritten."""
    value = call.saved[-1][position]
    call.require_unchanged(value)
    return Tensor._new(_recorded_part(call, position, value) if mode().keeps_graph else value, layout)


def results_of(
    call: Node, parts: Parts, shapes: Sequence[Sequence[int] | None]
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the gradients of the results of a call, None of one without, and the results.

    A shape is None where the call left the result out.
    """
    gradients: list[Tensor | None] = []
    results: list[Tensor | None] = []
    position = 0
    for shape in shapes:
        if shape is None:
            gradients.append(None)
            results.append(None)
            continue
        gradient = parts.get(position)
        gradients.append(None if gradient is None else gradient.reshape(shape))
        results.append(result_of(call, position, Layout.contiguous(shape)))
        position += 1
    return gradients, results


def _recorded_part(call: Node, position: int, value: Storage) -> Storage:
    node = Node.of(value, Rule(call.name, _part))
    node.inputs, node.saved = (call, None), (None, position)
    return recorded_of(value, node)


def _part(node: Node, g: Tensor) -> Contributions:
    yield 0, Part(node.saved[-1], g)


def without_gradients(op: str, results: Iterable[Storage]) -> Iterator[Storage]:
    """Results besides the first one of a recorded call: `backward` refuses those that are not integers."""
    for result in results:
        yield record(result, _refused, (), (op,), None, False) if result.inner.dtype.is_inexact else result


@rule
def _refused(node: Node, _: Tensor) -> Contributions:
    """The rule of a result through which no gradient goes."""
    raise GradientError(node.saved[0], "its first result alone has a gradient; detach the others")


def require_writable(op: str, node: Node | None) -> None:
    """Raise GradientError for a variable that is written to while calls are recorded."""
    if node is not None and node.rule is None and mode().records:
        raise GradientError(
            op,
            "a Var is not written to while calls are recorded, since its gradient would be lost;"
            " write in `with tallow.no_grad():`, or call its set_",
        )


def rewritten(
    storage: Storage,
    rule: Rule,
    inputs: tuple[Any, ...],
    saved: tuple[Any, ...],
    needs_result: bool = False,
) -> None:
    """Record that a call has written to a storage, the first of its operands: all views of it see that."""
    if not mode().records:
        return
    value, before = unwrap(storage)
    node = Node.of(storage, rule)
    node.inputs = inputs
    node.saved = saved
    if before is None:
        if getattr(storage, "is_shown", False):
            reason = "what is recorded is written to elements that detach has shown"
            raise GradientError(node.name, f"{reason}; write to a copy of these, x.detach().copy()")
        node.site = call_site(_Writes)
        # Earlier nodes may have saved the storage, which from now on holds this node's result.
        storage.written = node.number, node.site
        _Writes.note(node.number)
        storage.value = value = tracked(alias(storage))
    else:
        # The plain storage is one whose writes are noted.
        node.site = value.written[1]
    if needs_result:
        node.result = value
    storage.inner = node  # type: ignore[assignment]
