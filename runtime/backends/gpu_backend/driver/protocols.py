"""Protocols of streams, drivers and memory for captures, events and graphs, whose modules are below those classes."""

from __future__ import annotations

from typing import Any, Protocol


class StreamHandle(Protocol):
    """A stream: see `stream.Stream`."""

    device: Any

    @property
    def handle(self) -> Any:
        """The binding's stream, or that of the capture of this thread."""
        ...

    @property
    def own_handle(self) -> Any:
        """The binding's stream itself."""
        ...

    @property
    def address(self) -> int:
        """The vendor's handle as a number."""
        ...


class CapturingDriver(Protocol):
    """A driver whose device captures: see `gpu_driver.GpuDriver`."""

    label: str

    @property
    def queue(self) -> StreamHandle:
        """The stream."""
        ...


class Region(Protocol):
    """Device memory, for as long as this is referenced: see `memory.allocator.Slice`."""

    @property
    def address(self) -> int:
        """The address of the first byte."""
        ...
