"""A device's primary context: the one that CUDA's own runtime uses, and so every library that shares memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...base.error import BackendUnavailable, InvalidArgument
from ..gpu_backend.driver import fork
from ..gpu_backend.driver.resource import Resource
from .result import check, cuda, start_driver

_UNCHANGED: Final = contextlib.nullcontext()
_ENABLED_BEFORE: Final = "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
_TOO_MANY: Final = "CUDA_ERROR_TOO_MANY_PEERS"


class Context(Resource):
    """The primary context of a device, kept for as long as anything that was made in it; two of a device are equal.

    Raises BackendUnavailable where there is no driver or no device, InvalidArgument for an ordinal that no device has.
    """

    def __init__(self, ordinal: int) -> None:
        start_driver()
        count = check("cuDeviceGetCount", cuda.cuDeviceGetCount())
        if count == 0:
            raise BackendUnavailable("cuda", "the CUDA driver finds no GPU; check that nvidia-smi lists one")
        if not 0 <= ordinal < count:
            raise InvalidArgument("CudaDevice", f"ordinal {ordinal} is out of range; use one from 0 to {count - 1}")
        self.ordinal = ordinal
        self.label = f"cuda:{ordinal}"
        self.device = check("cuDeviceGet", cuda.cuDeviceGet(ordinal), self.label)
        retained = cuda.cuDevicePrimaryCtxRetain(self.device)
        self._handle = check("cuDevicePrimaryCtxRetain", retained, self.label)
        self._address = int(self._handle)
        # The ordinals of devices whose memory this one reaches, or does not.
        self._peers: dict[int, bool] = {}
        self._own(_release, self.device, self.label)

    def attribute(self, name: str) -> int:
        """A number of the device, by the name that CUDA has for it after CU_DEVICE_ATTRIBUTE_."""
        attribute = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(attribute, self.device), self.label))

    @property
    def name(self) -> str:
        """What NVIDIA calls the device."""
        found: bytes = check("cuDeviceGetName", cuda.cuDeviceGetName(256, self.device), self.label)
        return found.partition(b"\0")[0].decode(errors="replace")

    def is_current(self) -> bool:
        """Whether this is the current context of the calling thread."""
        return int(check("cuCtxGetCurrent", cuda.cuCtxGetCurrent())) == self._address

    def activated(self) -> contextlib.AbstractContextManager[None]:
        """Make this the current context of the calling thread for the length of a `with` block.

        A thread that had none keeps it, as with the first call of CUDA's runtime.
        """
        if fork.lost:
            fork.require_own()
        previous = check("cuCtxGetCurrent", cuda.cuCtxGetCurrent())
        return _UNCHANGED if int(previous) == self._address else self._switched_from(previous)

    @contextlib.contextmanager
    def _switched_from(self, previous: Any) -> Iterator[None]:
        check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(self._handle), self.label)
        try:
            yield
        finally:
            if int(previous):
                check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(previous))

    def call(self, name: str, *arguments: Any, about: str = "") -> Any:
        """What a function of the driver gives in this context. The CudaError is about the device, or says more."""
        with self.activated():
            return check(name, getattr(cuda, name)(*arguments), about or self.label)

    def memory(self) -> tuple[int, int]:
        """The device's free and total memory at this moment, in bytes."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def holds(self, address: int) -> bool:
        """Whether an address is in memory of the device."""
        facts = []
        with self.activated():
            for name in ("MEMORY_TYPE", "DEVICE_ORDINAL"):
                attribute = getattr(cuda.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
                found = cuda.cuPointerGetAttribute(attribute, address)
                if found[0].name == "CUDA_ERROR_INVALID_VALUE":
                    return False
                facts.append(int(check("cuPointerGetAttribute", found, self.label)))
        return facts == [int(cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE), self.ordinal]

    def synchronize(self) -> None:
        """Wait until everything enqueued on the device is done; errors of kernels come up here."""
        self.call("cuCtxSynchronize")

    def let_reach(self, peer: Context) -> bool:
        """Whether the device reaches the memory of another directly, which it is allowed from now on."""
        reaches = self._peers.get(peer.ordinal)
        if reaches is None:
            label = f"from {self.label} to {peer.label}"
            found = cuda.cuDeviceCanAccessPeer(self.device, peer.device)
            reaches = bool(check("cuDeviceCanAccessPeer", found, label))
            if reaches:
                with self.activated():
                    enabled = cuda.cuCtxEnablePeerAccess(peer.handle, 0)
                reaches = enabled[0].name != _TOO_MANY
                if reaches and enabled[0].name != _ENABLED_BEFORE:
                    check("cuCtxEnablePeerAccess", enabled, label)
            self._peers[peer.ordinal] = reaches
        return reaches

    @property
    def handle(self) -> Any:
        """cuda-python's context; `Closed` after `close()`."""
        self.require_open()
        return self._handle

    def __eq__(self, other: object) -> bool:
        return self.ordinal == other.ordinal if isinstance(other, Context) else NotImplemented

    def __hash__(self) -> int:
        return hash((Context, self.ordinal))

    def __repr__(self) -> str:
        return f"<Context of {self.label}>"


def _release(device: Any, label: str) -> None:
    check("cuDevicePrimaryCtxRelease", cuda.cuDevicePrimaryCtxRelease(device), label)


def destroy_handle(destroy: Callable[[int], object], context: Context, handle: int) -> None:
    """Give what a library made for a device back, by the library's function for that."""
    with context.activated():
        destroy(handle)
