"""Tensors of block-quantized weights."""

from __future__ import annotations

from collections.abc import Iterable

from ...device import Device
from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...storage import QStorage
from ..base.error import ShapeMismatch
from ..core import argument
from ..core.shape import Shape
from ..tensor import Tensor
from ..tensor.base import device_of


class QTensor:
    """Block-quantized weights: `dtype` is their format, and each row of the last dim consists of complete blocks.

    QTensor(storage, shape) takes the blocks of `storage` in row-major order. Raises ShapeMismatch where there are more
    or fewer weights, or where the last dim is no multiple of the block.

    >>> weights = tl.QTensor.quantize(tl.ones((2, 32)), "Q8_0")
    >>> weights.shape, weights.dtype.name
    ((2, 32), 'Q8_0')
    >>> weights.dequantize().shape
    (2, 32)
    """

    __slots__ = ("_shape", "_storage")

    def __init__(self, storage: QStorage, shape: Iterable[int]) -> None:
        if not isinstance(storage, QStorage):
            raise argument.wrong_type("QTensor", "storage", storage, "QStorage")
        self._shape = _complete_rows("QTensor", Shape(shape), storage.dtype)
        self._storage = storage
        if self._shape.elem_count != storage.length:
            reason = f"the blocks have {storage.length} weights, and the shape {self._shape.elem_count}"
            raise ShapeMismatch("QTensor", (self._shape,), reason)

    @classmethod
    def new(cls, storage: QStorage, shape: Iterable[int]) -> QTensor:
        """QTensor(storage, shape) under Candle's name."""
        return cls(storage, shape)

    @classmethod
    def quantize(cls, src: Tensor, dtype: GgmlDType | str) -> QTensor:
        """A tensor of floats, converted to f32, rounded to blocks on its device: see `QStorage.quantize`.

        Raises InvalidArgument, OutOfMemory, ShapeMismatch.
        """
        if not isinstance(src, Tensor):
            raise argument.wrong_type("quantize", "src", src, "Tensor")
        block_format = argument.ggml_dtype("quantize", "dtype", dtype)
        shape = _complete_rows("quantize", src.shape, block_format)
        wide = src.to_dtype(DType.F32)
        storage = QStorage.zeros(src.device, src.elem_count, block_format)
        storage.quantize(wide.storage, wide.layout)
        return cls(storage, shape)

    @property
    def storage(self) -> QStorage:
        """The blocks."""
        return self._storage

    @property
    def dtype(self) -> GgmlDType:
        """The format of the blocks."""
        return self._storage.dtype

    @property
    def device(self) -> Device:
        """The device that holds the blocks."""
        return self._storage.device

    @property
    def shape(self) -> Shape:
        """The sizes of the dims, in weights."""
        return self._shape

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self._shape)

    @property
    def storage_size_in_bytes(self) -> int:
        """The bytes of all blocks."""
        return self._storage.size_in_bytes

    @property
    def data(self) -> Array:
        """The bytes of all blocks, as files have them: see `QStorage.data`."""
        return self._storage.data

    def to(self, device: Device | str) -> QTensor:
        """Copy the blocks to another device; returns the tensor itself if it is there. Raises OutOfMemory."""
        target = device_of(device)
        if target == self.device:
            return self
        return type(self)(QStorage.from_data(self.data, target, self.dtype), self._shape)

    def dequantize(self) -> Tensor:
        """The weights in f32, each rounded once: the same bits on every device. Raises OutOfMemory."""
        return Tensor.from_storage(self._storage.dequantize(self._storage.length), self._shape)

    def dequantize_f16(self) -> Tensor:
        """The weights in f16: those of `dequantize`, rounded to nearest even. Raises OutOfMemory."""
        return Tensor.from_storage(self._storage.dequantize_f16(self._storage.length), self._shape)

    def embedding(self, ids: Tensor) -> Tensor:
        """The rows that `ids` names, a tensor of integers of any shape: (*ids.shape, hidden) in f32.

        The largest number of a dtype of indexes names no row and gives zeros, as in `index_select`. Raises
        InvalidIndex, ShapeMismatch unless this tensor is a matrix.
        """
        rows, hidden = sizes_of("embedding", self)
        if not isinstance(ids, Tensor):
            raise argument.wrong_type("embedding", "ids", ids, "Tensor")
        flat = ids.reshape((ids.elem_count,))
        storage = self._storage.embedding(rows, hidden, flat.storage, flat.layout)
        return Tensor.from_storage(storage, (*ids.shape, hidden))

    def __repr__(self) -> str:
        return f"QTensor(shape={tuple(self._shape)}, dtype={self.dtype.value})"


def sizes_of(op: str, weights: QTensor) -> tuple[int, int]:
    """The rows and the hidden size of a matrix; ShapeMismatch, which names `op`, where the weights are none."""
    if weights.rank != 2:
        raise ShapeMismatch(op, (weights.shape,), "the weights are a matrix (rows, hidden)")
    return weights.shape[0], weights.shape[1]


def _complete_rows(op: str, shape: Shape, dtype: GgmlDType) -> Shape:
    """Return the shape; ShapeMismatch unless each row of its last dim consists of complete blocks."""
    if not shape or shape[-1] % dtype.block_size:
        size = dtype.block_size
        raise ShapeMismatch(op, (shape,), f"the last dim is a multiple of the {size} weights of a {dtype} block")
    return shape
