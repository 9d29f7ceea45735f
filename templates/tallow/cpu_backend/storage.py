"""The storage methods on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..backend import BackendStorage
from ..conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ..dtype import Array, DType
from ..error import UnsupportedDType
from ..layout import Layout
from ..op import BinaryOp, CmpOp, ReduceOp, UnaryOp
from ..shape import Shape
from . import array, cast, conv, elementwise, index, matmul, pool, reduce, upsample

if TYPE_CHECKING:
    from .device import CpuDevice


class CpuStorage(BackendStorage):
    """A flat NumPy array of one dtype; the methods are those of `tallow.storage.Storage`, which checks arguments."""

    device: CpuDevice

    def __init__(self, device: CpuDevice, dtype: DType, data: Array) -> None:
        """Hold `data`, contiguous and of rank 1, without a copy."""
        self.device = device
        self.dtype = dtype
        self.data = data
        self.length = data.size

    def to_numpy(self) -> Array:
        """A copy of the elements."""
        return self.data.copy()

    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        if self.data.dtype.kind not in "iuf":
            reason = "NumPy, which exports the elements, lacks the dtype; convert with to_dtype(DType.F32) first"
            raise UnsupportedDType("dlpack", self.dtype, "cpu", reason)
        return self.view(layout).reshape(layout.shape).__dlpack__(**options)

    def view(self, layout: Layout) -> Array:
        """The elements that `layout` reaches, without a copy; rank 0 has shape (1,)."""
        return array.view(self.data, layout)

    def _result(self, values: Array, dtype: DType | None = None) -> Self:
        return type(self)(self.device, dtype or self.dtype, array.contiguous(values).reshape(-1))

    def try_clone(self, layout: Layout) -> Self:  # noqa: ARG002 - it only has to fit
        return self._result(self.data.copy())

    def const_set(self, value: float, layout: Layout) -> None:
        array.bits(self.view(layout))[...] = array.bits(cast.scalar(value, self.dtype))

    def affine(self, layout: Layout, mul: float, add: float) -> Self:
        return self._result(elementwise.affine(self.view(layout), mul, add, self.dtype))

    def powf(self, layout: Layout, alpha: float) -> Self:
        return self._result(elementwise.power(self.view(layout), alpha, self.dtype))

    def elu(self, layout: Layout, alpha: float) -> Self:
        return self._result(elementwise.elu(self.view(layout), alpha, self.dtype))

    def cmp(self, op: CmpOp, rhs: Self, lhs_layout: Layout, rhs_layout: Layout) -> Self:
        return self._result(elementwise.compare(op, self.view(lhs_layout), rhs.view(rhs_layout), self.dtype), DType.U8)

    def reduce_op(self, op: ReduceOp, layout: Layout, dims: tuple[int, ...]) -> Self:
        return self._result(reduce.reduce(op, self.view(layout), dims, self.dtype), op.result or self.dtype)

    def to_dtype(self, layout: Layout, dtype: DType) -> Self:
        return self._result(elementwise.to_dtype(self.view(layout), self.dtype, dtype), dtype)

    def unary_impl(self, op: UnaryOp, layout: Layout) -> Self:
        return self._result(elementwise.unary(op, self.view(layout), self.dtype))

    def binary_impl(self, op: BinaryOp, rhs: Self, lhs_layout: Layout, rhs_layout: Layout) -> Self:
        return self._result(elementwise.binary(op, self.view(lhs_layout), rhs.view(rhs_layout), self.dtype))

    def conv1d(self, layout: Layout, kernel: Self, kernel_layout: Layout, params: ParamsConv1D) -> Self:
        return self._result(conv.conv1d(self.view(layout), kernel.view(kernel_layout), params, self.dtype))

    def conv_transpose1d(
        self, layout: Layout, kernel: Self, kernel_layout: Layout, params: ParamsConvTranspose1D
    ) -> Self:
        return self._result(conv.conv_transpose1d(self.view(layout), kernel.view(kernel_layout), params, self.dtype))

    def conv2d(self, layout: Layout, kernel: Self, kernel_layout: Layout, params: ParamsConv2D) -> Self:
        return self._result(conv.conv2d(self.view(layout), kernel.view(kernel_layout), params, self.dtype))

    def conv_transpose2d(
        self, layout: Layout, kernel: Self, kernel_layout: Layout, params: ParamsConvTranspose2D
    ) -> Self:
        return self._result(conv.conv_transpose2d(self.view(layout), kernel.view(kernel_layout), params, self.dtype))

    def avg_pool2d(self, layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Self:
        return self._result(pool.avg_pool2d(self.view(layout), kernel_size, stride, self.dtype))

    def max_pool2d(self, layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Self:
        return self._result(pool.max_pool2d(self.view(layout), kernel_size, stride, self.dtype))

    def upsample_nearest1d(self, layout: Layout, size: int) -> Self:
        return self._result(upsample.nearest(self.view(layout), (size,)))

    def upsample_nearest2d(self, layout: Layout, height: int, width: int) -> Self:
        return self._result(upsample.nearest(self.view(layout), (height, width)))

    def upsample_bilinear2d(
        self,
        layout: Layout,
        height: int,
        width: int,
        align_corners: bool,
        scale_h: float | None,
        scale_w: float | None,
    ) -> Self:
        values = upsample.bilinear2d(self.view(layout), height, width, align_corners, scale_h, scale_w, self.dtype)
        return self._result(values)

    def where_cond(
        self,
        layout: Layout,
        on_true: Self,
        on_true_layout: Layout,
        on_false: Self,
        on_false_layout: Layout,
    ) -> Self:
        values = elementwise.where(self.view(layout), on_true.view(on_true_layout), on_false.view(on_false_layout))
        return self._result(values, on_true.dtype)

    def gather(self, layout: Layout, indexes: Self, indexes_layout: Layout, dim: int) -> Self:
        return self._result(index.gather(self.data, layout, indexes.view(indexes_layout), indexes.dtype, dim))

    def scatter_set(
        self,
        layout: Layout,
        indexes: Self,
        indexes_layout: Layout,
        source: Self,
        source_layout: Layout,
        dim: int,
    ) -> None:
        rows, values = indexes.view(indexes_layout), source.view(source_layout)
        index.scatter_set(self.data, layout, rows, indexes.dtype, values, dim)

    def scatter_add(
        self,
        layout: Layout,
        indexes: Self,
        indexes_layout: Layout,
        source: Self,
        source_layout: Layout,
        dim: int,
    ) -> None:
        rows, values = indexes.view(indexes_layout), source.view(source_layout)
        index.scatter_add(self.data, self.dtype, layout, rows, indexes.dtype, values, dim)

    def index_add(
        self,
        layout: Layout,
        indexes: Self,
        indexes_layout: Layout,
        source: Self,
        source_layout: Layout,
        dim: int,
    ) -> Self:
        rows, values = indexes.view(indexes_layout), source.view(source_layout)
        return self._result(index.index_add(self.view(layout), self.dtype, rows, indexes.dtype, values, dim))

    def index_select(self, indexes: Self, layout: Layout, indexes_layout: Layout, dim: int) -> Self:
        return self._result(index.select(self.view(layout), indexes.view(indexes_layout), indexes.dtype, dim))

    def matmul(
        self,
        rhs: Self,
        bmnk: tuple[int, int, int, int],  # noqa: ARG002 - the layouts say it too
        lhs_layout: Layout,
        rhs_layout: Layout,
    ) -> Self:
        return self._result(matmul.matmul(self.view(lhs_layout), rhs.view(rhs_layout), self.dtype))

    def copy_strided_src(self, dst: Self, dst_offset: int, src_layout: Layout) -> None:
        array.copy(dst.view(Layout.contiguous(src_layout.shape, dst_offset)), self.view(src_layout))

    def copy2d(
        self,
        dst: Self,
        d1: int,
        d2: int,
        src_stride: int,
        dst_stride: int,
        src_offset: int,
        dst_offset: int,
    ) -> None:
        shape = Shape((d1, d2))
        source = self.view(Layout(shape, (src_stride, 1), src_offset))
        array.copy(dst.view(Layout(shape, (dst_stride, 1), dst_offset)), source)
