"""Discrete Fourier transforms as hipFFT and cuFFT take them: a plan of the library for each size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from ....program.program import LibraryCall
from ....program.values import Address
from ..driver import capture
from ..driver.device import Device
from ..driver.error import LibraryError
from ..driver.resource import release_with
from ..driver.stream import Stream
from ..memory.allocator import Slice
from .library import StreamLibrary, Transform

if TYPE_CHECKING:
    from ..memory.allocator import CachingAllocator

# The letters by which both libraries name transforms of f32 and f64.
KINDS: Final = {
    DType.F32: {
        Transform.FORWARD: "C2C",
        Transform.INVERSE: "C2C",
        Transform.REAL: "R2C",
        Transform.INVERSE_REAL: "C2R",
    },
    DType.F64: {
        Transform.FORWARD: "Z2Z",
        Transform.INVERSE: "Z2Z",
        Transform.REAL: "D2Z",
        Transform.INVERSE_REAL: "Z2D",
    },
}
DIRECTIONS: Final = {Transform.FORWARD: (-1,), Transform.INVERSE: (1,)}
# A plan takes a millisecond to make, and device memory to keep.
_MAX_PLANS: Final = 64

Key = tuple[str, int, int]
"""The key of a plan: the kind, the points of a line and the number of lines."""


class FftLibrary(StreamLibrary, ABC):
    """Plans of a library: see `library.Transforms`."""

    def __init__(
        self, device: Device, queue: Stream, allocator: CachingAllocator, destroy: Callable[[Any], None]
    ) -> None:
        """A library on the stream of a driver, of which `destroy` gives a plan back."""
        super().__init__(device, queue)
        self._destroy = destroy
        self._allocator = allocator
        # With the bytes of workspace that each needs; the one that was used last is the last one.
        self._plans: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        release_with(self, _destroy_all, device, self._plans, destroy)

    def transform(
        self, dtype: DType, form: Transform, count: int, lines: int, source: Address, result: Address
    ) -> LibraryCall:  # fmt: skip
        """See `Transforms`. The first call of its kind and sizes makes a plan, which no capture can."""
        key = KINDS[dtype][form], count, lines
        return LibraryCall(self._transform, (key, DIRECTIONS.get(form, ()), source, result))

    def _transform(self, key: Key, direction: tuple[int, ...], source: int, result: int) -> None:
        with self._lock, self._device.activated():
            plan, nbytes = self._plan(key)
            if nbytes:
                # The next owner of the workspace works after this in the stream.
                workspace = Slice(self._allocator, nbytes)
                self._set_work_area(plan, workspace.address)
            set_stream = partial(self._set_stream, plan)
            capture.enqueue(self._queue, set_stream, self._execute, plan, key[0], source, result, *direction)

    def _plan(self, key: Key) -> tuple[Any, int]:
        planned = self._plans.get(key)
        if planned is None:
            while len(self._plans) >= _MAX_PLANS:
                _, (plan, _) = self._plans.popitem(last=False)
                self._destroy(plan)
            planned = plan, nbytes = self._make(*key)
            try:
                self._set_stream(plan, self._queue.own_handle)
                if not nbytes:
                    # Set even if it needs no memory.
                    self._set_work_area(plan, Slice(self._allocator, 0).address)
            except LibraryError:
                self._destroy(plan)
                raise
            self._plans[key] = planned
        self._plans.move_to_end(key)
        return planned

    def _make(self, kind: str, count: int, lines: int) -> tuple[Any, int]:
        plan = self._create()
        try:
            return plan, int(self._lay_out(plan, kind, count, lines))
        except LibraryError:
            self._destroy(plan)
            raise

    @abstractmethod
    def _create(self) -> Any:
        """A plan of nothing yet."""

    @abstractmethod
    def _lay_out(self, plan: Any, kind: str, count: int, lines: int) -> int:
        """Lay a plan out for contiguous lines: the bytes of workspace that it needs, for which it allocates nothing."""

    @abstractmethod
    def _set_stream(self, plan: Any, stream: Any) -> None:
        """Have a plan enqueue in the stream of this handle."""

    @abstractmethod
    def _set_work_area(self, plan: Any, address: int) -> None:
        """Have a plan use a workspace."""

    @abstractmethod
    def _execute(self, plan: Any, kind: str, *arguments: Any) -> None:
        """Enqueue the transforms of a plan: from an address to an address and, of complex numbers, in a direction."""


def _destroy_all(device: Device, plans: OrderedDict[Key, tuple[Any, int]], destroy: Callable[[Any], None]) -> None:
    with device.activated():
        while plans:
            destroy(plans.popitem()[1][0])
