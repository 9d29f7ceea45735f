"""The CPU as a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

import numpy as np

from ....dtype import Array
from ....ggml_dtype import GgmlDType
from ...base.error import InvalidIndex
from ...core.layout import Layout
from ...doctor.finding import Finding
from ...helpers.host_memory import out_of_memory
from ...host import dlpack
from ...program.program import Program
from ..array_backend.device import ArrayDevice
from ..array_backend.imported import Imported
from ..backend import Part
from ..plan import Plan, SizedPlans
from . import blas, execute, host_libraries
from .host_device import HostDevice
from .kernels import HostKernels
from .onednn import Onednn
from .ops import memory
from .replay import Replay
from .storage import CpuStorage, QCpuStorage

if TYPE_CHECKING:
    from ...ranks.group import Group
    from ..profiler import Listener
    from .profiler import CpuProfiler

Result = TypeVar("Result")


@final
class CpuDevice(ArrayDevice, HostDevice):
    """The CPU: there is one, and it does its work at once."""

    backend: ClassVar = "cpu"
    modules: ClassVar = ("numpy", "ml_dtypes", "scipy")
    library: ClassVar = Imported("cpu", "....cpu_backend.library", __package__)
    storage_class: ClassVar = CpuStorage
    blocks_class: ClassVar = QCpuStorage
    prompt_piece: ClassVar = 256

    @classmethod
    def diagnose(cls) -> Iterator[Finding]:
        yield from super().diagnose()
        yield from blas.diagnose()
        yield from host_libraries.diagnose()
        yield from Onednn.diagnose()

    @cached_property
    def kernels(self) -> HostKernels | None:
        """The kernels for this machine; None where NumPy does everything."""
        return HostKernels.open()

    @property
    def onednn(self) -> Onednn | None:
        """oneDNN, where its library is installed."""
        return Onednn.open()

    def profiler(self, label: str, listener: Listener) -> CpuProfiler:
        from .profiler import CpuProfiler

        return CpuProfiler(self, label, listener)

    def replay(self) -> Replay:
        return Replay(self)

    @classmethod
    def translated(cls, error: Exception) -> Exception:
        return out_of_memory(error) if isinstance(error, MemoryError) else error

    def compiled(self, program: Program, mark: Callable[[], None] | None = None) -> Plan:
        return execute.compiled(self, program, mark)

    def sized(self, program: Program) -> SizedPlans:
        return execute.sized(self, program) or super().sized(program)

    @property
    def fused_op(self) -> Sequence[Any]:
        from ..array_backend.ops.fused import fused
        from .ops.fused import HostOps

        return fused, HostOps(self.kernels)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.kernels is not None:
            # Kernels draw random numbers. What else has no program computes nothing of which NumPy warns.
            return super().call(function, *arguments)
        with np.errstate(all="ignore"):
            return super().call(function, *arguments)

    def run_async(self, group: Group, call: Callable[[], Result]) -> Callable[[], Result]:
        return group.host.run_async(call)

    def note(self, op: str, indexes: Array, is_wrong: Array, size: int) -> None:
        """Raise InvalidIndex for the first of the indexes that is wrong, if any is."""
        if is_wrong.any():
            raise InvalidIndex(op, int(indexes[is_wrong][0]), size)

    def storage(self, array: Array) -> CpuStorage:
        """A storage with a copy of a NumPy array's elements."""
        with self.translating():
            return memory.from_array(self, array)

    def storage_owned(self, array: Array) -> CpuStorage:
        """Return a storage of the memory of a NumPy array that has no other owner."""
        return memory.from_owned_array(self, array)

    def load(self, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> list[CpuStorage]:
        with self.translating():
            return memory.load(self, parts, progress)

    def blocks_in(self, storage: Any, dtype: GgmlDType) -> QCpuStorage:
        return self.blocks_class(self, dtype, storage.data)

    def from_dlpack(self, source: Any) -> tuple[CpuStorage, Layout]:
        with self.translating():
            array = dlpack.imported(source)
            return memory.from_owned_array(self, array), Layout.contiguous(array.shape)
