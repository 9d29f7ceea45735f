"""Helpers of the runtime's tests: hip-python's calls with their status checked."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hip import hip, hiprtc

TO_DEVICE = hip.hipMemcpyKind.hipMemcpyHostToDevice
TO_HOST = hip.hipMemcpyKind.hipMemcpyDeviceToHost


class CallError(Exception):
    def __init__(self, status: Any, log: str = "") -> None:
        super().__init__(f"{status.name} {log}")
        self.status = status
        self.name = status.name
        self.log = log


def check(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise CallError(status)
    return values[0] if len(values) == 1 else tuple(values)


def target() -> str:
    return str(check(hip.hipGetDeviceProperties(0)).gcnArchName)


def compile_source(source: str, *options: str) -> bytes:
    program = check(hiprtc.hiprtcCreateProgram(source.encode(), b"test.hip", 0, None, None))
    try:
        (status,) = hiprtc.hiprtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = bytearray(check(hiprtc.hiprtcGetProgramLogSize(program)))
        check(hiprtc.hiprtcGetProgramLog(program, log))
        if int(status) != 0:
            raise CallError(status, log.rstrip(b"\0").decode())
        code = bytearray(check(hiprtc.hiprtcGetCodeSize(program)))
        check(hiprtc.hiprtcGetCode(program, code))
        return bytes(code)
    finally:
        check(hiprtc.hiprtcDestroyProgram(program.createRef()))


class Extra:
    """A launch's arguments by address: what a caller keeps and passes as an integer."""

    def __init__(self, arguments: bytes) -> None:
        self.buffer = ctypes.create_string_buffer(arguments, len(arguments))
        self.size = ctypes.c_size_t(len(arguments))
        self.markers = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.buffer), 2, ctypes.addressof(self.size), 3)
        self.address = ctypes.addressof(self.markers)


class Module:
    def __init__(self, source: str, *options: str) -> None:
        self.handle = check(hip.hipModuleLoadData(compile_source(source, *options)))

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        check(hip.hipModuleUnload(self.handle))

    def function(self, name: str) -> Any:
        return check(hip.hipModuleGetFunction(self.handle, name.encode()))

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: bytes,
        shared: int = 0,
        stream: Any = None,
    ) -> None:
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        extra = Extra(arguments)
        check(hip.hipModuleLaunchKernel(self.function(name), *grid, *block, shared, stream, None, extra.address))


class Buffer:
    """Device memory that is filled from, and read back into, a NumPy array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.ascontiguousarray(values)
        self.pointer = check(hip.hipMalloc(self.values.nbytes))
        self.address = int(self.pointer)
        check(hip.hipMemcpy(self.pointer, self.values, self.values.nbytes, TO_DEVICE))

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        check(hip.hipFree(self.pointer))

    def read(self) -> np.ndarray:
        result = np.empty_like(self.values)
        check(hip.hipMemcpy(result, self.pointer, result.nbytes, TO_HOST))
        return result
