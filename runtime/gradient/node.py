"""What is recorded: storages that know the call which made them, and what that call needs for its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import getrefcount
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...storage import Storage
from ...storage.base import StorageBase
from ..base.error import GradientError
from ..core.extensions import extensions
from ..core.layout import Layout
from ..storage.calls import new
from ..tensor import Tensor
from .recording import Place, frame_at, latest_code, line_of, mode, outside, place, users_files

if TYPE_CHECKING:
    from ...device import Device
    from ...dtype import Array, DType
    from ..backends.backend import BackendDevice

Contribution: TypeAlias = "Tensor | Callable[[Tensor | None], Tensor] | None"
"""A gradient of an operand; None is one of zeros. A function adds it to what the operand's other uses gave, if any."""
Contributions: TypeAlias = Iterable[tuple[int, Contribution]]
"""The gradients of operands, each with the operand's place."""
Rule: TypeAlias = "Callable[[Node, Tensor], Contributions]"
"""Gives the gradients of a call's operands, in the shapes of their layouts, for the gradient of its result.

Where a layout repeats elements, a gradient may have a dim of size 1.
"""

# The classes of storages that are made of what is here, whose module writes them; to look into a class takes more time.
watched_storage: Any = Storage
# What is made, and what is written to, in one order.
_numbers: Final = itertools.count()


def _references_of_a_name() -> int:
    value = object()
    return getrefcount(value)


# From Python 3.14 on a call has no reference of its own to what a name has.
_OF_A_NAME: Final = _references_of_a_name()


class Node:
    """A call that was recorded, or a variable, which no call made; it is the `inner` of the storage that was made.

    A gradient is that of a storage, all of whose elements are counted in their order: views of it share it.
    """

    __slots__ = (
        "code",
        "device",
        "dtype",
        "instruction",
        "length",
        "number",
        "operands",
        "rule",
    )

    # That of no storage, so that no plan is found.
    kind: Final = -1

    device: BackendDevice
    dtype: DType
    length: int
    """The elements of the storage that the call made, or wrote to."""
    number: int
    """Higher than those of all calls whose results it depends on."""
    rule: Rule | None
    """None of a variable."""
    operands: tuple[Any, ...]
    """Three items of each operand: the node that made it (None of one that has no gradient), its layout (None of one
    that was left out) and its storage (None unless gradients need the elements). Then the other arguments that
    gradients need, and last the result if they need it. What is made at once is made in less time."""
    code: CodeType
    """Where the call was made, if gradients need something that may be overwritten."""
    instruction: int
    """The instruction of `code`."""

    @classmethod
    def of(cls, made: Storage, rule: Rule | None) -> Node:
        """What stands for a storage; without a rule, for one that no call made."""
        node = new(cls)
        inner = made.inner
        node.device = inner.device
        node.dtype = inner.dtype
        node.length = inner.length
        node.number = next(_numbers)
        node.rule = rule
        node.operands = ()
        return node

    @property
    def name(self) -> str:
        """The method or the op."""
        found: str = self.rule.__name__.removeprefix("_")  # type: ignore[union-attr]
        return found

    def takes(self, operand: int) -> bool:
        """Whether the gradient of an operand is asked for."""
        return self.operands[3 * operand] is not None

    def operand(self, operand: int) -> Tensor:
        """An operand as it was given, which must be as it was."""
        node, layout, value = self.operands[3 * operand : 3 * operand + 3]
        if _Writes.last > self.number:
            self._require_unchanged(value)
        tensor = new(Tensor)
        tensor._storage = value if node is None or not mode().keeps_graph else recorded_of(value, node)
        tensor._layout = layout
        return tensor

    def optional(self, operand: int) -> Tensor | None:
        """An operand that may have been left out."""
        return None if self.operands[3 * operand + 2] is None else self.operand(operand)

    def owns(self, operand: int) -> bool:
        """Whether nobody but this node, and the gradient that it works out, has the elements of an operand."""
        value = self.operands[3 * operand + 2]
        inner = value.inner
        # The tuple and the tensor that a gradient works with have it besides, and the value its inner.
        is_alone = getrefcount(value) == 2 + _OF_A_NAME and getrefcount(inner) == 1 + _OF_A_NAME
        return mode().frees and is_alone and inner.owns_memory()

    def made(self, shape: Iterable[int]) -> Tensor:
        """The result, which must be as it was."""
        return self.left(Layout.contiguous(shape))

    def left(self, layout: Layout) -> Tensor:
        """What a layout shows of the result, or of what was written to, which must be as it was."""
        result: Any = self.operands[-1]
        if _Writes.last > self.number:
            self._require_unchanged(result)
        tensor = new(Tensor)
        tensor._storage = recorded_of(result, self) if mode().keeps_graph else result
        tensor._layout = layout
        return tensor

    def free(self) -> None:
        """Let go of all that gradients need: they were worked out."""
        self.operands = (self.rule,)
        self.rule = _freed

    def _require_unchanged(self, value: Any) -> None:
        number, where = getattr(value, "written", _NEVER)
        if number > self.number and where is not None:
            raise GradientError(
                "backward",
                f"{self.name} at {line_of((self.code, self.instruction))} needs elements for its gradient that"
                f" {line_of(where)} has overwritten;"
                " write x = x + y in place of x += y there, or give the op a copy",
            )


class _Writes:
    """When a storage that gradients need was written to last: what was recorded since is as it was."""

    last = -1

    @classmethod
    def note(cls, number: int) -> None:
        """Note a write; another thread may have noted a later one."""
        if number > cls.last:
            cls.last = number


_NEVER: Final[tuple[int, Place | None]] = (-1, None)


def _freed(node: Node, _: Tensor) -> Contributions:
    """The rule of a node that has let go of what gradients need."""
    raise GradientError(
        "backward",
        f"gradients went back through {node.operands[0].__name__.removeprefix('_')} already, and what they need is"
        " gone; write backward(keep=True) the first time, or compute the loss again",
    )


class RecordedBase(Storage):
    """What recorded storages have besides the methods that record."""

    __slots__ = ()

    is_recorded = True
    is_watched = True

    inner: Node  # type: ignore[assignment]
    # The same, by a name at which other storages have None.
    node = vars(StorageBase)["inner"]
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

    def to_numpy(self) -> Array:
        """A copy of all elements as a NumPy array of one dim; see `Storage.to_numpy`."""
        found: Array = self.value.to_numpy()
        return found


class WatchedBase(Storage):
    """A plain storage that gradients need."""

    __slots__ = ()

    is_watched = True


def watched(value: Storage | None) -> Any:
    """A plain storage that gradients need: when it is written to they are not worked out of other elements."""
    if type(value) is Storage:
        value.__class__ = watched_storage
    return value


def unshared(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Tensors, each a copy unless the sequence alone has it and its elements: whoever gets one may write to it."""
    found: list[Tensor | None] = []
    for tensor in tensors:
        if tensor is None:
            found.append(None)
            continue
        storage = tensor._storage
        is_alone = getrefcount(tensor) == 1 + _OF_A_NAME and getrefcount(storage) == 1 + _OF_A_NAME
        found.append(tensor if is_alone else tensor.copy())
    return found


def opened(storage: Any) -> tuple[Any, Node | None]:
    """The plain storage of one that may be recorded, and its node."""
    node = storage.node
    return (storage, None) if node is None else (storage.value, node)


def opened_each(storages: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Node | None, ...]]:
    """The same of several."""
    pairs = [opened(storage) for storage in storages]
    return tuple([value for value, _ in pairs]), tuple([node for _, node in pairs])


def items_of(nodes: Iterable[Node | None], layouts: Iterable[Layout]) -> Iterator[Any]:
    """What nodes have of several operands whose elements gradients do not need."""
    for node, layout in zip(nodes, layouts, strict=True):
        yield from (node, layout, None)


def mark(storage: Storage) -> None:
    """Note that a plain storage is written to, and where."""
    mark_each((storage,), 5)


def mark_each(storages: Iterable[Storage], calls: int = 4) -> None:
    """The same of several."""
    number = next(_numbers)
    written = number, place(calls)
    for storage in storages:
        storage.written = written
    _Writes.note(number)


def recorded_of(value: Storage, node: Node) -> Storage:
    """A storage that a node has made."""
    storage: Storage = extensions.recorded_storage()
    storage.value = value
    storage.inner = node  # type: ignore[assignment]
    return storage


def record(made: Storage, rule: Rule, operands: tuple[Any, ...], calls: int = 3) -> Any:
    """What a call made, which depends on what some nodes made; a plain storage where nothing is recorded.

    The storage that was made is a watched one, as those are of which it was made. Between a user's code and this are at
    least so many `calls`, less one; 0 where gradients need nothing that may be overwritten. All is done in place: an op
    takes little more time than calls of functions.
    """
    if not mode().records:
        return made
    inner = made.inner
    node = Node()
    node.device = inner.device
    node.dtype = inner.dtype
    node.length = inner.length
    node.number = next(_numbers)
    node.rule = rule
    node.operands = operands
    if calls:
        try:
            frame = frame_at(calls)
        except ValueError:
            frame = frame_at(1)
        code = frame.f_code
        if code is not latest_code[0]:
            if code.co_filename not in users_files:
                frame = outside(frame)
                code = frame.f_code
            latest_code[0] = code
        node.code = code
        node.instruction = frame.f_lasti
    storage = extensions.recorded_storage()
    storage.value = made
    storage.inner = node
    return storage


def without_gradients(op: str, results: Iterable[Storage]) -> Iterator[Storage]:
    """Results besides the first one of a recorded call: `backward` refuses those of floats."""
    for result in results:
        yield record(result, _refused, (op,), 0) if result.inner.dtype.is_float else result


def _refused(node: Node, _: Tensor) -> Contributions:
    """The rule of a result through which no gradient goes."""
    op = node.operands[0]
    raise GradientError(op, "its first result alone has a gradient; detach the others")


def require_writable(op: str, node: Node | None) -> None:
    """Raise GradientError for a variable that is written to while calls are recorded."""
    if node is not None and node.rule is None and mode().records:
        raise GradientError(
            op,
            "a Var is not written to while calls are recorded, since its gradient would be lost;"
            " write in `with tallow.no_grad():`, or call its set_",
        )


def require_real(op: str, made: Storage) -> None:
    """Raise GradientError where a call that is recorded has made complex numbers."""
    if made.inner.dtype.is_complex and mode().records:
        raise GradientError(
            op, "complex numbers have no gradients; detach the tensor, or compute with real and imaginary parts"
        )


def rewritten(storage: Storage, rule: Rule, operands: tuple[Any, ...], needs_result: bool = False) -> None:
    """Record that a call has written to a storage, the first of its operands: all views of it see that."""
    if not mode().records:
        return
    inner: Any = storage.inner
    is_recorded = type(inner) is Node
    node = Node.of(storage, rule)
    node.operands = operands
    node.code, node.instruction = written = place(4)
    if not is_recorded:
        if getattr(storage, "is_shown", False):
            reason = "what is recorded is written to elements that detach has shown"
            raise GradientError(node.name, f"{reason}; write to a copy of these, x.detach().copy()")
        # What is in no tensor but those that show this storage.
        storage.value = new(watched_storage)
        storage.value.inner = inner
        storage.written = node.number, written
        _Writes.note(node.number)
        storage.__class__ = extensions.recorded_storage
    if needs_result:
        node.operands += (storage.value,)
    storage.inner = node  # type: ignore[assignment]
