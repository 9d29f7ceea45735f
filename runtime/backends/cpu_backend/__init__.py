"""The CPU backend: NumPy, with bf16 and floats of 8 bits through ml_dtypes."""

from .device import CpuDevice
from .storage import CpuStorage, QCpuStorage

__all__ = ["CpuDevice", "CpuStorage", "QCpuStorage"]
