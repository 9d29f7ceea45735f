"""What facts stand on: errors, enums whose values are names, and bounded caches."""

import sys

# The kernels for the CPU know how objects of Python lie in memory, and call Python with its lock held.
if "t" in getattr(sys, "abiflags", "") or not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        f"{__name__.partition('.')[0]} does not support free-threaded builds of Python; use one with a GIL"
    )
