"""Compilation at run time by hiprtc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from hip import hiprtc as _binding

from ....kernels.targets import TARGETS
from ...base.error import BackendUnavailable, CompilationFailed
from ..gpu_backend.driver.run_time_compiler import RunTimeCompiler
from ..gpu_backend.driver.target import find_target

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
    """ROCm's compiler. For a target that it does not know it compiles what runs on the whole family of the GPU."""

    prefix = "hiprtc"
    code = "Code"
    advice = "install a ROCm whose hiprtc and HIP belong together"
    targets = TARGETS["rocm"]

    def __init__(self, driver_version: Callable[[], str], library: Any = hiprtc, wave_size: int = 64) -> None:
        super().__init__(driver_version, library, wave_size)
        # The targets that it does not know, and the generic ones that it compiles for in their place.
        self._generic: dict[str, str] = {}

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
        return f"hiprtc {major}.{minor} of HIP {self.driver_version()}"

    def options(self, target: str) -> tuple[str, ...]:
        """The options of hiprtc for the target of a device."""
        options = "-O3", "-std=c++17", "-ffp-contract=off", self.define(target), f"--offload-arch={target}"
        # Before ROCm 6.4 an older format is the default, which has no generic targets.
        return (*options, "-mcode-object-version=6") if target.endswith("-generic") else options

    def compile(
        self, source: str, name: str, headers: Mapping[str, str], target: str, options: Sequence[str] = ()
    ) -> bytes:
        """The code object of a source: see `RunTimeCompiler.compile`."""
        try:
            return super().compile(source, name, headers, self._generic.get(target, target), options)
        except CompilationFailed:
            facts = find_target(self.targets, target)
            generic = None if facts is None else facts.generic
            if generic is None or target in self._generic or self._knows(target) or not self._knows(generic):
                raise
        self._generic[target] = generic
        return super().compile(source, name, headers, generic, options)

    def _knows(self, target: str) -> bool:
        """Whether it compiles for a target at all."""
        try:
            super().compile("", "empty", {}, target)
        except CompilationFailed:
            return False
        return True

    def destroy(self, program: Any) -> None:
        """Give a program back; hip-python wants a pointer to it."""
        super().destroy(program.createRef())
