"""Devices and their properties."""

from __future__ import annotations

import functools
import sys
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from .....drivers import rocm as calls
from ....base.error import InvalidArgument
from ...gpu_backend.driver import fork
from ...gpu_backend.driver.device import Device, version_of
from ...gpu_backend.driver.launch import Dim3, LaunchLimits
from .error import check, hip, require_runtime


@dataclass(frozen=True, slots=True)
class hipUUID:  # noqa: N801 - HIP's own name
    """The 16 bytes by which a device is known across processes and across orders of enumeration."""

    bytes: bytes

    def __post_init__(self) -> None:
        if len(self.bytes) != 16:
            raise InvalidArgument("hipUUID", f"a UUID has 16 bytes, not {len(self.bytes)}")

    def __str__(self) -> str:
        """As rocminfo prints it: `GPU-` and 16 hexadecimal digits, or `GPU-XX` for a device that has no UUID."""
        # AMD's runtime stores the digits themselves, as ASCII, padded with zeros; other runtimes store raw bytes.
        text = self.bytes.rstrip(b"\0")
        if text and text.isalnum():
            return f"GPU-{text.decode('ascii')}"
        return f"GPU-{uuid.UUID(bytes=self.bytes)}"


class HipMemory(NamedTuple):
    """The memory of a device, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class HipDeviceProp:
    """HIP's properties of a device: sizes in bytes, clocks in kHz, the memory's bus in bits, registers of 32 bits.

    Limits are per block, per dim of a block (x, y, z), per dim of a grid, or per multiprocessor, which the blocks that
    are at work on one share.
    """

    name: str
    gcn_arch_name: str
    uuid: hipUUID
    pci: str
    wave_size: int
    multi_processor_count: int
    cooperative_launch: bool
    max_threads_per_block: int
    max_threads_dim: Dim3
    max_grid: Dim3
    shared_memory_per_block: int
    regs_per_block: int
    max_threads_per_multi_processor: int
    max_blocks_per_multi_processor: int
    shared_memory_per_multiprocessor: int
    regs_per_multiprocessor: int
    clock_rate: int
    total_memory: int
    l2_cache_size: int
    memory_clock: int
    memory_bus_width: int

    @property
    def limits(self) -> LaunchLimits:
        """The limits of launches."""
        return LaunchLimits(
            threads=self.max_threads_per_block,
            block=self.max_threads_dim,
            grid=self.max_grid,
            shared_bytes=self.shared_memory_per_block,
            along_dim=calls.MAX_THREADS_ALONG_DIM or sys.maxsize,
        )

    @property
    def target(self) -> str:
        """The target without its feature suffix: "gfx90a" of "gfx90a:sramecc+:xnack-"."""
        return self.gcn_arch_name.partition(":")[0]

    @property
    def features(self) -> tuple[str, ...]:
        """The target's features: ("sramecc+", "xnack-") of "gfx90a:sramecc+:xnack-"."""
        return tuple(self.gcn_arch_name.split(":")[1:])


class HipDevice(Device):
    """A device by its ordinal; two of the same ordinal are equal.

    Raises `BackendUnavailable` when there is no runtime or no GPU, `InvalidArgument` for an ordinal out of range.
    """

    __slots__ = ()

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(calls, ordinal)

    @property
    def properties(self) -> HipDeviceProp:
        """The device's properties, read from the runtime at the first use."""
        return _properties(self.ordinal)

    def set_current(self) -> None:
        """Make this the current device of the calling thread."""
        fork.require_own()
        calls.activate(self.ordinal, self.label)

    def memory(self) -> HipMemory:
        """The device's free and total memory at this moment, in bytes."""
        return HipMemory(*super().memory())

    def __repr__(self) -> str:
        return f"HipDevice({self.ordinal})"


def device_count() -> int:
    """The number of GPUs that the runtime shows to this process; `BackendUnavailable` when there is no runtime."""
    require_runtime()
    return int(calls.device_count() or 0)


def runtime_version() -> tuple[int, int, int]:
    """The HIP runtime's major, minor and patch version; `BackendUnavailable` when there is no runtime."""
    major, minor, patch = map(int, version_of(calls).split("."))
    return major, minor, patch


@functools.cache
def _properties(ordinal: int) -> HipDeviceProp:
    fork.require_own()
    properties = check("hipGetDeviceProperties", hip.hipGetDeviceProperties(ordinal), f"rocm:{ordinal}")
    threads_x, threads_y, threads_z = properties.maxThreadsDim
    grid_x, grid_y, grid_z = properties.maxGridSize
    return HipDeviceProp(
        name=properties.name,
        gcn_arch_name=properties.gcnArchName,
        uuid=hipUUID(bytes(properties.uuid.bytes)),
        pci=f"{properties.pciDomainID:04x}:{properties.pciBusID:02x}:{properties.pciDeviceID:02x}.0",
        wave_size=properties.warpSize,
        multi_processor_count=properties.multiProcessorCount,
        cooperative_launch=bool(properties.cooperativeLaunch),
        max_threads_per_block=properties.maxThreadsPerBlock,
        max_threads_dim=(threads_x, threads_y, threads_z),
        max_grid=(grid_x, grid_y, grid_z),
        shared_memory_per_block=properties.sharedMemPerBlock,
        regs_per_block=properties.regsPerBlock,
        max_threads_per_multi_processor=properties.maxThreadsPerMultiProcessor,
        max_blocks_per_multi_processor=properties.maxBlocksPerMultiProcessor,
        shared_memory_per_multiprocessor=properties.maxSharedMemoryPerMultiProcessor,
        regs_per_multiprocessor=properties.regsPerMultiprocessor,
        clock_rate=properties.clockRate,
        total_memory=properties.totalGlobalMem,
        l2_cache_size=properties.l2CacheSize,
        memory_clock=properties.memoryClockRate,
        memory_bus_width=properties.memoryBusWidth,
    )
