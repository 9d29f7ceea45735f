"""Gradients of normalised channels, and their recorded form, which gives gradients of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...storage import Storage
from ..core.layout import Layout
from ..core.result_shapes import group_statistics
from ..tensor import Tensor
from .node import arguments_of

_Operand: TypeAlias = tuple[Any, Layout | None]


def normalize_groups(
    g: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Sequence[Storage],
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> list[Tensor]:
    """Compute the gradients of the elements, and of the weight and the bias if present."""
    layout = Layout.contiguous(group_statistics(x.shape, groups, whole_batch))
    mean, variance = statistics
    operands = *arguments_of(weight), mean, layout, variance, layout, *arguments_of(g)
    arguments: list[Any] = [x._layout, *operands, groups, dim, whole_batch, eps]
    own, *of_vectors = x._storage.normalize_groups_gradient(*arguments)
    vectors = zip(of_vectors, (weight, bias), strict=True)
    of_affine = [vector._like(storage).to_dtype(vector.dtype) for storage, vector in vectors if vector is not None]
    return [x._like(own), *of_affine]


def normalize_groups_gradient(
    operand: _Operand, scale: _Operand, gradient: _Operand, groups: int, dim: int, whole_batch: bool, eps: float
) -> tuple[Storage, ...]:
    """Compute normalize_groups_gradient by recorded ops, from which the statistics follow again."""
    x, g = [_by_channel(_wide(*each), dim) for each in (operand, gradient)]
    batch, channels, length = x.shape
    shape = batch, groups, channels // groups, length
    dims = (0, 2, 3) if whole_batch else (2, 3)
    elements, slopes = x.reshape(shape), g.reshape(shape)
    centred = elements - elements.mean(dims, keepdim=True)
    root = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    normed = centred * root
    of_weight = (normed * slopes).sum((0, 3)).reshape(channels)
    if scale[0] is not None:
        slopes = slopes * _wide(*scale).reshape(1, groups, channels // groups, 1)
    own = root * (slopes - slopes.mean(dims, keepdim=True) - normed * (slopes * normed).mean(dims, keepdim=True))
    own = _by_channel(own.reshape(x.shape), dim).to_dtype(operand[0].dtype)
    dtype = g.dtype if scale[0] is None else scale[0].dtype
    vectors = [each.to_dtype(dtype) for each in (of_weight, g.sum((0, 2)))]
    return tuple([each.contiguous()._storage for each in (own, *vectors)])


def normalize_channels(
    x: _Operand, mean: _Operand, variance: _Operand, weight: _Operand, bias: _Operand, dim: int, eps: float
) -> Storage:
    """Compute normalize_channels by recorded ops."""
    shape = (1, -1, 1) if dim == 1 else (1, 1, -1)
    scale = (_wide(*variance) + eps).rsqrt()
    if weight[0] is not None:
        scale = scale * _wide(*weight)
    normed = (_wide(*x) - _wide(*mean).reshape(shape)) * scale.reshape(shape)
    if bias[0] is not None:
        normed = normed + _wide(*bias).reshape(shape)
    return normed.to_dtype(x[0].dtype).contiguous()._storage


def _wide(storage: Any, layout: Any) -> Tensor:
    tensor = Tensor._new(storage, layout)
    return tensor.to_dtype(tensor.dtype.compute)


def _by_channel(x: Tensor, dim: int) -> Tensor:
    return x if dim == 1 else x.transpose(1, 2)
