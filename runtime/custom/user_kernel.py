"""Kernels that users write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.error import InvalidArgument
from ..core import argument
from ..core.extensions import extensions
from ..core.layout import Layout

if TYPE_CHECKING:
    from ..core.protocols import DeviceLike

Size: TypeAlias = int | Sequence[int]
"""The blocks of a grid, or the threads of a block: a number, or up to three for x, y and z."""


class KernelOperand:
    """An argument for a pointer besides a backend's own storage and an address: a tensor, or a storage."""

    __slots__ = ()

    @abstractmethod
    def _kernel_operand(self) -> tuple[Any, Layout | None]:
        """The backend's storage, and the layout of the elements in it; None for all elements of a storage."""


class Kernel:
    """A kernel of a user's own, compiled for a device and loaded there; `Kernel.compile` makes it.

    A launch enqueues it, and waits for nothing. The CPU runs no kernels: `UnsupportedDevice` names what does.

    >>> source = '''
    ... extern "C" __global__ void twice(float* y, unsigned n) {
    ...     unsigned i = threadIdx.x;
    ...     if (i < n) y[i] *= 2;
    ... }'''
    >>> backends = {cell.backend for cell in tl.support() if cell.method == "compile" and cell.status == "supported"}
    >>> for device in tl.devices():
    ...     if device.backend in backends:
    ...         kernel = tl.Kernel.compile("twice", source, device, signature="float* y, unsigned n")
    ...         kernel.launch(1, 32, tl.ones(8, device=device), 8)
    """

    __slots__ = ("device", "name", "signature")

    name: str
    """The name of the function."""
    signature: str | None
    """The parameters, or None for one struct."""
    device: str
    """The label of its device."""

    def __init__(self) -> None:
        raise InvalidArgument("Kernel", "a kernel is compiled; call Kernel.compile(name, source, device)")

    @classmethod
    def compile(
        cls,
        name: str,
        source: str,
        device: DeviceLike | str,
        options: Sequence[str] = (),
        *,
        signature: str | None = None,
    ) -> Kernel:
        """Compile HIP C++ for a device, and find the kernel `name` in it, which is `extern "C"`.

        `signature` is the kernel's list of parameters in C, such as "float* y, const float* x, float a, unsigned n";
        names may be missing. Without one the kernel takes one struct by value, which the caller packs. It is compared
        with the kernel where the driver reports the sizes of parameters; elsewhere a wrong one goes unnoticed.

        The source may include the headers of tallow's own kernels ("types.hpp" has `tallow::f16` and its siblings);
        C's types without a header are those that every compiler knows, such as `unsigned`. `options` go to the compiler
        besides tallow's, and override those that they contradict. What was compiled is cached on disk, and a
        source is loaded once on a device. It is compiled again when a file that it may include has changed; where a
        macro names such a file, at each call.

        Raises CompilationFailed with the compiler's messages, in which lines are those of the source and the file is
        `name`.hip; InvalidArgument for a kernel that the source does not have or a signature that says nothing;
        BackendUnavailable where there is no compiler; UnsupportedDevice on a device that runs no kernels, as the CPU.
        """
        target = extensions.device_class._of(device)
        kernel: Kernel = target.compile(name, source, argument.texts("compile", "options", options), signature)
        return kernel

    @abstractmethod
    def launch(self, grid: Size, block: Size, *arguments: Any, shared_bytes: int = 0) -> None:
        """Enqueue `grid` blocks of `block` threads in the device's stream; a grid of no blocks launches nothing.

        A parameter that is a pointer takes a contiguous `Tensor`, whose first element it points to, a `Storage` or a
        backend's own, whose memory it points to, None, or an address as an integer, which nothing is known of. A
        pointer's type is the dtype of the elements; one that no dtype is, such as `unsigned short*`, takes elements of
        as many bytes, and `void*` takes any. Other parameters take numbers of Python or NumPy that the type holds.
        Without a signature the only argument is the struct's bytes.

        Each block has `shared_bytes` of memory besides what the kernel declares. Memory that is dropped after
        this call is not used again before the kernel has run, since the device does its work in order.

        Raises InvalidArgument for arguments that the signature does not take and for a launch that is beyond the
        limits of the device, DeviceMismatch for what is on another device, before anything is launched.
        """

    def __repr__(self) -> str:
        parameters = "one struct" if self.signature is None else self.signature
        return f"<Kernel {self.name}({parameters}) on {self.device}>"
