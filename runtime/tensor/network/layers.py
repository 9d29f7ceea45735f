"""Layers of networks that are compositions of elementwise ops."""

from __future__ import annotations

from typing import Self

from ....dtype import FLOAT
from ....tensor_ops import PRELU
from ...base.error import InvalidArgument, UnsupportedDType
from ...core import argument
from ...core.conversion import conversion
from ..base import named, require_tensors
from ..promotion import common_dtype
from .normalization import NormalizationMethods


class LayerMethods(NormalizationMethods):
    """A leaky relu whose slopes are learned, and dropout."""

    __slots__ = ()

    @named
    def prelu(self, weight: Self) -> Self:
        """Return x where it is above 0, else x times a weight: one for all, or a vector with one for each channel.

        The channels are dim 1.

        >>> tl.Tensor([[-1.0, 2.0], [-4.0, -3.0]]).prelu(tl.Tensor([0.5, 0.1]))
        Tensor([[-0.5,  2.0],
                [-2.0, -0.3]], dtype=f32)
        """
        require_tensors("prelu", weight=weight)
        dtype = common_dtype("prelu", self.dtype, weight.dtype)
        x, factors = self.to_dtype(dtype), weight.to_dtype(dtype)
        if weight.elem_count == 1:
            factors = factors.reshape([1] * self.rank)
        else:
            x._require_channels("prelu", 2, weight=factors)
            factors = factors._as_channels(self.rank)
        return x._binary(PRELU, factors)

    @named
    def dropout(self, p: float = 0.5) -> Self:
        """Set each element to 0 with probability p, and multiply the others by 1 / (1 - p).

        An element is dropped where `rand` of f32 on the tensor's device gives less than p. Only for training: call
        nothing in evaluation.

        >>> x = tl.ones(1000).dropout(0.5)
        >>> x.unique()
        Tensor([0., 2.], dtype=f32)
        """
        share = argument.real("dropout", "p", p)
        if not 0 <= share <= 1:
            raise InvalidArgument("dropout", f"a probability is from 0 to 1, not {share}")
        if not self.dtype.is_float:
            reason = "scaled elements are floating point"
            raise UnsupportedDType("dropout", self.dtype, self.device.backend, reason, conversion(self.dtype, FLOAT))
        if share == 1:
            return self.zeros_like()
        mask = self.rand(self.shape, device=self.device).ge(share)
        return mask.where(self.affine(1 / (1 - share), 0.0), 0)
