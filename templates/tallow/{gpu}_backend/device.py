"""A GPU as a device. The vendor's package is imported when the first device is opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..backend import BackendDevice
from ..cpu_backend import CpuDevice
from ..dtype import Array, DType
from ..error import BackendUnavailable
from ..kernels.arguments import RANDOM_NORMAL, RANDOM_UNIFORM
from ..layout import Layout
from ..random import uniform_range
from ..shape import Shape
from .names import BACKEND, EXTRA
from .storage import GpuStorage, Slice
from .utils import blocks_for

if TYPE_CHECKING:
    from .libraries import Blas, Images
    from .runtime import Runtime

# The packs of 16 bytes that a thread draws, which share what depends on the seed and the parameters alone; more of them
# where there are still enough threads to keep a GPU busy.
_DRAWN_PACKS: Final = 2
_MOST_DRAWN_PACKS: Final = 4
_LEAST_SHARED_BYTES: Final = 1 << 24


class GpuDevice(BackendDevice):
    """A GPU with one stream: what is enqueued is done in order, and only reading waits for it.

    All objects of one ordinal share the stream, the memory, the random stream and what was loaded. Making the first
    one raises BackendUnavailable where packages, libraries or devices are missing, InvalidArgument for an ordinal that
    no device has.
    """

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        runtime = _runtime(ordinal)
        self._runtime = runtime
        self.driver = runtime.driver
        self.allocator = runtime.allocator
        self.kernels = runtime.kernels
        self.index_errors = runtime.index_errors

    @classmethod
    def is_available(cls) -> bool:
        return is_available()

    def __reduce__(self) -> tuple[type[GpuDevice], tuple[int]]:
        return type(self), (self.ordinal,)

    def set_seed(self, seed: int) -> None:
        self._runtime.random.set_seed(seed)

    def get_current_seed(self) -> int:
        return self._runtime.random.seed

    def rand_uniform_f64(self, lo: float, up: float, shape: Shape, dtype: DType) -> GpuStorage:
        lowest, highest = uniform_range(lo, up, dtype)
        return self._draw("rand_uniform", RANDOM_UNIFORM, (lo, up - lo, lowest, highest), shape, dtype)

    def rand_normal_f64(self, mean: float, std: float, shape: Shape, dtype: DType) -> GpuStorage:
        return self._draw("rand_normal", RANDOM_NORMAL, (mean, std), shape, dtype)

    def _draw(
        self, kernel: str, packer: Struct, parameters: tuple[float, ...], shape: Shape, dtype: DType
    ) -> GpuStorage:
        count = shape.elem_count
        result = self.empty(dtype, count)
        packs = _MOST_DRAWN_PACKS if result.memory.nbytes >= _LEAST_SHARED_BYTES else _DRAWN_PACKS
        reserved = self._runtime.random.reserve(count, dtype)
        try:
            packed = packer.pack(result.memory.address, count, *reserved, *parameters)
            self.kernels.launch("random", f"{kernel}_{dtype.value}", blocks_for(count, dtype.itemsize, packs), packed)
        except BaseException:
            self._runtime.random.cancel(reserved, count, dtype)
            raise
        return result

    def zeros(self, shape: Shape, dtype: DType) -> GpuStorage:
        result = self.empty(dtype, shape.elem_count)
        self.driver.zero(result.memory.address, result.memory.nbytes)
        return result

    def alloc_uninit(self, shape: Shape, dtype: DType) -> GpuStorage:
        return self.empty(dtype, shape.elem_count)

    def storage_from_slice(self, data: Sequence[float], dtype: DType) -> GpuStorage:
        return self._upload(CpuDevice().storage_from_slice(data, dtype).data, dtype)

    def storage(self, array: Array) -> GpuStorage:
        dtype = DType.from_numpy(array.dtype)
        return self._upload(np.ascontiguousarray(array, dtype.numpy), dtype)

    def storage_owned(self, array: Array) -> GpuStorage:
        return self.storage(array)

    def _upload(self, array: Array, dtype: DType) -> GpuStorage:
        result = self.empty(dtype, array.size)
        self.driver.copy_to_device(result.memory.address, array)
        return result

    def from_dlpack(self, source: Any) -> tuple[GpuStorage, Layout]:
        from .dlpack import take

        return take(self, source)

    def synchronize(self) -> None:
        self.driver.synchronize()
        self.index_errors.check()

    @property
    def blas(self) -> Blas | None:
        """The library of matrix products, where it is there."""
        return self._runtime.libraries()[0]

    @property
    def images(self) -> Images | None:
        """The library of convolution and pooling, where it is there."""
        return self._runtime.libraries()[1]

    def allocate(self, nbytes: int) -> Slice:
        """Memory, not initialised, for as long as somebody holds it. Raises OutOfMemory."""
        return Slice(self.allocator, nbytes)

    def empty(self, dtype: DType, count: int) -> GpuStorage:
        """A storage of `count` elements, not initialised. Raises OutOfMemory."""
        return GpuStorage(self, dtype, count, Slice(self.allocator, count * dtype.itemsize))

    def read(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory, then raise what was recorded of this thread (InvalidIndex)."""
        self.driver.copy_to_host(array, address)
        self.index_errors.check()


def device_count() -> int:
    """How many devices there are; 0 where packages, the runtime or devices are missing."""
    try:
        from .driver import device_count as count
    except ImportError:
        return 0
    return count()


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def runtime_version() -> str:
    """The version of the vendor's runtime; BackendUnavailable where there is none."""
    with _packages():
        from .driver import runtime_version as version
    return version()


def _runtime(ordinal: int) -> Runtime:
    with _packages():
        from .runtime import runtime_of
    return runtime_of(ordinal)


@contextmanager
def _packages() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise BackendUnavailable(BACKEND, f"{error}; pip install 'tallow[{EXTRA}]'") from error
