"""Products with block-quantized weights that are fused with the op that computes the activations."""

from __future__ import annotations

import math
from abc import abstractmethod

from ...dtype import DType
from ...storage import Storage
from ..base.error import ShapeMismatch
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.base import parts, require_tensors
from .tensor import QTensor


class FusedProducts:
    """The calls of `QMatMul` that take fewer launches where the device can fuse them; weights are (rows, hidden)."""

    _qtensor: QTensor
    _rows: int
    _hidden: int
    _activations: str | None

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Give the product of x."""

    def forward_rms_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        eps: float,
        residual: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the product of the first result of `x.rms_norm(weight, eps, residual)`, and the sum of x and residual.

        Both have the bits of separate calls; without a residual the sum is x. A GPU needs one launch less for up to 16
        rows in f32 of which nothing is recorded. Raises as `forward` and `Tensor.rms_norm` do.
        """
        require_tensors("forward_rms_norm", x=x)
        scale = parts("forward_rms_norm", "weight", weight)
        others = parts("forward_rms_norm", "residual", residual)
        is_added = residual is None or residual.shape == x.shape
        if not (is_added and self._is_fused(x, weight, residual)):
            if residual is None:
                return self.forward(x.rms_norm(weight, eps)), x
            normed, total = x.rms_norm(weight, eps, residual)
            return self.forward(normed), total
        rows = self._matrix(x)
        if residual is not None:
            added = self._matrix(residual)
            others = added.storage, added.layout
        product, *sums = self._qtensor.storage.fwd_rms_norm(
            self._rows, self._hidden, rows.storage, rows.layout, *scale, *others, self._activations, eps
        )
        return self._shaped(product, x), Tensor.from_storage(sums[0], x.layout.dense) if sums else x

    def forward_silu_mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Give the product of `x.silu_mul(y)`, of tensors of one shape.

        It has the bits of separate calls. A GPU needs one launch less for up to 16 rows in f32 of which nothing is
        recorded. Raises as `forward` and `Tensor.silu_mul` do.
        """
        require_tensors("forward_silu_mul", x=x, y=y)
        if x.shape != y.shape or not self._is_fused(x, y):
            return self.forward(x.silu_mul(y))
        rows, factors = self._matrix(x), self._matrix(y)
        product = self._qtensor.storage.fwd_silu_mul(
            self._rows, self._hidden, rows.storage, rows.layout, factors.storage, factors.layout, self._activations
        )
        return self._shaped(product, x)

    def _is_fused(self, x: Tensor, *others: Tensor | None) -> bool:
        """Return True if the device saves a launch by computing the activations in the product's launch."""
        self._require_rows(x.layout)
        rows = math.prod(x.shape[:-1])
        return (
            0 < rows <= x.device.inner.fused_rows
            and x.dtype is DType.F32
            and not any(tensor is not None and tensor.is_recorded for tensor in (x, *others))
        )

    def _matrix(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self._hidden)

    def _shaped(self, product: Storage, x: Tensor) -> Tensor:
        return Tensor.from_storage(product, Layout.contiguous((*x.shape[:-1], self._rows)))

    def _require_rows(self, layout: Layout) -> None:
        if layout.shape[-1:] != (self._hidden,):
            raise ShapeMismatch(
                "qmatmul", (layout.shape,), f"its rows have the {self._hidden} elements of the weights'"
            )
