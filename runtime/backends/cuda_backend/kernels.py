"""Compilation at run time by NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from cuda.bindings import nvrtc as _binding

from ....kernels.targets import TARGETS
from ...base.error import BackendUnavailable
from ..gpu_backend.driver.run_time_compiler import RunTimeCompiler

nvrtc: Final[Any] = _binding


class Nvrtc(RunTimeCompiler):
    """CUDA's compiler. It makes a cubin for one target, so that no compiler of the driver is asked."""

    prefix = "nvrtc"
    code = "CUBIN"
    advice = "install an NVRTC of the CUDA that cuda-python is for"

    targets = TARGETS["cuda"]

    def __init__(self, driver_version: Callable[[], str], library: Any = nvrtc, wave_size: int = 32) -> None:
        super().__init__(driver_version, library, wave_size)

    @cached_property
    def version(self) -> str:
        """The version of NVRTC; BackendUnavailable where it is missing."""
        try:
            major, minor = self.call("Version")
        # What cuda-python raises where the library, or a function of it, is not there.
        except RuntimeError as error:
            reason = (
                f"kernels cannot be compiled, since NVRTC does not load ({error}); pip install"
                " 'cuda-toolkit[nvrtc]==13.*', or install a tallow with kernels that are compiled for this GPU"
            )
            raise BackendUnavailable("cuda", reason) from error
        return f"NVRTC {major}.{minor}"

    @property
    def package_options(self) -> tuple[str, ...]:
        """Without what NVRTC declares by itself for textures and launches of kernels by kernels, it begins sooner."""
        return ("--minimal",) if int(self.version.split()[1].partition(".")[0]) >= 13 else ()

    def options(self, target: str) -> tuple[str, ...]:
        """The options of NVRTC for the target of a device."""
        return "--std=c++17", "--fmad=false", self.define(target), f"--gpu-architecture={target}"
