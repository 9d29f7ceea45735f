"""The base of all parts of a tensor: a storage, a layout, and the methods that call ops of the storage."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, ClassVar, Final, ParamSpec, Self, TypeVar

import numpy as np

from ...device import Device
from ...dtype import Array, DType
from ...op import BinaryGradientOp, BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryGradientOp, UnaryOp
from ...promotion import promoted
from ...storage import Storage
from ..base.error import InvalidArgument, TallowError, UnsupportedOperand, type_name
from ..core import argument
from ..core.argument import DTypeLike
from ..core.extensions import extensions
from ..core.layout import Layout
from ..core.shape import Shape
from ..custom.user_kernel import KernelOperand
from ..storage.calls import live_autocasts, new
from .layouts import Ends, aligned, aligned_layouts, broadcast, padding, paddings, reduction, reductions
from .number import as_number
from .promotion import DTYPE_ERRORS, second_dtype

# Reductions whose result is one of the elements, or no sum.
_SELECTIONS: Final = frozenset({"min", "max", "any", "all", "argmin", "argmax"})
_MAX_VIEWS: Final = 1 << 20

device_of: Final = Device._of

P = ParamSpec("P")
R = TypeVar("R")


def named(method: Callable[P, R]) -> Callable[P, R]:
    """Have errors of what a method calls name that method."""

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(*arguments, **options)
        except TallowError as error:
            error.rename(method.__name__)
            raise

    return call


class TensorBase(KernelOperand):
    """Elements in a storage, and the layout that says where in it they are."""

    __slots__ = ("__weakref__", "_layout", "_storage")

    _layout: Layout
    _storage: Storage

    # The class of what ops make of tensors of a class: the class itself, unless it says otherwise.
    _result_class: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        if "_result_class" not in vars(cls):
            cls._result_class = cls

    @classmethod
    def _new(cls, storage: Storage, layout: Layout) -> Self:
        tensor = new(cls)
        tensor._storage = storage
        tensor._layout = layout
        return tensor

    def _like(self, storage: Storage) -> Self:
        tensor: Self = new(self._result_class)
        layout = self._layout
        tensor._storage = storage
        tensor._layout = layout._dense or layout.dense
        return tensor

    def _preserved(self, storage: Storage) -> Self:
        """The elementwise result of the dims in the order of memory, `layout.ordered`."""
        tensor: Self = new(self._result_class)
        layout = self._layout
        tensor._storage = storage
        tensor._layout = layout._preserved or layout.preserved
        return tensor

    def _shaped(self, storage: Storage, shape: Sequence[int]) -> Self:
        tensor: Self = self._result_class._new(storage, Layout.contiguous(shape))
        return tensor

    @property
    def storage(self) -> Storage:
        """The storage that holds the elements; views share it.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.T.storage is x.storage
        True
        """
        return self._storage

    @property
    def layout(self) -> Layout:
        """Where in the storage the elements are.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.T.layout
        Layout(shape=(3, 2), strides=(1, 3), start_offset=0)
        """
        return self._layout

    def _kernel_operand(self) -> tuple[Any, Layout]:
        return self.storage.inner, self.layout

    @property
    def shape(self) -> Shape:
        """The sizes of the dims.

        >>> tl.zeros((2, 3)).shape
        (2, 3)
        """
        return self._layout.shape

    @property
    def rank(self) -> int:
        """The number of dims.

        >>> tl.zeros((2, 3)).rank
        2
        """
        return len(self._layout.shape)

    @property
    def elem_count(self) -> int:
        """The number of elements.

        >>> tl.zeros((2, 3)).elem_count
        6
        """
        return self._layout.shape.elem_count

    @property
    def dtype(self) -> DType:
        """The dtype of the elements.

        >>> tl.zeros(2).dtype == "f32"
        True
        """
        dtype: DType = self._storage.inner.dtype
        return dtype

    @property
    def device(self) -> Device:
        """The device that holds the elements.

        >>> tl.zeros(2).device
        Device(cpu)
        """
        return self._storage.device

    def is_contiguous(self) -> bool:
        """Return True if the elements are contiguous in row-major order in the storage.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.is_contiguous(), x.T.is_contiguous()
        (True, False)
        """
        return self._layout.is_contiguous

    def _unary(self, op: UnaryOp) -> Self:
        tensor: Self = new(self._result_class)
        layout = self._layout
        tensor._storage = self._storage.unary_impl(op, layout._ordered or layout.ordered)
        tensor._layout = layout._preserved or layout.preserved
        return tensor

    def _binary(self, op: BinaryOp, other: Self | Array | complex, reflected: bool = False) -> Self:
        lhs, layout = self._storage, self._layout
        if isinstance(other, TensorBase):
            rhs, other_layout = other._storage, other._layout
            if layout is other_layout:
                preserved = layout._preserved or layout.preserved
                layout = other_layout = layout._ordered or layout.ordered
            else:
                key = layout.number, other_layout.number
                layout, other_layout, preserved = aligned_layouts.get(key) or aligned(op.value, layout, other_layout)
        else:
            try:
                rhs = self._number(op.value, other)
                preserved, layout = layout._preserved or layout.preserved, layout._ordered or layout.ordered
                other_layout = layout._repeated or layout.repeated
            except InvalidArgument:
                array = self._of_host(op.value, other)
                if array is None:
                    raise
                return array._binary(op, self) if reflected else self._binary(op, array)
            if reflected:
                lhs, rhs, layout, other_layout = rhs, lhs, other_layout, layout
        tensor: Self = new(self._result_class)
        try:
            tensor._storage = lhs.binary_impl(op, rhs, layout, other_layout)
        except DTYPE_ERRORS as error:
            common = second_dtype(error, lhs.dtype, rhs.dtype)
        else:
            tensor._layout = preserved
            return tensor
        other = other.to_dtype(common) if isinstance(other, TensorBase) else other
        return self.to_dtype(common)._binary(op, other, reflected)

    def _gradient(self, op: UnaryGradientOp | BinaryGradientOp, *others: Self) -> Self:
        """`op` of this tensor, the gradient of a result, and of what else it depends on, in the same shape."""
        gradient, layout = self._storage, self._layout
        tensor: Self = new(self._result_class)
        if isinstance(op, UnaryGradientOp):
            (x,) = others
            key = layout.number, x._layout.number
            layout, at_x, preserved = aligned_layouts.get(key) or aligned(op.value, layout, x._layout)
            tensor._storage = gradient.unary_gradient(op, layout, x._storage, at_x)
        else:
            x, y = others
            layout, at_x, at_y, preserved = aligned(op.value, layout, x._layout, y._layout)
            tensor._storage = gradient.binary_gradient(op, layout, x._storage, at_x, y._storage, at_y)
        tensor._layout = preserved
        return tensor

    def _gradients(self, method: Callable[..., tuple[Storage, ...]], *others: Self | float) -> tuple[Self, ...]:
        """The two results of a method of this tensor's storage, of others in the same shape, and of numbers."""
        tensors = [other for other in others if isinstance(other, TensorBase)]
        layout, *layouts, preserved = aligned("gradient", self._layout, *[other._layout for other in tensors])
        operands = [part for other, its in zip(tensors, layouts, strict=True) for part in (other._storage, its)]
        numbers = others[len(tensors) :]
        return tuple([self._new(storage, preserved) for storage in method(layout, *operands, *numbers)])

    def _with_operands(
        self, op: str, method: Callable[..., Storage], /, *others: object, **operands: Self | float
    ) -> Self:
        """Call the method `op` of this tensor's storage, with further operands by name and the other arguments."""
        tensors = [self._operand(op, operand, name) for name, operand in operands.items()]
        layout, *layouts, preserved = aligned(op, self._layout, *[tensor._layout for tensor in tensors])
        arguments = [part for tensor, other in zip(tensors, layouts, strict=True) for part in (tensor._storage, other)]
        return self._new(method(layout, *arguments, *others), preserved)

    def _of_rows(
        self,
        op: str,
        method: Callable[..., Storage],
        dim: int,
        axis: int | None,
        /,
        *numbers: float,
        **operands: Self | float,
    ) -> Self:
        """Call the method `op` of this tensor's storage along a dim, with further operands by name, all broadcast."""
        if live_autocasts:
            self, *others = extensions.widened(self, *operands.values())
            operands = dict(zip(operands, others, strict=True))
        if axis is not None:
            dim = argument.dim_of(op, dim, axis)
        tensors = [self._operand(op, operand, name) for name, operand in operands.items()]
        layout, *layouts = broadcast(op, self._layout, *[tensor._layout for tensor in tensors])
        arguments = [part for tensor, other in zip(tensors, layouts, strict=True) for part in (tensor._storage, other)]
        return self._new(method(layout, *arguments, layout.shape.dim(op, dim), *numbers), layout.dense)

    def _of_each_row(self, numbers: Storage, dim: int) -> Self:
        """Numbers of the rows along a dim, in the compute dtype, in the dtype of this tensor."""
        shape = [size for axis, size in enumerate(self._layout.shape) if axis != dim]
        return self._new(numbers, Layout.contiguous(shape)).to_dtype(self._storage.inner.dtype)

    def _padded(self, arrange: Callable[..., tuple[str, Ends]], *arguments: Hashable, value: complex = 0.0) -> Self:
        """Copy the tensor with dims padded, cut, rolled or reversed, as `arrange` says of the shape."""
        layout = self._layout
        key = arrange, layout.number, arguments
        plan = paddings.get(key) or paddings.put(key, padding(layout.shape, *arrange(layout.shape, *arguments)))
        border, before, after, layout = plan
        tensor: Self = new(self._result_class)
        tensor._storage = self._storage.pad(self._layout, border, before, after, value)
        tensor._layout = layout
        return tensor

    def _scan(self, op: MethodOp, dim: int, *options: bool) -> Self:
        """A scan along a dim, in its directions."""
        return self._like(getattr(self._storage, op.value)(self._layout, dim, *options))

    def _widened_integers(self) -> Self:
        """Truth values and integers of fewer bytes in i64; others as they are."""
        dtype = self.dtype
        is_short = not dtype.is_inexact and dtype.itemsize < DType.I64.itemsize
        return self.to_dtype(DType.I64) if is_short else self

    def _cmp(self, op: CmpOp, other: Self | Array | complex) -> Self:
        lhs, layout = self._storage, self._layout
        if isinstance(other, TensorBase):
            rhs, other_layout = other._storage, other._layout
            if lhs.inner.dtype is not rhs.inner.dtype:
                common = promoted(lhs.inner.dtype, rhs.inner.dtype)
                if common is not None:
                    return self.to_dtype(common)._cmp(op, other.to_dtype(common))
                if lhs.inner.dtype.is_integer and rhs.inner.dtype.is_integer:
                    return self._cmp_by_sign(op, other)
            if layout is other_layout:
                preserved = layout._preserved or layout.preserved
                layout = other_layout = layout._ordered or layout.ordered
            else:
                key = layout.number, other_layout.number
                layout, other_layout, preserved = aligned_layouts.get(key) or aligned(op.value, layout, other_layout)
        else:
            try:
                rhs = self._number(op.value, other)
                preserved, layout = layout._preserved or layout.preserved, layout._ordered or layout.ordered
                other_layout = layout._repeated or layout.repeated
            except InvalidArgument:
                array = self._of_host(op.value, other)
                if array is None:
                    raise
                return self._cmp(op, array)
        tensor: Self = new(self._result_class)
        try:
            tensor._storage = lhs.cmp(op, rhs, layout, other_layout)
        except DTYPE_ERRORS as error:
            common = second_dtype(error, lhs.dtype, rhs.dtype)
        else:
            tensor._layout = preserved
            return tensor
        return self.to_dtype(common)._cmp(op, other)

    def _cmp_by_sign(self, op: CmpOp, other: Self) -> Self:
        """Compare signed integers with unsigned ones that no signed dtype has: below 0 is below all of these."""
        unsigned, signed = (self, other) if self.dtype.kind == "unsigned" else (other, self)
        wide = unsigned.dtype
        compared = self.to_dtype(wide)._cmp(op, other.to_dtype(wide))
        if getattr(operator, op.value)(*((-1, 0) if signed is self else (0, -1))):
            return compared._cmp(CmpOp.GE, signed._cmp(CmpOp.GE, 0))
        return compared._cmp(CmpOp.GT, signed._cmp(CmpOp.LT, 0))

    def to_dtype(self, dtype: DTypeLike) -> Self:
        """Convert the elements; the tensor itself if they have the dtype already.

        Float to integer truncates and saturates, NaN gives 0; integer to integer wraps; to a float rounds once to
        nearest even, and f8e4m3 saturates at 448.

        >>> tl.Tensor([0, 1, 2]).to_dtype(tl.DType.F32)
        Tensor([0., 1., 2.], dtype=f32)
        >>> tl.Tensor([-1.7, 2.5, 300.0]).to_dtype("u8")
        Tensor([0, 2, 255], dtype=u8)
        """
        target = dtype if type(dtype) is DType else argument.dtype("to_dtype", "dtype", dtype)
        storage, layout = self._storage, self._layout
        if target is storage.inner.dtype:
            return self
        tensor: Self = new(self._result_class)
        tensor._storage = storage.to_dtype(layout._ordered or layout.ordered, target)
        tensor._layout = layout._preserved or layout.preserved
        return tensor

    def _reduce(
        self,
        op: ReduceOp | MethodOp,
        dim: int | Sequence[int] | None,
        keepdim: bool,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
        *parameters: float,
    ) -> Self:
        if axis is not None:
            dim = argument.dim_of(op.value, dim, axis)
        if keepdims is not None:
            keepdim = argument.by_other_name(op.value, "keepdim", keepdim, "keepdims", keepdims)
        if type(keepdim) is not bool:
            keepdim = argument.boolean(op.value, "keepdim", keepdim)
        if type(dim) is not int and dim is not None:
            if type(dim) is not tuple and not isinstance(dim, Sequence):
                dim = (argument.integer(op.value, "dim", dim),)
            dim = argument.integers(op.value, "dim", dim)
        if live_autocasts and op.value not in _SELECTIONS:
            (self,) = extensions.widened(self)
        layout = self._layout
        key = layout.number, dim, keepdim
        dims, result = reductions.get(key) or reductions.put(key, reduction(op.value, layout.shape, dim, keepdim))
        tensor: Self = new(self._result_class)
        if isinstance(op, ReduceOp):
            tensor._storage = self._storage.reduce_op(op, layout, dims)
        else:
            tensor._storage = getattr(self._storage, op.value)(layout, dims, *parameters)
        tensor._layout = result
        return tensor

    def _operand(self, op: str, other: Self | Array | complex, name: str = "other", dtype: DType | None = None) -> Self:
        """Return a tensor as it is, a number as one of rank 0 in a dtype, this tensor's, an array as one in its own.

        The new tensors are on the device of this one.
        """
        if isinstance(other, TensorBase):
            return other
        try:
            return self._new(self._number(op, other, name, dtype), Layout.contiguous(()))
        except InvalidArgument:
            array = self._of_host(op, other, name)
            if array is None:
                raise
            return array

    def _of_host(self, op: str, other: object, name: str = "other") -> Self | None:
        """Copy an array of NumPy's to the device of this tensor; None for what is none. A list is refused."""
        if isinstance(other, list | tuple):
            reason = f"{name} is a {type_name(other)}, and operands are tensors, arrays and numbers"
            raise UnsupportedOperand(op, f"{reason}; use Tensor(values, device=x.device)")
        if not isinstance(other, np.ndarray):
            return None
        if not other.ndim:
            # NumPy makes such arrays of its numbers, and numbers of such arrays.
            return self._operand(op, other.item(), name)
        return self._of_array(op, other, self.device)

    @classmethod
    def _of_array(cls, op: str, array: Array, device: Device) -> Self:
        # A storage has numbers in native byte order.
        array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        try:
            return cls._new(device.storage(array), Layout.contiguous(array.shape))
        except TallowError as error:
            error.rename(op)
            raise

    def _number(self, op: str, other: object, name: str = "other", dtype: DType | None = None) -> Storage:
        """Return a storage of a number in a dtype, by default this tensor's. It is read-only: no tensor exposes it.

        Of floats and a complex number the dtype is that of complex numbers of such floats.
        """
        inner = self._storage.inner
        if dtype is None:
            dtype = inner.dtype
        kind = type(other)
        if kind is not float and kind is not int:
            if isinstance(other, complex | np.complexfloating) and dtype.is_float:
                dtype = dtype.complex or dtype
            number = as_number(op, other, dtype, name=name)
            return Device(inner.device).storage_from_slice([number], dtype)
        # The two zeros are equal, and so are an int and a float.
        key = other or repr(other), kind, dtype
        numbers = inner.device.numbers
        storage: Storage | None = numbers.get(key)
        if storage is None:
            number = as_number(op, other, dtype, name=name)
            storage = Device(inner.device).storage_from_slice([number], dtype)
            storage.inner.share()
            numbers.put(key, storage)
        return storage


def require_few(op: str, views: int) -> None:
    """Raise `InvalidArgument` for a list of more views than anybody has the time or the memory for."""
    if views > _MAX_VIEWS:
        raise InvalidArgument(op, f"it would make {views} views, of at most {_MAX_VIEWS}; index the tensor instead")


def require_tensors(op: str, **operands: object) -> None:
    """Raise `InvalidArgument` if an operand, passed by its name, is anything else, such as a list or an array."""
    for name, operand in operands.items():
        if not isinstance(operand, TensorBase):
            # As PyTorch has it, a dim comes before indexes.
            is_dim = name == "indexes" and isinstance(operand, int)
            fix = f"; the dim comes after them: {op}({', '.join(operands)}, dim)" if is_dim else ""
            if isinstance(operand, list | tuple) or hasattr(operand, "__dlpack__"):
                fix = f"; convert it with Tensor({name})"
            raise InvalidArgument(op, f"{name} must be a Tensor, not of type {type_name(operand)}{fix}")


def parts(op: str, name: str, operand: TensorBase | None) -> tuple[Storage | None, Layout | None]:
    """Return the storage and the layout of an operand, None and None for one that is left out."""
    if operand is None:
        return None, None
    if not isinstance(operand, TensorBase):
        require_tensors(op, **{name: operand})
    return operand._storage, operand._layout
