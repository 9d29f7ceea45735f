"""Tensors in GGUF files, read one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....device import Device
from ....dtype import DType
from ....ggml_dtype import GgmlDType
from ....storage import QStorage, Storage
from ...backends.backend import Part
from ...core.layout import Layout
from ...core.shape import Shape
from ...quantized import QTensor
from ...tensor import Tensor
from ...tensor.base import device_of
from ..content import Content, Source, TensorFile, opened
from .header import Entry, read_header
from .metadata import Value

PLAIN: Final = {GgmlDType.F32: DType.F32, GgmlDType.F16: DType.F16, GgmlDType.BF16: DType.BF16}
"""The dtypes of tensors that are not stored in blocks."""


def open_gguf(path: Source, device: Device | str | None = None) -> GgufFile:
    """Read the metadata of a GGUF file, and where its tensors are, which then are read one by one to a device.

    `path` may also be the bytes of a file; a pipe is refused. Versions 2 and 3 are read.

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

    def load(self) -> Tensor | QTensor:
        """Read the tensor to the device, through the memory of the loader alone: in blocks unless it is of floats."""
        dtype = PLAIN.get(self.dtype)
        return self.blocks() if dtype is None else Tensor._new(self._read(dtype), Layout.contiguous(self.shape))

    def blocks(self) -> QTensor:
        """Read the tensor to the device as blocks; a float is a block of one. ShapeMismatch for rank 0."""
        return joined_blocks([self])

    def _read(self, dtype: DType) -> Storage:
        self._content.require_open()
        part = Part(dtype, self.nbytes // dtype.itemsize, self._read_into)
        (storage,) = self._device.inner.load([part])
        return Storage(storage)

    def _read_into(self, target: memoryview, begin: int) -> None:
        self._content.read_into(target, self._entry.begin + begin)

    def __repr__(self) -> str:
        return f"<GgufTensor of shape {tuple(self.shape)}, {self.dtype.value}>"


def joined_blocks(tensors: Sequence[GgufTensor]) -> QTensor:
    """Read tensors of one format to the device as blocks, one behind the other: the first dim has those of all.

    Their other dims are the same. ShapeMismatch for rank 0.
    """
    first = tensors[0]

    def read_into(target: memoryview, begin: int) -> None:
        for tensor in tensors:
            piece = target[: max(tensor.nbytes - begin, 0)]
            if piece:
                tensor._read_into(piece, begin)
            target, begin = target[len(piece) :], max(begin - tensor.nbytes, 0)

    first._content.require_open()
    (bytes_of_all,) = first._device.inner.load([Part(DType.U8, sum(it.nbytes for it in tensors), read_into)])
    shape = (sum(it.shape[0] for it in tensors), *first.shape[1:]) if first.shape else ()
    return QTensor(QStorage(first._device.inner.blocks_in(bytes_of_all, first.dtype)), shape)


class GgufFile(TensorFile[GgufTensor]):
    """The tensors of a GGUF file by name. Closed by `close` or at the end of a `with` block."""

    def __init__(self, operation: str, path: Source, device: Device | str | None) -> None:
        super().__init__(operation)
        self.device = device_of(device)
        """Where tensors are read to."""
        content = opened(operation, path, takes_pipe=False)
        self._contents.append(content)
        try:
            header = read_header(content)
        except BaseException:
            self.close()
            raise
        self.version = header.version
        """Of the format."""
        self.metadata: Mapping[str, Value] = header.metadata
        """What the file says of its model, by key."""
        self._tensors = {name: GgufTensor(entry, self.device, content) for name, entry in header.tensors.items()}

    def __repr__(self) -> str:
        return f"<GgufFile of {len(self)} tensors, to {self.device.label}>"
