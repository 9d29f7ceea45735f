"""Errors, enums whose values are names, and bounded caches: what the spec's facts are built of."""

import sys

# The CPU's kernels rely on the memory layout of Python objects, and call Python with the GIL held.
if "t" in getattr(sys, "abiflags", "") or not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        f"{__name__.partition('.')[0]} does not support free-threaded builds of Python; use one with a GIL"
    )
