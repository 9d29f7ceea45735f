"""A GPU as a device. A backend derives its own from it, which knows how to open the vendor's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from ....dtype import Array, DType
from ....ggml_dtype import GgmlDType
from ...base.error import BackendUnavailable
from ...core.layout import Layout
from ...helpers.installed import pip_install
from ...host.array import normalised
from ...program.builder import Facts
from ..backend import BackendStorage, Part
from .driver import capture, fork, slow_path
from .driver.grid import MAX_ROWS_OF_X
from .execute.program import plan_of, sized_plans_of
from .gpu_base import GpuBase, Opened
from .memory.storage import GpuStorage, QGpuStorage

if TYPE_CHECKING:
    from ...core.conv import ParamsConvolution
    from ...custom.user_kernel import Kernel
    from ...doctor.finding import Finding
    from ...ranks.group import Group
    from ..profiler import Listener
    from .driver.gpu_driver import GpuDriver
    from .driver.loader import AsyncLoader
    from .execute.profiler import GpuProfiler
    from .memory.allocator import CachingAllocator

Result = TypeVar("Result")


class GpuDevice(GpuBase):
    """A GPU with one stream: what is enqueued is done in order, and only reading waits for it.

    All objects of one ordinal share the stream, the memory, the random stream and what was loaded. Making the first
    one raises BackendUnavailable where packages, libraries or devices are missing, InvalidArgument for an ordinal that
    no device has.
    """

    has_fused_kernels = True
    fused_rows = MAX_ROWS_OF_X
    storage_class: ClassVar[type[GpuStorage]]
    blocks_class: ClassVar[type[QGpuStorage]]

    @classmethod
    def open(cls, ordinal: int) -> Self:
        fork.require_own()
        return super().open(ordinal)

    @classmethod
    def diagnose(cls) -> Iterator[Finding]:
        from .examination import diagnose

        return diagnose(cls)

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        from .runtime import runtime_of

        runtime = runtime_of(type(self), ordinal)
        self._runtime = runtime
        self.plans = runtime.plans
        self.driver = driver = runtime.driver
        self.allocator = runtime.allocator
        self.kernels = runtime.kernels
        self.index_errors = runtime.index_errors
        self.counters = runtime.counters
        self.random = runtime.random
        self.facts = Facts(
            driver.label,
            driver.multiprocessors,
            driver.facts.wave_size,
            self.counters,
            self.kernels.has,
            driver.concurrent_blocks,
            driver.facts.shared_bytes,
        )
        self.announce()

    @property
    def description(self) -> str:
        driver = self.driver
        size = f"{driver.multiprocessors} multiprocessors, {driver.memory_info()[1] / (1 << 30):.0f} GiB"
        return f"{driver.name} ({driver.target}), waves of {driver.facts.wave_size}, {size}"

    def __reduce__(self) -> tuple[type[GpuDevice], tuple[int]]:
        return type(self), (self.ordinal,)

    def storage(self, array: Array) -> GpuStorage:
        """A storage with a copy of a NumPy array's elements. Raises OutOfMemory."""
        dtype = DType.from_numpy(array.dtype)
        return self.upload(normalised(np.ascontiguousarray(array, dtype.numpy)), dtype)

    def upload(self, array: Array, dtype: DType) -> GpuStorage:
        """A storage with a copy of a contiguous array. Raises OutOfMemory."""
        result = self.empty(dtype, array.size)
        self.driver.copy_to_device(result.memory.address, array)
        return result

    @property
    def loader(self) -> AsyncLoader:
        """The AsyncLoader of all objects of the ordinal, which streams host memory to the device.

        It keeps its pinned memory for the next time; `loader.close()` gives that back, and the next use opens another.
        """
        return self._runtime.loader

    @property
    def is_capturing(self) -> bool:
        return slow_path.required and capture.of(self.driver) is not None

    def refuse_in_capture(self, what: str, advice: str) -> None:
        if slow_path.required:
            capture.refuse(self.driver, what, advice)

    def load(self, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> list[GpuStorage]:
        # When this returns, all reads are done, and work that is enqueued from now on sees the elements.
        from .driver.loader import Upload

        self.refuse_in_capture("loading", "load the tensors before the capture")
        storages = [self.empty(part.dtype, part.length) for part in parts]
        uploads = [
            Upload(storage.memory.address, part.nbytes, part.read_into)
            for storage, part in zip(storages, parts, strict=True)
        ]
        self.loader.upload_all(uploads, self.driver.queue, progress)
        return storages

    def blocks_in(self, storage: Any, dtype: GgmlDType) -> QGpuStorage:
        length = storage.length // dtype.type_size * dtype.block_size
        return self.blocks_class(self, dtype, length, storage.memory)

    plan_of = plan_of
    sized_plans_of = sized_plans_of

    def profiler(self, label: str, listener: Listener) -> GpuProfiler:
        from .execute.profiler import GpuProfiler

        return GpuProfiler(self, label, listener)

    @property
    def fused_op(self) -> Sequence[Any]:
        from .ops.fused import fused

        return (fused,)

    def has_epilogue(self, dtype: DType, params: ParamsConvolution, activation: str | None, has_residual: bool) -> bool:
        from .ops.conv_epilogue import is_one_kernel

        opened = [getattr(self, name) for name, kind in self.library_classes().items() if hasattr(kind, "convolution")]
        library = next((it for it in opened if it is not None), None)
        return is_one_kernel(library, dtype, params, activation, has_residual)

    def copy_of(self, storage: BackendStorage) -> GpuStorage | None:
        if not isinstance(storage, self.storage_class):
            return None
        result = self.empty(storage.dtype, storage.length)
        storage.device.driver.send(storage.memory.address, self.driver, result.memory.address, result.memory.nbytes)
        return result

    def from_dlpack(self, source: Any) -> tuple[GpuStorage, Layout]:
        from .dlpack import take

        return take(self, source)

    def export(self, storage: Any, layout: Layout, stream: int | None, *, copy: bool) -> object:
        from .dlpack import export

        return export(storage, layout, stream, copy)

    @property
    def stream(self) -> int:
        """The vendor's handle of the stream in which the device does its work, for libraries that share memory.

        In a thread that captures a graph it is that of the capture.
        """
        return self.driver.stream

    def compile(self, name: str, source: str, options: Sequence[str] = (), *, signature: str | None = None) -> Kernel:
        """Kernel `name` of a source: see `Kernel.compile`."""
        return self.get_or_load(name, name, source, options, signature=signature)

    def get_or_load(
        self, name: str, module: str, source: str, options: Sequence[str] = (), *, signature: str | None = None
    ) -> Kernel:
        """Kernel `name` of a module, whose source is compiled and loaded at the first call: see `Kernel.compile`.

        Later calls with the same arguments take no longer than a look-up, unless the source includes files other than
        tallow's headers: each call looks whether they have changed. Messages call the source `module`.hip.
        """
        return self._runtime.user_kernels.get(self, name, module, source, options, signature)

    def run_async(self, group: Group, call: Callable[[], Result]) -> Callable[[], Result]:
        from .libraries.collectives import Collectives

        kinds = self.library_classes().items()
        library = next((getattr(self, name) for name, kind in kinds if issubclass(kind, Collectives)), None)
        return super().run_async(group, call) if library is None else library.run_async(call)

    def library(self, open_library: Callable[[GpuDriver, CachingAllocator], Opened | None]) -> Opened | None:
        return self._runtime.library(open_library)

    def empty(self, dtype: DType, count: int) -> GpuStorage:
        """A storage of `count` elements, not initialised. Raises OutOfMemory."""
        return self.storage_class(self, dtype, count, self.slice_class(self.allocator, count * dtype.itemsize))


@contextmanager
def packages(backend: str, requires: Sequence[str]) -> Iterator[None]:
    """Raise BackendUnavailable, which names what to install, where an import inside of the block fails."""
    try:
        yield
    except ImportError as error:
        raise BackendUnavailable(backend, f"{error}; {pip_install(requires)}") from error
