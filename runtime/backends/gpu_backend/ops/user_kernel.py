"""Kernels that users write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....custom.user_kernel import Kernel

if TYPE_CHECKING:
    from ..device import GpuDevice


def load(device: GpuDevice, name: str, source: str, options: tuple[str, ...], signature: str | None) -> Kernel:
    """A kernel of a source, compiled and loaded."""
    return device.compile(name, source, options, signature=signature)
