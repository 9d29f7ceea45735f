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


def test_without_its_package_the_dummy_names_what_to_install():
    refusal, remaining = run("sys.modules['hip'] = None")
    assert refusal.startswith("rocm | ")
    assert "pip install 'hip-python[libraries]>=10'" in refusal
    assert remaining == "cpu 5.0"


def test_without_its_library_the_backend_says_what_is_missing(tmp_path):
    pytest.importorskip("hip")
    refusal, remaining = run("", ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert refusal.startswith("rocm | ")
    assert "ROCM_PATH" in refusal or "ROCm" in refusal or "GPU" in refusal
    assert remaining == "cpu 5.0"


def test_no_vendor_package_is_imported_with_tallow():
    # `cuda` alone is no package but what several share.
    code = "import sys, tallow; print({'hip', 'rocm', 'cuda.bindings', 'nvmath'} & set(sys.modules) or 'none')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "none"


def test_objects_by_other_names_are_imported_when_asked_for():
    pytest.importorskip("hip")
    from tallow import rocm_backend
    from tallow.rocm_backend import hip

    names = {"DeviceMemory": "HipBuffer", "Function": "HipKernel", "Module": "HipModule", "Stream": "HipStream"}
    names["Dim3"] = "Dim3"
    # Each in a process that has not asked for another one.
    code = f"""
import os, sys, tallow.rocm_backend as rocm
for name in {[*names]}:
    if os.fork() == 0:
        before = "hip" in sys.modules
        print(before, name, getattr(rocm, name), flush=True)
        os._exit(0)
    os.wait()
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    for line, (name, other) in zip(said.splitlines(), names.items(), strict=True):
        assert name in rocm_backend.__all__
        assert getattr(rocm_backend, name) is getattr(hip, other)
        assert line == f"False {name} {getattr(rocm_backend, name)}"


def test_objects_by_other_names_name_what_to_install_too():
    code = """
import sys
sys.modules["hip"] = None
from tallow.runtime.base.error import BackendUnavailable
from tallow import rocm_backend
print(issubclass(rocm_backend.RocmError, RuntimeError), rocm_backend.device_count(), hasattr(rocm_backend, "Srteam"))
try:
    rocm_backend.Stream
except BackendUnavailable as error:
    print(error)
"""
    facts, refusal = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert facts == "True 0 False"
    assert refusal.endswith("pip install 'hip-python[libraries]>=10' 'rocm-bindings-systems>=10'")
