"""Tensors in GGUF files, read one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....device import Device
from ....dtype import DType
from ....ggml_dtype import GgmlDType
from ....storage import QStorage, Storage
from ...backends.backend import Part
from ...base.error import ShapeMismatch
from ...core.layout import Layout
from ...core.shape import Shape
from ...quantized import QTensor
from ...tensor import Tensor
from ...tensor.base import device_of
from ..content import Content, Source, TensorFile, open_content
from .header import Entry, read_header
from .metadata import Value

PLAIN: Final = {GgmlDType.F32: DType.F32, GgmlDType.F16: DType.F16, GgmlDType.BF16: DType.BF16}
"""The dtypes of tensors that are not block-quantized."""


def open_gguf(path: Source, device: Device | str | None = None) -> GgufFile:
    """Read the metadata of a GGUF file, and where its tensors are, which then are read one by one to a device.

    `path` may also be the bytes of a file; a pipe is refused. Versions 2 and 3 are read.

    `FileError` where the file cannot be read, `MissingFile` where there is none; `InvalidArgument`, which names the key
    or the tensor, if it is no such file, was cut short, or says what cannot be: a type that tallow lacks, a dim of 0 or
    of a part of a block, tensors outside of the file, misaligned or in each other, more keys, tensors or elements of an
    array than there are bytes for.

    >>> from tallow import gguf
    >>> gguf.save_gguf({"weight": tl.ones((2, 32))}, "model.gguf", {"general.name": "small"})
    >>> with gguf.open_gguf("model.gguf") as file:
    ...     file.metadata["general.name"], list(file)
    ('small', ['weight'])
    """
    return GgufFile("open_gguf", path, device)


class GgufTensor:
    """A tensor in a file, of which only the header has been read.

    >>> from tallow import gguf
    >>> gguf.save_gguf({"weight": tl.ones((2, 32))}, "model.gguf")
    >>> with gguf.open_gguf("model.gguf") as file:
    ...     file["weight"].shape, file["weight"].load().shape
    ((2, 32), (2, 32))
    """

    __slots__ = ("_content", "_device", "_entry")

    def __init__(self, entry: Entry, device: Device, content: Content) -> None:
        self._entry = entry
        self._device = device
        self._content = content

    @property
    def dtype(self) -> GgmlDType:
        """The dtype, or block format, of the elements in the file."""
        return self._entry.dtype

    @property
    def shape(self) -> Shape:
        """The sizes of the dims, the last of which is contiguous."""
        return Shape(self._entry.shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in the file, in bytes."""
        return self._entry.nbytes

    def load(self) -> Tensor | QTensor:
        """Read the tensor to the device, through the memory of the loader alone: as blocks unless it is of floats."""
        dtype = PLAIN.get(self.dtype)
        return self.blocks() if dtype is None else Tensor._new(self._read(dtype), Layout.contiguous(self.shape))

    def blocks(self) -> QTensor:
        """Read the tensor to the device as blocks; a float is a block of one. ShapeMismatch for rank 0."""
        return concatenated_blocks([self])

    def part(self, dim: int, index: int, count: int) -> GgufTensor:
        """Part `index` of `count` equal ones of a dim, 0 or, of a matrix, 1: no other bytes are read.

        ShapeMismatch where the dim has no such parts, or a part's rows would not consist of complete blocks.
        """
        entry, shape = self._entry, list(self._entry.shape)
        blocks = count * (entry.dtype.block_size if dim == len(shape) - 1 else 1)
        if shape[dim] % blocks:
            reason = (
                f"a dim of {shape[dim]} with blocks of {blocks // count} has no {count} equal parts; use fewer ranks"
            )
            raise ShapeMismatch("GgufTensor.part", (self.shape,), reason)
        pitch = entry.nbytes // shape[0]
        shape[dim] //= count
        nbytes = entry.nbytes // count
        if dim == 0:
            begin = entry.begin + index * nbytes
            return GgufTensor(
                entry._replace(shape=tuple(shape), begin=begin, nbytes=nbytes), self._device, self._content
            )
        begin = entry.begin + index * (pitch // count)
        part = entry._replace(shape=tuple(shape), begin=begin, nbytes=nbytes)
        return GgufColumns(part, self._device, self._content, pitch)

    def _read(self, dtype: DType) -> Storage:
        self._content.require_open()
        part = Part(dtype, self.nbytes // dtype.itemsize, self._read_into)
        (storage,) = self._device.inner.load([part])
        return Storage(storage)

    def _read_into(self, target: memoryview, begin: int) -> None:
        self._content.read_into(target, self._entry.begin + begin)

    def __repr__(self) -> str:
        return f"<GgufTensor of shape {tuple(self.shape)}, {self.dtype.value}>"


class GgufColumns(GgufTensor):
    """Some columns of a matrix in a file, whose rows start every `pitch` bytes."""

    __slots__ = ("_pitch",)

    def __init__(self, entry: Entry, device: Device, content: Content, pitch: int) -> None:
        super().__init__(entry, device, content)
        self._pitch = pitch

    def _read_into(self, target: memoryview, begin: int) -> None:
        width = self._entry.nbytes // self._entry.shape[0]
        while target:
            row, inside = divmod(begin, width)
            piece = target[: width - inside]
            self._content.read_into(piece, self._entry.begin + row * self._pitch + inside)
            target, begin = target[len(piece) :], begin + len(piece)


def concatenated_blocks(tensors: Sequence[GgufTensor]) -> QTensor:
    """Read block-quantized tensors of one format to the device, concatenated along the first dim.

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
    """The tensors of a GGUF file by name. Closed by `close` or at the end of a `with` block.

    >>> from tallow import gguf
    >>> gguf.save_gguf({"weight": tl.ones((2, 32))}, "model.gguf")
    >>> with gguf.open_gguf("model.gguf") as file:
    ...     "weight" in file, len(file)
    (True, 1)
    """

    def __init__(self, operation: str, path: Source, device: Device | str | None) -> None:
        super().__init__(operation)
        self.device = device_of(device)
        """Where tensors are read to."""
        content = open_content(operation, path, takes_pipe=False)
        self._contents.append(content)
        try:
            header = read_header(content)
        except BaseException:
            self.close()
            raise
        self.version = header.version
        """Of the format."""
        self.metadata: Mapping[str, Value] = header.metadata
        """The file's metadata on its model, by key."""
        self._tensors = {name: GgufTensor(entry, self.device, content) for name, entry in header.tensors.items()}

    def __repr__(self) -> str:
        return f"<GgufFile of {len(self)} tensors, to {self.device.label}>"
