"""Exchange with Python, NumPy and, by DLPack, with other tensor libraries; moves between devices."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from ...device import Device
from ...dtype import Array, DType
from ...storage import Storage
from ..base.error import GradientError, InvalidArgument, TallowError, UnsupportedDType
from ..core import argument, check
from ..core.argument import DTypeLike
from ..core.extensions import extensions
from ..core.layout import Layout
from ..helpers.host_memory import raises_out_of_memory, require_memory
from ..host import cast
from ..host.array import bits
from .base import TensorBase, device_of
from .math.logic import LogicMethods
from .number import from_lists


class SupportsDLPack(Protocol):
    """A tensor of any library that exports DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


def _require_plain(op: str, data: object) -> None:
    """Raise GradientError for nested lists with a recorded tensor, of which NumPy would take the elements alone."""
    if not isinstance(data, list | tuple):
        return
    kinds = set(map(type, data))
    if any(issubclass(kind, TensorBase) for kind in kinds) and any(
        isinstance(item, TensorBase) and item._storage.is_recorded for item in data
    ):
        raise GradientError(op, "stack is what joins a list of recorded tensors; use tallow.stack, or detach them")
    if any(issubclass(kind, list | tuple) for kind in kinds):
        for item in data:
            _require_plain(op, item)


def _is_foreign(data: object) -> bool:
    """Tell whether data is a tensor of another library than NumPy."""
    return hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray)


class InteropMethods(LogicMethods):
    """Conversions."""

    __slots__ = ()

    def __init__(
        self,
        data: ArrayLike | TensorBase,
        dtype: DTypeLike | None = None,
        device: Device | str | None = None,
        *,
        requires_grad: bool = False,
    ) -> None:
        """Make a tensor of numbers, nested lists of numbers, or an array, on `device` (by default the CPU).

        Without `dtype`, Python ints become i64, floats f32 and bools bool, and arrays keep their dtype. With it, an
        array is converted as `to_dtype` does, while Python numbers that an integer dtype lacks are an
        `InvalidArgument`, as are ints that i64 lacks where there is no `dtype`, lists of uneven lengths, and
        `requires_grad=True`, for which there is `Var`.
        """
        if requires_grad is not False:
            reason = "a Tensor has no gradient of its own; leave requires_grad out and make a variable of it"
            raise InvalidArgument("tensor", f"{reason}: tallow.Var(Tensor(data))")
        target = None if dtype is None else argument.dtype("tensor", "dtype", dtype)
        if isinstance(data, TensorBase) or _is_foreign(data):
            source = data if isinstance(data, TensorBase) else self._foreign("tensor", data)
            tensor = self._copied(source, target, device_of(device))
        else:
            if isinstance(data, np.ndarray | np.generic):
                array = np.asarray(data)
            else:
                _require_plain("tensor", data)
                array, target = from_lists(data, target)
            tensor = self._of_array("tensor", array, Device.cpu())
            tensor = (tensor if target is None else tensor.to_dtype(target)).to(device_of(device))
        self._storage, self._layout = tensor._storage, tensor._layout

    @classmethod
    def _copied(cls, source: Any, dtype: DType | None, device: Device) -> Self:
        """Copy a tensor, recorded if it is."""
        there = source.to(device, source.dtype if dtype is None else dtype)
        copy: Self = source.copy() if there._storage is source._storage else there
        return copy

    @classmethod
    def from_numpy(cls, array: Array, device: Device | str | None = None) -> Self:
        """Copy a NumPy array to a device, by default the CPU; the dtype stays.

        `InvalidArgument` for a dtype that no tensor has.

        >>> tl.from_numpy(np.array([1, 2], dtype=np.int16))
        Tensor([1, 2], dtype=i16)
        """
        if isinstance(array, TensorBase) or _is_foreign(array):
            source = array if isinstance(array, TensorBase) else cls._foreign("from_numpy", array)
            return cls._copied(source, None, device_of(device))
        _require_plain("from_numpy", array)
        try:
            elements = np.asarray(array)
        except (TypeError, ValueError) as error:
            raise InvalidArgument("from_numpy", f"array is none of NumPy's: {error}; use Tensor() for lists") from error
        return cls._of_array("from_numpy", elements, device_of(device))

    @classmethod
    def _foreign(cls, op: str, source: Any) -> Self:
        """The tensor of another library, which may have a dtype that NumPy lacks."""
        try:
            return cls.from_dlpack(source)
        except TallowError as error:
            error.rename(op)
            raise

    @raises_out_of_memory
    def numpy(self) -> Array:
        """Copy the elements to a NumPy array of the same shape and dtype.

        bf16 and 8-bit floats become types of ml_dtypes, and floats that it lacks a structured type of their bits.

        >>> tl.Tensor([1.0, 2.0]).numpy()
        array([1., 2.], dtype=float32)
        """
        require_memory(self.dtype, self.shape)
        view = self._host_view()
        if view is not None:
            return np.array(view, order="C")
        return self._whole().to_numpy().reshape(self.shape)

    def _whole(self) -> Storage:
        """Return a storage that holds the elements in row-major order, and nothing else."""
        is_whole = self._layout.is_contiguous and self._storage.length == self.elem_count
        return (self if is_whole else self.copy())._storage

    def _host_view(self) -> Array | None:
        """Return the elements as an array without a copy, where the backend keeps them in one; else None."""
        data = getattr(self._storage.inner, "data", None)
        if not isinstance(data, np.ndarray):
            return None
        layout = self._layout
        # as_strided checks nothing, and a user's op may have put another array into the storage.
        layout.check("numpy", data.size)
        strides = [stride * data.itemsize for stride in layout.strides]
        elements = np.lib.stride_tricks.as_strided(bits(data)[layout.start_offset :], layout.shape, strides)
        return elements.view(data.dtype)

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Array:
        """Serve np.asarray: a copy, or with copy=False the elements themselves, which only the CPU can give.

        `UnsupportedDType` where complex numbers would lose their imaginary parts.
        """
        if self.dtype.is_complex and dtype is not None and np.dtype(dtype).kind not in "cbO":
            reason = f"{np.dtype(dtype).name} {check.LACKS_PARTS}"
            raise UnsupportedDType("__array__", self.dtype, self.device.backend, reason)
        if copy is not False:
            array = self.numpy()
            return array if dtype is None else cast.plain(array).astype(dtype, copy=False)
        view = self._host_view()
        if view is None or dtype not in (None, view.dtype):
            raise ValueError("the elements can't be had as such an array without a copy; leave out copy=False")
        return view

    def tolist(self) -> Any:
        """Copy the elements to nested lists of Python numbers; a tensor of rank 0 gives the number itself.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.tolist()
        [[1, 2, 3], [4, 5, 6]]
        """
        return cast.plain(self.numpy()).tolist()

    def item(self) -> int | float:
        """Return the only element as a Python number; `InvalidArgument` if there are more or none.

        The element of a complex tensor is a complex number, which the annotation leaves out.

        >>> tl.Tensor([1.5, 2.0]).sum().item()
        3.5
        """
        layout = self._layout
        if layout.elem_count != 1:
            reason = f"a tensor of shape {self.shape} does not have one element; index it, reduce it or use tolist()"
            raise InvalidArgument("item", reason)
        data = getattr(self._storage.inner, "data", None)
        if isinstance(data, np.ndarray) and data.dtype.names is None:
            # A user's op may have put another array into the storage.
            layout.check("item", data.size)
            number: int | float = data.item(layout.start_offset)
        else:
            number = cast.plain(self.numpy()).item()
        return number

    def __bool__(self) -> bool:
        try:
            return self.item() != 0
        except InvalidArgument:
            reason = f"a tensor of shape {self.shape} is neither true nor false; use any() or all()"
            raise InvalidArgument("bool", reason) from None

    def __int__(self) -> int:
        return int(self._number_for("int"))

    def __float__(self) -> float:
        return float(self._number_for("float"))

    def __complex__(self) -> complex:
        return complex(self._number_for("complex"))

    def _number_for(self, op: str) -> int | float:
        try:
            return self.item()
        except TallowError as error:
            error.rename(op)
            raise

    def to(self, device: Device | DTypeLike | None = None, dtype: DTypeLike | None = None) -> Self:
        """Copy the tensor to another device, or another dtype, or both; the tensor itself if it has them already.

        `x.to("cpu")`, `x.to("f16")`, `x.to("cpu", "f16")`: one argument may be a device, its label, or a dtype. The
        narrower of the two dtypes is moved. From one GPU to another of the same backend the elements go by the driver's
        shortest path, and neither the host nor either device waits longer than it must; between other devices they go
        through the host.

        >>> x = tl.Tensor([1.5, 2.5])
        >>> x.to("f16")
        Tensor([1.5, 2.5], dtype=f16)
        >>> x.to("cpu", "i64")
        Tensor([1, 2], dtype=i64)
        """
        if dtype is None:
            if isinstance(device, Device):
                return self._moved(device)
            if argument.is_dtype(device):
                return self.to_dtype(device)
            if device is None:
                raise InvalidArgument("to", "give a device, its label, or a dtype")
            return self._moved(device_of(device))
        chosen = argument.dtype("to", "dtype", dtype)
        source = self.to_dtype(chosen) if chosen.itemsize < self.dtype.itemsize else self
        return (source if device is None else source._moved(device_of(device))).to_dtype(chosen)

    def _moved(self, target: Device) -> Self:
        if target == self.device:
            return self
        if self._storage.is_recorded:
            there: Self = extensions.move(self, target)
            return there
        moved = target.inner.copy_of(self._whole().inner) if target.backend == self.device.backend else None
        storage = target.storage_owned(self.numpy()) if moved is None else Storage(moved)
        return self._new(storage, Layout.contiguous(self.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the elements of the tensor alone, and its device, to which they return: a view takes no others along.

        Unpickling is a `BackendUnavailable` error where the device is not there.
        """
        return type(self).from_numpy, (self.numpy(), self.device)

    def __copy__(self) -> Self:
        return self._new(self._storage, self._layout)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the elements to another library without a copy. NumPy itself takes those of dtypes that it has.

        The options are those of the protocol: a stream of the device that shall wait for the elements, `copy=True` for
        a copy of them. With the CPU as `dl_device` they are copied there, unless `copy=False`; any other device than
        the tensor's own is a BufferError, as the protocol has it.
        """
        if dl_device is not None:
            chosen, host = argument.integers("dlpack", "dl_device", dl_device, 2), Device.cpu()
            if chosen != self.device.dlpack:
                if chosen == host.dlpack and copy is not False:
                    return self.to(host).__dlpack__(max_version=max_version)
                raise BufferError(f"the elements are on {self.device.label}; use to() to move them first")
        if self._storage.is_recorded:
            raise GradientError("dlpack", "other libraries record nothing of this tensor; export x.detach()")
        self._layout.check("dlpack", self._storage.length)
        options: dict[str, Any] = {}
        if stream is not None:
            options["stream"] = argument.integer("dlpack", "stream", stream)
        if max_version is not None:
            options["max_version"] = argument.integers("dlpack", "max_version", max_version, 2)
        if copy is not None:
            options["copy"] = argument.boolean("dlpack", "copy", copy)
        return self._storage.inner.to_dlpack(self._layout, **options)

    @classmethod
    def from_dlpack(cls, source: SupportsDLPack, *, device: Device | str | None = None) -> Self:
        """Import a tensor of another library, on the device that it is on.

        The memory is shared; on the CPU only if the library lets it be written and the elements are in row-major order,
        else they are copied. `device` chooses among several that have this memory, as backends on array libraries do.

        >>> array = np.ones(3)
        >>> x = tl.from_dlpack(array)
        >>> x += 1
        >>> array
        array([2., 2., 2.])
        """
        if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
            reason = f"source must export DLPack; its type {type(source).__name__} doesn't"
            raise InvalidArgument("from_dlpack", f"{reason}; use Tensor() for what is none")
        try:
            kind, ordinal = source.__dlpack_device__()
            identity = int(kind), int(ordinal)
            chosen = Device.of_dlpack(*identity) if device is None else device_of(device)
            if chosen.dlpack != identity:
                reason = f"source is on device {identity} of DLPack, and {chosen.label} is {chosen.dlpack}"
                raise InvalidArgument("from_dlpack", f"{reason}; move it, or leave device out")
            inner, layout = chosen.inner.from_dlpack(source)
        except TallowError:
            raise
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            reason = "detach the tensor, or move it to the CPU and to a dtype that NumPy has"
            raise InvalidArgument("from_dlpack", f"source gives no tensor: {error}; {reason} first") from error
        return cls._new(Storage(inner), layout)
