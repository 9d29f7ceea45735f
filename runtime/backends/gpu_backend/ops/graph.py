"""Graphs: calls on a device that are captured once and replayed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..execute.graph import GpuGraph

if TYPE_CHECKING:
    from ..device import GpuDevice


def create(device: GpuDevice) -> GpuGraph:
    """A graph that has captured nothing."""
    return GpuGraph(device)
