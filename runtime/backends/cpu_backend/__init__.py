"""The CPU backend: NumPy, with bf16 and f8e4m3 through ml_dtypes."""

from .device import CpuDevice
from .storage import CpuStorage, QCpuStorage

__all__ = ["CpuDevice", "CpuStorage", "QCpuStorage"]
