"""What the layers of networks compute besides products and convolutions."""

from __future__ import annotations

from typing import Self

from .base import TensorBase


class NetworkOpMethods(TensorBase):
    """Softmax and what is made of it, normalisation, and rotary embeddings."""

    __slots__ = ()

    def softmax(self, dim: int) -> Self:
        """Make the elements along `dim` probabilities: e**(x - m) / sum(e**(x - m)), where m is the largest of them.

        bf16 and f16 are computed in f32. Where all are -inf the result is NaN.
        """
        return self._like(self._storage.softmax(self._layout, self.shape.dim("softmax", dim)))

    def log_softmax(self, dim: int) -> Self:
        """Take the logarithm of `softmax`: x - m - log(sum(e**(x - m))) along `dim`."""
        return self._like(self._storage.log_softmax(self._layout, self.shape.dim("log_softmax", dim)))
