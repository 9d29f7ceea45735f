"""Weights in blocks on backends of array libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtype import Array
from ..backend import HostBlocks

if TYPE_CHECKING:
    from .device import ArrayDevice


class QArrayStorage(HostBlocks):
    """Blocks in a NumPy array of their bytes, which NumPy decodes, and what it made of them on the device."""

    device: ArrayDevice

    @property
    def data(self) -> Array:
        """The bytes of all blocks, which nobody may write to."""
        view = self.bytes.view()
        view.flags.writeable = False
        return view
