"""The storage methods on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import BackendStorage
from ...conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ...dtype import Array, DType
from ...layout import Layout
from ...op import BinaryOp, CmpOp, ReduceOp, UnaryOp
from .. import ops
from ..ops.operand import Operand
from .slice import Slice

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..dlpack import Borrowed


class GpuStorage(BackendStorage):
    """Elements in device memory; the methods are those of `tallow.storage.Storage`, which checks arguments.

    Results are contiguous in new storages. Methods enqueue work and return; only `to_numpy` waits for it.
    """

    device: GpuDevice

    def __init__(self, device: GpuDevice, dtype: DType, length: int, memory: Slice | Borrowed) -> None:
        """Hold `memory`, whose first `length` elements of `dtype` are those of the storage."""
        self.device = device
        self.dtype = dtype
        self.length = length
        self.memory = memory

    def to_numpy(self) -> Array:
        array = np.empty(self.length, self.dtype.numpy)
        self.device.read(array, self.memory.address)
        return array

    def to_dlpack(self, layout: Layout, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> object:
        from ..dlpack import export

        return export(self, layout, stream, bool(copy))

    def try_clone(self, layout: Layout) -> GpuStorage:  # noqa: ARG002 - it only has to fit
        return ops.copy.fresh(Operand(self, Layout.contiguous((self.length,))))

    def const_set(self, value: float, layout: Layout) -> None:
        ops.copy.fill(Operand(self, layout), value)

    def copy_strided_src(self, dst: GpuStorage, dst_offset: int, src_layout: Layout) -> None:
        ops.copy.copy(Operand(self, src_layout), Operand(dst, Layout.contiguous(src_layout.shape, dst_offset)))

    def copy2d(
        self,
        dst: GpuStorage,
        d1: int,
        d2: int,
        src_stride: int,
        dst_stride: int,
        src_offset: int,
        dst_offset: int,
    ) -> None:
        ops.copy.copy_rows(self, dst, (d1, d2), (src_stride, dst_stride), (src_offset, dst_offset))

    def affine(self, layout: Layout, mul: float, add: float) -> GpuStorage:
        return ops.elementwise.affine(Operand(self, layout), mul, add)

    def powf(self, layout: Layout, alpha: float) -> GpuStorage:
        return ops.elementwise.power(Operand(self, layout), alpha)

    def elu(self, layout: Layout, alpha: float) -> GpuStorage:
        return ops.elementwise.elu(Operand(self, layout), alpha)

    def to_dtype(self, layout: Layout, dtype: DType) -> GpuStorage:
        return ops.elementwise.cast(Operand(self, layout), dtype)

    def unary_impl(self, op: UnaryOp, layout: Layout) -> GpuStorage:
        return ops.elementwise.unary(op, Operand(self, layout))

    def binary_impl(self, op: BinaryOp, rhs: GpuStorage, lhs_layout: Layout, rhs_layout: Layout) -> GpuStorage:
        return ops.elementwise.binary(op, Operand(self, lhs_layout), Operand(rhs, rhs_layout))

    def cmp(self, op: CmpOp, rhs: GpuStorage, lhs_layout: Layout, rhs_layout: Layout) -> GpuStorage:
        return ops.elementwise.compare(op, Operand(self, lhs_layout), Operand(rhs, rhs_layout))

    def where_cond(
        self,
        layout: Layout,
        on_true: GpuStorage,
        on_true_layout: Layout,
        on_false: GpuStorage,
        on_false_layout: Layout,
    ) -> GpuStorage:
        choices = Operand(on_true, on_true_layout), Operand(on_false, on_false_layout)
        return ops.elementwise.where(Operand(self, layout), *choices)

    def reduce_op(self, op: ReduceOp, layout: Layout, dims: tuple[int, ...]) -> GpuStorage:
        return ops.reduce.reduce(op, Operand(self, layout), dims)

    def gather(self, layout: Layout, indexes: GpuStorage, indexes_layout: Layout, dim: int) -> GpuStorage:
        return ops.index.gather(Operand(self, layout), Operand(indexes, indexes_layout), dim)

    def index_select(self, indexes: GpuStorage, layout: Layout, indexes_layout: Layout, dim: int) -> GpuStorage:
        return ops.index.index_select(Operand(self, layout), Operand(indexes, indexes_layout), dim)

    def scatter_set(
        self,
        layout: Layout,
        indexes: GpuStorage,
        indexes_layout: Layout,
        source: GpuStorage,
        source_layout: Layout,
        dim: int,
    ) -> None:
        given = Operand(indexes, indexes_layout), Operand(source, source_layout)
        ops.index.scatter_set(Operand(self, layout), *given, dim)

    def scatter_add(
        self,
        layout: Layout,
        indexes: GpuStorage,
        indexes_layout: Layout,
        source: GpuStorage,
        source_layout: Layout,
        dim: int,
    ) -> None:
        given = Operand(indexes, indexes_layout), Operand(source, source_layout)
        ops.sums.scatter_add(Operand(self, layout), *given, dim)

    def index_add(
        self,
        layout: Layout,
        indexes: GpuStorage,
        indexes_layout: Layout,
        source: GpuStorage,
        source_layout: Layout,
        dim: int,
    ) -> GpuStorage:
        given = Operand(indexes, indexes_layout), Operand(source, source_layout)
        return ops.sums.index_add(Operand(self, layout), *given, dim)

    def matmul(
        self, rhs: GpuStorage, bmnk: tuple[int, int, int, int], lhs_layout: Layout, rhs_layout: Layout
    ) -> GpuStorage:
        return ops.matmul.matmul(Operand(self, lhs_layout), Operand(rhs, rhs_layout), bmnk)

    def conv1d(self, layout: Layout, kernel: GpuStorage, kernel_layout: Layout, params: ParamsConv1D) -> GpuStorage:
        return ops.convolution.conv1d(Operand(self, layout), Operand(kernel, kernel_layout), params)

    def conv_transpose1d(
        self, layout: Layout, kernel: GpuStorage, kernel_layout: Layout, params: ParamsConvTranspose1D
    ) -> GpuStorage:
        return ops.convolution.conv_transpose1d(Operand(self, layout), Operand(kernel, kernel_layout), params)

    def conv2d(self, layout: Layout, kernel: GpuStorage, kernel_layout: Layout, params: ParamsConv2D) -> GpuStorage:
        return ops.convolution.conv2d(Operand(self, layout), Operand(kernel, kernel_layout), params)

    def conv_transpose2d(
        self, layout: Layout, kernel: GpuStorage, kernel_layout: Layout, params: ParamsConvTranspose2D
    ) -> GpuStorage:
        return ops.convolution.conv_transpose2d(Operand(self, layout), Operand(kernel, kernel_layout), params)

    def avg_pool2d(self, layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> GpuStorage:
        return ops.window.avg_pool2d(Operand(self, layout), kernel_size, stride)

    def max_pool2d(self, layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> GpuStorage:
        return ops.window.max_pool2d(Operand(self, layout), kernel_size, stride)

    def upsample_nearest1d(self, layout: Layout, size: int) -> GpuStorage:
        return ops.window.upsample_nearest("upsample_nearest1d", Operand(self, layout), (size,))

    def upsample_nearest2d(self, layout: Layout, height: int, width: int) -> GpuStorage:
        return ops.window.upsample_nearest("upsample_nearest2d", Operand(self, layout), (height, width))

    def upsample_bilinear2d(
        self,
        layout: Layout,
        height: int,
        width: int,
        align_corners: bool,
        scale_h: float | None,
        scale_w: float | None,
    ) -> GpuStorage:
        scales = scale_h, scale_w
        return ops.window.upsample_bilinear2d(Operand(self, layout), height, width, align_corners, *scales)
