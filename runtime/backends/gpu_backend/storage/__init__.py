"""The storage of a GPU backend."""

from .backend_impl import GpuStorage
from .quantized import QGpuStorage
from .slice import Slice

__all__ = ["GpuStorage", "QGpuStorage", "Slice"]
