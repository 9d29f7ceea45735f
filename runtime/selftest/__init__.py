"""Runs every family of kernels of a device and compares the results with NumPy's: `python -m tallow.selftest`."""

from .program import main

__all__ = ["main"]
