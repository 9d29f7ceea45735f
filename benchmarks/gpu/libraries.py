"""The libraries that are compared, on one device and in one stream, and the data that they share.

With one stream a single pair of events times all three, and data pass between them without waiting.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import tallow as tl
import torch
from torch.utils.dlpack import from_dlpack

from .results import ITEM_SIZES

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class NoDevice(Exception):
    """A library cannot open the device; the message says why."""


@dataclass(frozen=True)
class Libraries:
    """The opened libraries; `cupy` is its module, or None with the reason in `without_cupy`."""

    device: tl.Device
    torch_device: torch.device
    cupy: Any
    without_cupy: str

    def why_without_cupy(self, dtype: str) -> str:
        """Why CuPy cannot take part with a dtype; empty where it can."""
        return self.without_cupy or ("CuPy has no bf16" if dtype == "bf16" else "")

    def as_torch(self, result: Any) -> torch.Tensor:
        """A result of any of the libraries as a tensor of PyTorch on the same memory."""
        if isinstance(result, torch.Tensor):
            return result
        if not isinstance(result, tl.Tensor) and result.dtype == bool:
            result = result.view("uint8")
        tensor = from_dlpack(result)
        # PyTorch has few ops on u32, which is what positions are in tallow; they stay below 2**31 here.
        return tensor.view(torch.int32) if tensor.dtype == torch.uint32 else tensor

    def free(self) -> None:
        """Give back the memory that the peers keep for later, which the others may need."""
        torch.cuda.empty_cache()
        if self.cupy is not None:
            self.cupy.get_default_memory_pool().free_all_blocks()


@contextmanager
def open_libraries(label: str) -> Iterator[Libraries]:
    """Open the device that tallow calls `label` in all libraries, and let all of them work in tallow's stream.

    Raises NoDevice where tallow or PyTorch has no such device.
    """
    try:
        device = tl.Device.parse(label)
    except tl.TallowError as error:
        raise NoDevice(str(error)) from error
    if device.backend == "cpu" or not torch.cuda.is_available():
        raise NoDevice(f"no GPU for tallow's {device.label} and PyTorch {torch.__version__}; both must see one")
    handle = int(device.inner.driver.stream)  # type: ignore[union-attr]
    torch_device = torch.device("cuda", device.ordinal)
    torch.cuda.set_device(torch_device)
    # The f32 of all three is full f32: PyTorch would otherwise convolve in TF32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    cupy, without_cupy = _import_cupy()
    with ExitStack() as contexts:
        contexts.enter_context(torch.no_grad())
        contexts.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(handle, device=torch_device)))
        if cupy is not None:
            cupy.cuda.Device(device.ordinal).use()
            # What CuPy 14 has in place of ExternalStream destroys a stream that is not its own.
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                stream = cupy.cuda.ExternalStream(handle, device.ordinal)
            contexts.enter_context(stream)
        yield Libraries(device, torch_device, cupy, without_cupy)


def _import_cupy() -> tuple[Any, str]:
    try:
        return import_module("cupy"), ""
    except ImportError:
        return None, "CuPy is not installed"


class Operand:
    """A tensor of PyTorch and the same memory as a tensor of tallow and an array of CuPy."""

    def __init__(self, tensor: torch.Tensor, libraries: Libraries) -> None:
        self.torch = tensor
        self.tallow = tl.Tensor.from_dlpack(tensor)
        self._libraries = libraries

    @cached_property
    def cupy(self) -> Any:
        """The array of CuPy, created when it is first needed because CuPy lacks some dtypes."""
        return self._libraries.cupy.from_dlpack(self.torch)


class Data:
    """Operands of one dtype with about `elements` elements, created when they are first needed."""

    def __init__(self, libraries: Libraries, dtype: str, elements: int) -> None:
        self.libraries = libraries
        self.cupy = libraries.cupy
        self.dtype = dtype
        self.itemsize = ITEM_SIZES[dtype]
        self.elements = elements
        self.rows = 1 << (elements.bit_length() - 1) // 2
        self.columns = elements // self.rows
        self._generator = torch.Generator(libraries.torch_device).manual_seed(elements)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as PyTorch names it."""
        return DTYPES[self.dtype]

    def share(self, tensor: torch.Tensor) -> Operand:
        """An operand on the memory of a contiguous tensor."""
        return Operand(tensor, self.libraries)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal random numbers."""
        where = {"device": self.libraries.torch_device, "generator": self._generator}
        return torch.randn(shape, dtype=dtype or self.torch_dtype, **where)  # type: ignore[call-overload, no-any-return]

    def positions(self, below: int, *shape: int) -> Operand:
        """Random indexes, repeated ones among them: i64, which is the one index dtype that all libraries take."""
        return self.share(torch.randint(below, shape, device=self.libraries.torch_device, generator=self._generator))

    @cached_property
    def x(self) -> Operand:
        """A matrix of normal numbers."""
        return self.share(self.normal(self.rows, self.columns))

    @cached_property
    def y(self) -> Operand:
        """Another matrix of normal numbers."""
        return self.share(self.normal(self.rows, self.columns))

    @cached_property
    def output(self) -> Operand:
        """A matrix for what an op writes in place."""
        return self.share(torch.empty_like(self.x.torch))

    @cached_property
    def indices(self) -> Operand:
        """A position along its row for each element of the matrix."""
        return self.positions(self.columns, self.rows, self.columns)

    @cached_property
    def row_numbers(self) -> Operand:
        """The number of some row for each row of the matrix."""
        return self.positions(self.rows, self.rows)

    def image_shape(self, elements: int) -> tuple[int, int, int, int]:
        """(b, c, h, w) with this many elements: square images, at most 512 wide, of at most 64 channels."""
        bits = elements.bit_length() - 1
        side = 1 << min(9, bits // 3)
        channels = min(64, elements // side**2)
        return elements // (side**2 * channels), channels, side, side

    def images(self, elements: int) -> Operand:
        """So many numbers of the matrix as images."""
        shape = self.image_shape(elements)
        return self.share(self.x.torch.view(-1)[: math.prod(shape)].view(shape))
