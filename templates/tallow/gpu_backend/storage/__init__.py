"""The storage of a GPU backend."""

from .backend_impl import GpuStorage
from .slice import Slice

__all__ = ["GpuStorage", "Slice"]
