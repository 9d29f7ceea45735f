"""Tensors in GGUF files, read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

import numpy as np

from ..backend import Part
from ..content import Content, Source, opened
from ..device import Device
from ..dtype import DType
from ..error import MissingTensor
from ..layout import Layout
from ..shape import Shape
from ..storage import Storage
from ..tensor import Tensor
from ..tensor.base import device_of
from ..ggml_dtype import GgmlDType
from .header import Entry, read_header
from .metadata import Value

PLAIN: Final = {GgmlDType.F32: DType.F32, GgmlDType.F16: DType.F16, GgmlDType.BF16: DType.BF16}
"""The dtypes of tensors that are not stored in blocks."""
# So many are decoded at once.
_BLOCKS: Final = 1 << 12


def open_gguf(path: Source, device: Device | str | None = None) -> GgufFile:
    """Read the metadata of a GGUF file, and where its tensors are, which then are read one by one to a device.

    `path` may also be the bytes of a file. Versions 2 and 3 are read.

    `FileError` where the file cannot be read, `MissingFile` where there is none; `InvalidArgument`, which names the key
    or the tensor, if it is no such file, was cut short, or says what cannot be: a type that tallow lacks, a dim of 0 or
    of a part of a block, tensors outside of the file, misaligned or in each other, more keys, tensors or elements of an
    array than there are bytes for.
    """
    return GgufFile("open_gguf", path, device)


class GgufTensor:
    """A tensor in a file, of which only the header has been read."""

    __slots__ = ("_content", "_device", "_entry")

    def __init__(self, entry: Entry, device: Device, content: Content) -> None:
        self._entry = entry
        self._device = device
        self._content = content

    @property
    def dtype(self) -> GgmlDType:
        """How the elements are stored."""
        return self._entry.dtype

    @property
    def shape(self) -> Shape:
        """The sizes of the dims, the last of which is dense."""
        return Shape(self._entry.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self._entry.nbytes

    def load(self) -> Tensor:
        """Read the tensor to the device, through the memory of the loader alone. Blocks are decoded to f32."""
        self._content.require_open()
        dtype = PLAIN.get(self.dtype)
        fill = self._decode_into if dtype is None else self._read_into
        (storage,) = self._device.inner.load([Part(dtype or DType.F32, self.shape.elem_count, fill)])
        return Tensor._new(Storage(storage), Layout.contiguous(self.shape))

    def _read_into(self, target: memoryview, begin: int) -> None:
        self._content.read_into(target, self._entry.begin + begin)

    def _decode_into(self, target: memoryview, begin: int) -> None:
        """Fill `target` with the bytes from `begin` on of the weights, some blocks at a time."""
        from ..cpu_backend.ops.quantized import decode

        size = self.dtype.block_size * DType.F32.itemsize
        while target:
            first, end = begin // size, -(-(begin + target.nbytes) // size)
            blocks = np.empty(min(end - first, _BLOCKS) * self.dtype.type_size, np.uint8)
            self._read_into(blocks.data, first * self.dtype.type_size)
            decoded = decode(blocks, self.dtype).view(np.uint8)[begin - first * size :][: target.nbytes]
            np.copyto(np.frombuffer(target[: decoded.size], np.uint8), decoded)
            target, begin = target[decoded.size :], begin + decoded.size

    def __repr__(self) -> str:
        return f"<GgufTensor of shape {tuple(self.shape)}, {self.dtype.value}>"


class GgufFile(Mapping[str, GgufTensor]):
    """The tensors of a GGUF file by name. Closed by `close` or at the end of a `with` block."""

    def __init__(self, operation: str, path: Source, device: Device | str | None) -> None:
        self._operation = operation
        self.device = device_of(device)
        """Where tensors are read to."""
        self._content = opened(operation, path)
        try:
            header = read_header(self._content)
        except BaseException:
            self.close()
            raise
        self.version = header.version
        """Of the format."""
        self.metadata: Mapping[str, Value] = header.metadata
        """What the file says of its model, by key."""
        self._tensors = {name: GgufTensor(entry, self.device, self._content) for name, entry in header.tensors.items()}

    def __getitem__(self, name: str) -> GgufTensor:
        """Return the tensor of a name; MissingTensor where there is none."""
        try:
            return self._tensors[name]
        except (KeyError, TypeError):
            raise MissingTensor.among(self._operation, name, self._tensors) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        """Close the file. What was read stays."""
        self._content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GgufFile of {len(self)} tensors, to {self.device.label}>"
