"""Ops of network layers other than products and convolutions."""

from __future__ import annotations

from typing import Any, Self, TypeVar, overload

from ....dtype import DType
from ....storage import Storage
from ...base.error import DTypeMismatch, InvalidIndex, UnsupportedDType
from ...core.argument import integer
from ...core.extensions import extensions
from ...core.layout import Layout
from ...storage.calls import live_autocasts
from ..base import TensorBase, parts, require_tensors
from ..promotion import DTYPE_ERRORS, common_dtype, second_dtype
from ..shape.indexing import IndexMethods

T = TypeVar("T", bound=IndexMethods)


class NetworkOpMethods(IndexMethods):
    """Softmax and its compositions, normalisation, and rotary embeddings."""

    __slots__ = ()

    @overload
    def layer_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5, residual: None = None
    ) -> Self: ...

    @overload
    def layer_norm(self, weight: Self | None, bias: Self | None, eps: float, residual: Self) -> tuple[Self, Self]: ...

    @overload
    def layer_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5, *, residual: Self
    ) -> tuple[Self, Self]: ...

    def layer_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5, residual: Self | None = None
    ) -> Self | tuple[Self, Self]:
        """Normalise over the last dim: (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance.

        Weight and bias are vectors of the size of that dim. With a residual, x is the sum of this tensor and the
        residual, and that sum is returned too: (normalised, sum). bf16 and f16 are computed in f32, and take a weight
        and a bias of f32 too.

        >>> tl.Tensor([[1.0, 2.0, 3.0]]).layer_norm()
        Tensor([[-1.2247,  0.0000,  1.2247]], dtype=f32)
        """
        if live_autocasts:
            self, weight, bias, residual = extensions.widened(self, weight, bias, residual)
        scales = *parts("layer_norm", "weight", weight), *parts("layer_norm", "bias", bias)
        added = parts("layer_norm", "residual", residual)
        try:
            return self._normed(self._storage.layer_norm(self._layout, *scales, *added, eps))
        except DTYPE_ERRORS as error:
            dtype, x, operands = self._in_norm_dtype(error, residual, weight, bias)
        return _converted(x._normed(x._storage.layer_norm(x._layout, *[*operands, eps])), dtype)

    @overload
    def rms_norm(self, weight: Self | None = None, eps: float = 1e-6, residual: None = None) -> Self: ...

    @overload
    def rms_norm(self, weight: Self | None, eps: float, residual: Self) -> tuple[Self, Self]: ...

    @overload
    def rms_norm(self, weight: Self | None = None, eps: float = 1e-6, *, residual: Self) -> tuple[Self, Self]: ...

    def rms_norm(
        self, weight: Self | None = None, eps: float = 1e-6, residual: Self | None = None
    ) -> Self | tuple[Self, Self]:
        """Divide by the root of the mean square over the last dim: x / sqrt(mean(x * x) + eps) * weight.

        The weight is a vector of the size of that dim. With a residual, x is the sum of this tensor and the residual,
        and that sum is returned too: (normalised, sum). bf16 and f16 are computed in f32, and take a weight of f32 too.

        >>> tl.Tensor([[3.0, 4.0]]).rms_norm()
        Tensor([[0.8485, 1.1314]], dtype=f32)
        """
        if live_autocasts:
            self, weight, residual = extensions.widened(self, weight, residual)
        scale, added = parts("rms_norm", "weight", weight), parts("rms_norm", "residual", residual)
        try:
            return self._normed(self._storage.rms_norm(self._layout, *scale, *added, eps))
        except DTYPE_ERRORS as error:
            dtype, x, operands = self._in_norm_dtype(error, residual, weight)
        return _converted(x._normed(x._storage.rms_norm(x._layout, *[*operands, eps])), dtype)

    def rope(self, cos: Self, sin: Self, positions: Self | int = 0, interleaved: bool = False) -> Self:
        """Rotate pairs of (.., tokens, d) by the angles of their position, as rotary embeddings do.

        The pair (x, y) becomes (x cos - y sin, x sin + y cos). Pairs are elements i and i + d / 2, or neighbours where
        `interleaved`. The tables are f32 (rows, d / 2). Token t has row position + t of them: one position for all, a
        number or an index on the device, or one index for each of the batch that the first of three dims or more
        counts. `InvalidIndex` where not all tokens have a row.

        >>> angles = tl.arange(4.0).unsqueeze(1) * tl.Tensor([1.0, 0.01])
        >>> tl.ones((4, 4)).rope(angles.cos(), angles.sin())[1]
        Tensor([-0.3012, 0.9900, 1.3818, 1.0099], dtype=f32)
        """
        require_tensors("rope", cos=cos, sin=sin)
        indexes = positions if isinstance(positions, TensorBase) else self._position(cos, positions)
        tables = cos._storage, cos._layout, sin._storage, sin._layout
        storage = self._storage.rope(self._layout, *tables, indexes._storage, indexes._layout, interleaved)
        return self._like(storage)

    def _position(self, cos: Self, position: int) -> Self:
        """A position as a tensor, which no launch is needed for; InvalidIndex at once if it is out of range."""
        position = integer("rope", "positions", position)
        if cos.rank and len(self.shape) > 1 and not 0 <= position <= cos.shape[0] - self.shape[-2]:
            raise InvalidIndex("rope", position, cos.shape[0] - self.shape[-2] + 1)
        return self._new(self.device.storage_from_slice([position], DType.I64), Layout.contiguous(()))

    def _in_norm_dtype(
        self, error: DTypeMismatch | UnsupportedDType, residual: Self | None, *scales: Self | None
    ) -> tuple[DType, Self, Any]:
        """Return the dtype of a norm's result, and the tensor and other operands with which to call it again.

        The residual is promoted as a summand. Scales of the compute dtype are those of short floats too.
        """
        op = error.op
        dtypes = [self.dtype, *[it.dtype for it in (residual, *scales) if it is not None]]
        second_dtype(error, *dtypes)
        dtype = self.dtype if residual is None else common_dtype(op, self.dtype, residual.dtype)
        own = {it.dtype for it in scales if it is not None}
        if not own <= {dtype, dtype.compute}:
            raise DTypeMismatch(op, tuple(dict.fromkeys((dtype, *own)))) from None
        wide = dtype if own <= {dtype} else dtype.compute
        others = [None if it is None else it.to_dtype(wide) for it in (*scales, residual)]
        return dtype, self.to_dtype(wide), [part for it in others for part in parts(op, "operand", it)]

    def _normed(self, storages: tuple[Storage, ...]) -> Self | tuple[Self, Self]:
        normed = self._like(storages[0])
        return normed if len(storages) == 1 else (normed, self._like(storages[1]))


def _converted(normed: T | tuple[T, T], dtype: DType) -> T | tuple[T, T]:
    """Convert the result of a norm, and the sum that it normalizes if there is a residual."""
    if isinstance(normed, tuple):
        return normed[0].to_dtype(dtype), normed[1].to_dtype(dtype)
    return normed.to_dtype(dtype)
