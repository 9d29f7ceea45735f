"""Batched storages: what `vmap` passes to its function for one example, which represent all examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from ...dtype import DType
from ...storage import Storage
from ..base.bounded_cache import BoundedCache
from ..base.error import BatchingError
from ..core.layout import Layout
from ..core.shape import Shape
from ..storage.calls import BATCHED, RECORDED, live_batches

if TYPE_CHECKING:
    from ..backends.backend import BackendDevice


class Level:
    """A call of `vmap` in progress: its nesting depth, and the number of its examples."""

    __slots__ = ("__weakref__", "depth", "randomness", "size")

    def __init__(self, depth: int, size: int, randomness: str) -> None:
        live_batches.append(None)
        # Batched storages hold their level.
        finalize(self, live_batches.pop).atexit = False
        self.depth = depth
        self.size = size
        self.randomness = randomness


_levels: Final[ContextVar[tuple[Level, ...]]] = ContextVar("tallow_vmap", default=())
levels: Final = _levels.get
"""The calls of `vmap` that this thread, or this task of asyncio, is in."""
set_levels: Final = _levels.set


class Batch:
    """The `inner` of a batched storage, as one example has it; its `value` is a storage with the elements of all."""

    __slots__ = ("device", "dtype", "length", "level", "step")

    kind: Final = BATCHED

    def __init__(self, value: Storage, level: Level, length: int, step: int) -> None:
        inner = value.inner
        self.device: BackendDevice = inner.device
        self.dtype: DType = inner.dtype
        self.length = length
        self.level = level
        self.step = step
        """The stride between examples, in elements: the length of one, or 0 where all share the same elements."""

    def owns_memory(self) -> bool:
        """Return False: nothing is written over the elements of examples."""
        return False

    def __getattr__(self, name: str) -> Any:
        raise BatchingError(
            "vmap",
            "the elements of one example cannot be read on their own, as by item(), numpy(), if and masks as indexes;"
            " write tl.where(condition, x, y), or a loop over the examples and tl.stack",
        )


def batched(value: Storage, level: Level, step: int | None = None) -> Storage:
    """A storage that stands for the examples of a level; `value` has all of them, or, with step 0, one for all."""
    length = value.inner.length if step == 0 else value.inner.length // max(level.size, 1)
    storage = Storage._new(Batch(value, level, length, length if step is None else step))  # type: ignore[arg-type]
    storage.value = value
    return storage


def is_at(storage: Storage, level: Level) -> bool:
    """Return True if a storage stands for the examples of a level."""
    inner: Any = storage.inner
    return inner.kind == BATCHED and inner.level is level


def stacked(storage: Storage, layout: Layout, level: Level) -> tuple[Storage, Layout]:
    """The storage with all examples of a level, and what a layout shows of it: the examples are the first dim."""
    if not is_at(storage, level):
        return storage, stacked_layout(layout, level.size, 0)
    inner: Any = storage.inner
    return storage.value, stacked_layout(layout, level.size, inner.step)


# By the number of a layout, the number of examples, and their distance.
_layouts: Final[BoundedCache[tuple[int, int, int], Layout]] = BoundedCache(1 << 12)


def stacked_layout(layout: Layout, size: int, step: int) -> Layout:
    """Return the layout of all examples, from that of one."""
    key = layout.number, size, step
    stacked = _layouts.get(key)
    if stacked is None:
        stacked = Layout((size, *layout.shape), (step, *layout.strides), layout.start_offset)
        _layouts.put(key, stacked)
    return stacked


def expanded(storage: Storage, level: Level) -> Storage:
    """A storage as one that all examples of a level share."""
    return storage if is_at(storage, level) else batched(storage, level, 0)


def depth_of(storage: Any) -> int:
    """Return how deep a storage is wrapped: 2 n for a batch of the n-th nested `vmap`, and 1 more if it is recorded.

    A plain storage has 0, a recorded one outside of any batch 1.
    """
    kind = storage.inner.kind
    if kind == RECORDED:
        return depth_of(storage.value) + 1
    depth: int = 2 * storage.inner.level.depth if kind == BATCHED else 0
    return depth


def is_mixed(*storages: Any) -> bool:
    """Return True if a call of operands is not simply recorded: one is batched further inside, or recorded outside."""
    depths = [(depth_of(each), each.inner.kind) for each in storages if each is not None]
    innermost = max(depth for depth, _ in depths)
    return innermost % 2 == 0 or any(kind == RECORDED and depth < innermost for depth, kind in depths)


def detached(storage: Any) -> Storage:
    """A storage of the same elements of which nothing is recorded."""
    if storage.inner.kind == BATCHED:
        inner = storage.inner
        return batched(detached(storage.value), inner.level, inner.step) if storage.is_recorded else storage
    if storage.inner.kind >= 0:
        return storage  # type: ignore[no-any-return]
    plain = storage.value
    plain.is_shown = True
    return detached(plain)


def alias(storage: Storage) -> Storage:
    """Another object for the elements of a storage that is not recorded."""
    another = Storage._new(storage.inner)
    if another.inner.kind == BATCHED:
        another.value = storage.value
    return another


def levels_of(storage: Any) -> Iterator[Level]:
    """The levels whose examples a storage stands for, the innermost call of `vmap` first."""
    while (kind := storage.inner.kind) in (RECORDED, BATCHED):
        if kind == BATCHED:
            yield storage.inner.level
        storage = storage.value


def new_like(storage: Any, shape: Sequence[int], make: Callable[[Shape], Storage]) -> Storage:
    """A new storage of elements in a shape, for each of the examples that another storage stands for."""
    around = list(levels_of(storage))
    return batched_at(make(Shape((*[level.size for level in reversed(around)], *shape))), around)


def copy_per_example(tensor: Any, *others: Any) -> Any:
    """A copy of a tensor, which is another one for each example that any of the others stands for."""
    copy = tensor.copy()
    if not live_batches:
        return copy
    for other in others:
        if not {*levels_of(other._storage)} <= {*levels_of(copy._storage)}:
            # An op of both stands for the examples of both.
            number = other._new_full((), 0, tensor.dtype)
            copy = other._new_full((), 1, DType.BOOL).where(copy, number)
    return copy


def batched_at(value: Storage, around: Sequence[Level]) -> Storage:
    """A storage that stands for the examples of several levels, the innermost call of `vmap` first."""
    for level in reversed(around):
        value = batched(value, level)
    return value


def draw_examples(op: str, draw: Callable[[Shape], Storage], shape: Shape) -> Storage:
    """Random numbers in a shape: inside of `vmap` as its `randomness` says."""
    around = live_batches and levels()
    if not around:
        return draw(shape)
    if any(level.randomness == "error" for level in around):
        raise BatchingError(
            op,
            "vmap draws no random numbers by default; write vmap(f, randomness='different') for numbers of"
            " each example, or 'same' for one draw that all share",
        )
    own = [level for level in reversed(around) if level.randomness == "different"]
    return batched_at(draw(Shape((*[level.size for level in reversed(own)], *shape))), own)
