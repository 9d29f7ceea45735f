"""Compilation at run time by hiprtc."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from hip import hiprtc as _binding

from ..error import BackendUnavailable
from .error import CompilationFailed, LibraryError
from .hip import runtime_version

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


def compile_options(target: str) -> tuple[str, ...]:
    """What the compiler is told. The kernels' arithmetic is exact where nothing is contracted behind their back."""
    return "-O3", "-std=c++17", "-ffp-contract=off", f"--offload-arch={target}"


@cache
def compiler_version() -> str:
    """The versions of hiprtc and of the HIP that it belongs to; BackendUnavailable where hiprtc is missing."""
    missing = [name for name in _REQUIRED if not hiprtc.has_symbol(name)]
    if missing:
        reason = (
            f"kernels cannot be compiled, since hiprtc does not load or lacks {', '.join(missing)}; install ROCm 6.0"
            " or later with hiprtc, or a tallow with kernels that are compiled for this GPU"
        )
        raise BackendUnavailable("rocm", reason)
    major, minor = _check("hiprtcVersion", hiprtc.hiprtcVersion())
    return f"hiprtc {major}.{minor} of HIP {'.'.join(map(str, runtime_version()))}"


def compile_code(source: str, name: str, headers: dict[str, str], target: str) -> bytes:
    """The code object of a source; `headers` are texts by the name that it includes, `name` is how messages call it.

    Raises CompilationFailed with the compiler's messages, BackendUnavailable where hiprtc is missing.
    """
    version = compiler_version()
    texts = [text.encode() for text in headers.values()]
    names = [header.encode() for header in headers]
    created = hiprtc.hiprtcCreateProgram(source.encode(), f"{name}.hip".encode(), len(headers), texts, names)
    program = _check("hiprtcCreateProgram", created)
    try:
        options = [option.encode() for option in compile_options(target)]
        (status,) = hiprtc.hiprtcCompileProgram(program, len(options), options)
        if status:
            raise CompilationFailed(name, target, version, _text(program) or status.name)
        code = bytearray(_check("hiprtcGetCodeSize", hiprtc.hiprtcGetCodeSize(program)))
        _check("hiprtcGetCode", hiprtc.hiprtcGetCode(program, code))
        return bytes(code)
    finally:
        hiprtc.hiprtcDestroyProgram(program.createRef())


def _text(program: Any) -> str:
    log = bytearray(_check("hiprtcGetProgramLogSize", hiprtc.hiprtcGetProgramLogSize(program)))
    if log:
        _check("hiprtcGetProgramLog", hiprtc.hiprtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _check(call: str, result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status:
        raise LibraryError(call, status.name, "install a ROCm whose hiprtc and HIP belong together")
    return values[0] if len(values) == 1 else tuple(values)
