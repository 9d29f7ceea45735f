"""What is left of the cuda backend where its package, or NVIDIA's driver, is missing: a clear refusal."""

from __future__ import annotations

import pytest

REPORT = """
import sys
{prelude}
import tallow
try:
    tallow.Device.cuda(0)
except tallow.BackendUnavailable as error:
    print(error.backend, "|", error.reason)
from tallow.cuda_backend import device_count, is_available, runtime_version
try:
    runtime_version()
except tallow.BackendUnavailable as error:
    print(error.reason)
print(device_count(), is_available(), float((tallow.Tensor([1.0, 2.0]) + 1.0).sum().item()))
"""


def test_without_its_package_the_dummy_names_what_to_install(run_python):
    refusal, other, remaining = run_python(REPORT.format(prelude="sys.modules['cuda'] = None")).splitlines()
    assert refusal.startswith("cuda | its packages are not installed")
    assert "pip install 'cuda-python>=13,<14'" in refusal
    assert "pip install 'cuda-python>=13,<14'" in other
    assert remaining == "0 False 5.0"


# Of cuda-python before 13.5, and since.
@pytest.mark.parametrize("message", ["Failed to dlopen libcuda.so.1", '"cuda" is an NVIDIA driver library'])
def test_without_the_driver_the_backend_says_what_to_install(run_python, message):
    pytest.importorskip("cuda.bindings")
    prelude = f"""
from cuda.bindings import driver
class Missing:
    def __getattr__(self, name):
        if name in ("CUstream", "CUresult"):
            return getattr(driver, name)
        def call(*arguments):
            raise RuntimeError({message!r})
        return call
sys.modules["cuda.bindings"].driver = Missing()
"""
    refusal, other, remaining = run_python(REPORT.format(prelude=prelude)).splitlines()
    assert refusal.startswith("cuda | the CUDA driver does not load (")
    assert message in refusal
    assert "install NVIDIA's driver" in refusal
    assert other == refusal.removeprefix("cuda | ")
    assert remaining == "0 False 5.0"
