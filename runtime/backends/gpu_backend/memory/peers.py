"""Memory of the GPUs of a group that all of them write to and read from while kernels run."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from .....kernels.constants import BLOCK_SIZE, REDUCED_RANKS, REDUCED_WORDS
from ..driver.error import DriverError
from ..driver.grid import ceil_divide

if TYPE_CHECKING:
    from ....ranks.group import Group
    from ..driver.buffer import HostBuffer
    from ..driver.gpu_driver import GpuDriver

_WORD: Final = 8


class PeerBuffers(NamedTuple):
    """Addresses that the kernels of `collective` take: see there."""

    addresses: int
    turns: int
    stop: int


class Peers:
    """The buffers of groups whose ranks are on one host and reach each other's memory."""

    def __init__(self, driver: GpuDriver, join: Callable[[Group], object]) -> None:
        self._driver = driver
        self._join = join
        self._buffers: dict[str, PeerBuffers | None] = {}
        # Mapped memory of other ranks.
        self._opened: list[int] = []
        # 8 bytes that a lost rank sets, which kernels that wait look at.
        self._stop: HostBuffer | None = None

    def of(self, group: Group) -> PeerBuffers | None:
        """The buffers of a group, whose ranks join at their first call; None if they cannot reach each other's."""
        if group.name not in self._buffers:
            self._join(group)
        return self._buffers[group.name]

    def join(self, group: Group) -> None:
        """Check whether the ranks of a group reach each other's memory; all of them call this together."""
        self._buffers[group.name] = self._joined(group) if 1 < group.size <= REDUCED_RANKS else None

    def release(self) -> None:
        """End the kernels that wait for a rank."""
        if self._stop is not None:
            self._stop.array(np.uint64)[0] = 1

    def leave(self) -> None:
        """Unmap the memory of other ranks, none of which ends before: drivers crash where one does."""
        while self._opened:
            self._driver.close_shared(self._opened.pop())

    def _joined(self, group: Group) -> PeerBuffers | None:
        driver = self._driver
        words = 2 * group.size * REDUCED_WORDS
        turns = ceil_divide(REDUCED_WORDS, BLOCK_SIZE)
        try:
            own = driver.allocate_shared(words * _WORD)
            driver.zero(own, words * _WORD)
            driver.synchronize()
            offer = [_host(), driver.shared_handle(own).hex()]
        except DriverError:
            offer = None
        offers = group.exchange("peers", offer)
        addresses: list[int] = []
        if all(offer is not None and offer[0] == _host() for offer in offers):
            with contextlib.suppress(DriverError):
                for rank, (_, handle) in enumerate(offers):
                    addresses.append(own if rank == group.rank else self._open(bytes.fromhex(handle)))
        if not all(group.exchange("reached", len(addresses) == group.size)):
            return None
        if self._stop is None:
            self._stop = driver.host_buffer(_WORD)
            self._stop.array(np.uint64)[0] = 0
        table = driver.allocate(len(addresses) * _WORD)
        driver.copy_to_device(table, np.array(addresses, np.uint64))
        counted = driver.allocate(4 * turns)
        driver.zero(counted, 4 * turns)
        return PeerBuffers(table, counted, self._stop.address)

    def _open(self, handle: bytes) -> int:
        self._opened.append(self._driver.open_shared(handle))
        return self._opened[-1]


def _host() -> str:
    """An identifier of this host, which its processes share."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text(encoding="ascii") if boot.exists() else platform.node()
