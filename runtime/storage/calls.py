"""How storages have their backends do something, and what is checked in front of that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NoReturn,
    ParamSpec,
    Self,
    TypeAlias,
    overload,
)

from ...dtype import Array, DType
from ..backends.backend import BackendBlocks, BackendDevice, BackendStorage
from ..backends.plan import Key
from ..base.error import DeviceMismatch, DTypeMismatch, UnsupportedDType
from ..core.argument import wrong_type
from ..core.conversion import conversion
from ..core.extensions import extensions
from ..core.layout import Layout
from ..custom.user_kernel import KernelOperand
from ..helpers.host_memory import raises_out_of_memory
from ..program.builder import Op
from ..program.program import HostCall, Results
from ..program.values import Buffer

P = ParamSpec("P")
_Made: TypeAlias = BackendStorage | BackendBlocks | Iterable[BackendStorage] | None
new: Final = object.__new__
"""Creates an object of a class without its `__init__`. Methods that are called often do so inline."""

RECORDED: Final = -1
"""The `kind` of what is in a recorded storage. No plan has it, so such a storage is noticed where a plan is missing."""
BATCHED: Final = -2
"""That of what is in a batched storage, see runtime/tensor/batch.py, of which the same is true."""
TRACED: Final = -3
"""That of what stands for a storage while a function is fused, of which the same is true."""
live_autocasts: Final[deque[None]] = deque()
"""One item for each `autocast` block in progress, in any thread, or that backward has to repeat."""
live_batches: Final[deque[None]] = deque()
"""One item for each `vmap` call in progress, or that left tensors of single examples."""
MAX_JOINED: Final = 1 << 10
"""Calls that join more operands have no plan: a list that grows would leave one of each length."""
MAX_WRITTEN: Final = 1 << 12
"""The limit for operands that are written to."""


def operands_of(
    device: BackendDevice, storages: Sequence[Any], layouts: Sequence[Layout], most: int
) -> tuple[list[Any], tuple[int, ...] | None]:
    """The storages of the backend, and what plans depend on of them: the numbers of their layouts and their kinds.

    That is None where one is on another device, where there are more storages than layouts or fewer, and where there
    are `most` or more.
    """
    inners: list[Any] = []
    numbers: list[int] = []
    count = len(storages)
    if count != len(layouts) or count >= most:
        return inners, None
    if count == 1:
        # Most often, and in half of the time.
        inner = storages[0].inner
        return [inner], (layouts[0].number, inner.kind) if inner.device is device else None
    # Of a few operands, this loop takes less time than comprehensions, or zip with a keyword.
    for storage, layout in zip(storages, layouts):  # noqa: B905
        inner = storage.inner
        if inner.device is not device:
            return inners, None
        inners.append(inner)
        numbers.append(layout.number)
        numbers.append(inner.kind)
    return inners, tuple(numbers)


def require_instance(op: str, name: str, value: object, classes: type | UnionType, expected: str) -> None:
    """Raise InvalidArgument for an argument that is of none of the classes."""
    if not isinstance(value, classes):
        raise wrong_type(op, name, value, expected)


def backend_name(storage: Calls) -> str:
    """The name of the backend that holds a storage."""
    name: str = storage.inner.device.backend
    return name


def require_dtype(op: str, storage: Calls, dtypes: frozenset[DType], reason: str) -> None:
    """Raise UnsupportedDType unless the storage has one of `dtypes`."""
    if (dtype := storage.inner.dtype) not in dtypes:
        raise UnsupportedDType(op, dtype, backend_name(storage), reason, conversion(dtype, dtypes))


def require_format(op: str, storage: Calls, formats: frozenset[str], reason: str) -> None:
    """Raise UnsupportedDType unless block-quantized weights have one of `formats`."""
    if (dtype := storage.inner.dtype).value not in formats:
        raise UnsupportedDType(op, dtype, backend_name(storage), reason)


def require_same_dtype(op: str, storage: Calls, *others: Calls | None) -> None:
    """Raise DTypeMismatch unless all storages have one dtype; None is skipped."""
    dtype = storage.inner.dtype
    for other in others:
        if other is not None and other.inner.dtype is not dtype:
            raise DTypeMismatch(op, (dtype, other.inner.dtype))


def require_same_device(op: str, storage: Calls, *others: Calls | None) -> None:
    """Raise DeviceMismatch unless all storages are on one device; None is skipped."""
    device = storage.inner.device
    for other in others:
        if other is not None and other.inner.device is not device and other.inner.device != device:
            raise device_mismatch(op, storage, *others)


def device_mismatch(op: str, *storages: Calls | None) -> DeviceMismatch:
    """The error that names the devices of the storages; None is skipped."""
    devices = [storage.inner.device for storage in storages if storage is not None]
    return DeviceMismatch(op, tuple([f"{device.backend}:{device.ordinal}" for device in devices]))


class MissingOp:
    """An op that the runtime knows and a package lacks; a call that looks at it says so."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            message = f"the package has no op '{self._name}'; a package has the ops that its spec/functors describes"
            raise AttributeError(message, name=name, obj=self)


class WithoutMethods:
    """A storage of a package that may lack methods which the runtime knows, and says so in the error.

    That of any other package is none: each look at an attribute takes longer.
    """

    __slots__ = ()

    if not TYPE_CHECKING:
        # Only called for what is not there.
        def __getattr__(self, name: str) -> NoReturn:
            message = (
                f"a {type(self).__name__} has no '{name}'; a package has the methods that its spec/storage describes"
            )
            raise AttributeError(message, name=name, obj=self)


class Calls:
    """Calls of a backend by a storage, of elements or of blocks."""

    __slots__ = ()

    numbers: ClassVar[Mapping[str, int]] = {}
    """The methods whose last arguments are numbers, which are no part of a key, and how many these are."""

    inner: Any

    @overload
    def _planned(self, key: Key, function: Op[P, Results], *arguments: P.args, **options: P.kwargs) -> Any: ...

    @overload
    def _planned(self, key: Key, function: Callable[P, _Made], *arguments: P.args, **options: P.kwargs) -> Any: ...

    def _planned(self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of a backend, and keep its plan: see `BackendDevice.planned`."""
        return self._call(key, function, arguments, options)

    @overload
    def _attempt(self, key: Key, function: Op[P, Results], *arguments: P.args, **options: P.kwargs) -> Any: ...

    @overload
    def _attempt(self, key: Key, function: Callable[P, _Made], *arguments: P.args, **options: P.kwargs) -> Any: ...

    def _attempt(self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function that may refuse, by returning None; its plan is cached only if it does not."""
        return self._call(key, function, arguments, options, may_refuse=True)

    def _call(
        self,
        key: Key,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        may_refuse: bool = False,
    ) -> Any:
        numbers = self.numbers.get(key[0], 0) if type(key) is tuple else 0
        device: BackendDevice = self.inner.device
        return device.planned(key, numbers, function, arguments, options, may_refuse)


class ElementCalls(Calls, KernelOperand):
    """Calls of a backend by a storage of elements: read, write, create others like it."""

    __slots__ = ("is_shown", "value", "written")

    inner: Any
    """The storage of a backend; of a recorded storage, the node that knows how it was computed; of a batched one, what
    it stands for."""
    value: Any
    """Of a recorded storage, the one that has the elements; of a batched storage, the one that has those of all."""
    written: tuple[int, Any] | None
    """Of a plain storage that gradients need, when it was written to last, and where; else None."""
    is_shown: bool
    """Set where tensors that are not recorded show the elements of a recorded storage."""

    @property
    def is_recorded(self) -> bool:
        """Whether calls on the storage are recorded: it was computed from a variable, or is one's."""
        kind = self.inner.kind
        is_recorded: bool = kind == RECORDED or (kind == BATCHED and self.value.is_recorded)
        return is_recorded

    @property
    def is_wrapped(self) -> bool:
        """Whether the storage is recorded or batched, so that calls are handed over."""
        is_wrapped: bool = self.inner.kind < 0
        return is_wrapped

    def _kernel_operand(self) -> tuple[Any, None]:
        return self.inner, None

    @raises_out_of_memory
    def to_numpy(self) -> Array:
        """A copy of all elements as a NumPy array of one dim (ml_dtypes for bf16 and floats of 8 bits).

        Waits for the device, and raises what it has recorded of this thread's calls (InvalidIndex).
        """
        elements: Array = (self.value if self.inner.kind == RECORDED else self).inner.to_numpy()
        return elements

    def __reduce__(self) -> tuple[Callable[[Array], Self], tuple[Array]]:
        """Pickle the elements and the device, to which they return."""
        return extensions.device_class(self.inner.device).storage_owned, (self.to_numpy(),)

    @classmethod
    def _new(cls, inner: BackendStorage) -> Self:
        """Return a storage without the checks of `__init__`."""
        storage = new(cls)
        storage.inner = inner
        storage.written = None
        return storage

    def _note_write(self) -> None:
        """Note a write to this storage if gradients need its elements."""
        if self.written is not None:
            extensions.note_write(self)

    def _new_each(self, inners: Iterable[BackendStorage]) -> tuple[Self, ...]:
        cls, storages = type(self), []
        # Calling `_new` for each takes longer.
        for inner in inners:
            storage = new(cls)
            storage.inner = inner
            storage.written = None
            storages.append(storage)
        return tuple(storages)

    @overload
    def _new_planned(
        self, key: Key, function: Op[P, Buffer | HostCall], *arguments: P.args, **options: P.kwargs
    ) -> Self: ...

    @overload
    def _new_planned(
        self, key: Key, function: Callable[P, BackendStorage], *arguments: P.args, **options: P.kwargs
    ) -> Self: ...

    def _new_planned(self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any) -> Self:
        return self._new(self._call(key, function, arguments, options))

    @overload
    def _new_each_planned(
        self, key: Key, function: Op[P, Sequence[Buffer] | HostCall], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Self, ...]: ...

    @overload
    def _new_each_planned(
        self, key: Key, function: Callable[P, Iterable[BackendStorage]], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Self, ...]: ...

    def _new_each_planned(
        self, key: Key, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> tuple[Self, ...]:
        return self._new_each(self._call(key, function, arguments, options))
