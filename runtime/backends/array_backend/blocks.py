"""Block-quantized weights on backends of array libraries."""

from __future__ import annotations

from ....dtype import Array
from ..backend import HostBlocks
from .library_device import LibraryDevice


class QArrayStorage(HostBlocks):
    """Blocks in a NumPy array of their bytes, which NumPy decodes, and the result on the device."""

    device: LibraryDevice

    @property
    def data(self) -> Array:
        """The bytes of all blocks, read-only."""
        view = self.bytes.view()
        view.flags.writeable = False
        return view
