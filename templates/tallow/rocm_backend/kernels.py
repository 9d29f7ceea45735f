"""Compilation at run time by hiprtc."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from hip import hiprtc as _binding

from ..error import BackendUnavailable
from .hip import runtime_version
from ..gpu_backend.run_time_compiler import RunTimeCompiler

hiprtc: Final[Any] = _binding

_REQUIRED: Final = (
    "hiprtcCompileProgram",
    "hiprtcCreateProgram",
    "hiprtcDestroyProgram",
    "hiprtcGetCode",
    "hiprtcGetCodeSize",
    "hiprtcGetProgramLog",
    "hiprtcGetProgramLogSize",
    "hiprtcVersion",
)


class Hiprtc(RunTimeCompiler):
    """ROCm's compiler."""

    prefix = "hiprtc"
    code = "Code"
    advice = "install a ROCm whose hiprtc and HIP belong together"

    def __init__(self, library: Any = hiprtc) -> None:
        super().__init__(library)

    @cached_property
    def version(self) -> str:
        """The versions of hiprtc and of the HIP that it belongs to; BackendUnavailable where hiprtc is missing."""
        missing = [name for name in _REQUIRED if not self.library.has_symbol(name)]
        if missing:
            reason = (
                f"kernels cannot be compiled, since hiprtc does not load or lacks {', '.join(missing)}; install ROCm"
                " 6.0 or later with hiprtc, or a tallow with kernels that are compiled for this GPU"
            )
            raise BackendUnavailable("rocm", reason)
        major, minor = self.call("Version")
        return f"hiprtc {major}.{minor} of HIP {'.'.join(map(str, runtime_version()))}"

    def options(self, target: str) -> tuple[str, ...]:
        """What hiprtc is told, for the target of a device."""
        return "-O3", "-std=c++17", "-ffp-contract=off", f"--offload-arch={target}"

    def destroy(self, program: Any) -> None:
        """Give a program back; hip-python wants a pointer to it."""
        super().destroy(program.createRef())
