"""What importing the package costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("hip", "cuda.bindings", "ml_dtypes", "safetensors", "scipy", "nvmath", "tempfile")


def test_the_import_loads_no_library_but_numpy() -> None:
    # What NumPy loads itself is not ours to avoid.
    code = (
        "import numpy, sys; before = set(sys.modules); import tallow;"
        f"print([name for name in {HEAVY!r} if name in sys.modules and name not in before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
