"""What is left of the rocm backend where its package or its library is missing: a clear refusal, and a working CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REPORT = """
import sys
{prelude}
import tallow
try:
    tallow.Device.rocm(0)
except tallow.BackendUnavailable as error:
    print(error.backend, "|", error.reason)
print(tallow.Device.default().label, float((tallow.Tensor([1.0, 2.0]) + 1.0).sum().item()))
"""


def run(prelude: str, **environment: str) -> list[str]:
    """What is printed where there is no GPU but AMD's."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT.format(prelude=prelude)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_without_its_package_the_dummy_names_the_extra():
    refusal, rest = run("sys.modules['hip'] = None")
    assert refusal.startswith("rocm | ")
    assert "pip install 'tallow[rocm]'" in refusal
    assert rest == "cpu 5.0"


def test_without_its_library_the_backend_says_what_is_missing(tmp_path):
    pytest.importorskip("hip")
    refusal, rest = run("", ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert refusal.startswith("rocm | ")
    assert "ROCM_PATH" in refusal or "ROCm" in refusal or "GPU" in refusal
    assert rest == "cpu 5.0"


def test_no_vendor_package_is_imported_with_tallow():
    # `cuda` alone is no package but what several share.
    code = "import sys, tallow; print({'hip', 'rocm', 'cuda.bindings', 'nvmath'} & set(sys.modules) or 'none')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "none"
