"""`autocast`: products of matrices and convolutions in 16 bits, and in f32 what sums up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, finalize

from ...dtype import DType
from ...storage import Storage
from ..base.error import InvalidArgument
from ..core import argument
from ..core.argument import DTypeLike
from ..core.extensions import extensions
from ..core.layout import Layout
from ..gradient.node import Node
from ..gradient.recording import mode
from ..storage.calls import live_autocasts
from ..tensor import Tensor

_SHORT: Final = (DType.BF16, DType.F16)
_CAST: Final = (*_SHORT, DType.F32)


class _Cast(NamedTuple):
    """The elements of a variable in another dtype."""

    version: Any
    records: bool
    storage: Any

    def is_of(self, version: Any, records: bool) -> bool:
        """Return True if the variable has not changed since, and gradients propagate as they did then."""
        node = self.storage.inner
        is_freed = type(node) is Node and node.is_freed
        return self.version is version and self.records is records and not is_freed


class _Block:
    """An active block of `autocast`, or one that the second call of `checkpoint` repeats."""

    __slots__ = ("__weakref__", "casts", "dtype")

    def __init__(self, dtype: DType) -> None:
        live_autocasts.append(None)
        # Contexts that backward uses keep their block alive.
        finalize(self, live_autocasts.pop).atexit = False
        self.dtype = dtype
        self.casts: WeakKeyDictionary[Storage, _Cast] = WeakKeyDictionary()

    def cast(self, x: Tensor) -> Tensor:
        """A tensor in the dtype of the block; a variable is cast once, until it changes."""
        storage: Any = x._storage
        node = storage.inner
        is_variable = type(node) is Node and node.rule is None
        # A graph that is replayed casts what its variables are by then.
        if not is_variable or 2 * x.elem_count < node.length or node.device.is_capturing:
            return x.to_dtype(self.dtype)
        version, records = storage.value.written, mode().records
        entry = self.casts.get(storage)
        if entry is None or not entry.is_of(version, records):
            elements = storage.to_dtype(Layout.contiguous((node.length,)), self.dtype)
            entry = self.casts[storage] = _Cast(version, records, elements)
        cast: Tensor = x._result_class._new(entry.storage, x._layout)
        return cast


_block: Final[ContextVar[_Block | None]] = ContextVar("tallow_autocast", default=None)


def autocast(dtype: DTypeLike) -> AbstractContextManager[None]:
    """Compute products of matrices and convolutions in 16 bits in a block, and in f32 what needs its precision.

    `dtype` is bf16 or f16; f32 turns `autocast` off in an inner block. Variables stay in f32, and so do their
    gradients. Operands of f32, f16 and bf16 are converted:

    - to `dtype`: `matmul`, `linear`, `einsum`, convolutions, attention, and the layers and cells of `lstm` and `gru`;
    - to f32: softmax and what else follows from rows, norms, losses, and reductions and scans that sum or multiply.

    All other ops take operands as they are, and promote where these differ. A call with an operand of f64 stays in f64.
    Backward runs outside of the block, in the dtypes of forward. A variable is converted once in a block, until it
    changes. The function that the block is in may be compiled by `fuse`, whose functions run op by op in it. For f16
    use `tl.optim.LossScaler`, so that small gradients do not become 0.

    >>> w = tl.Var(tl.ones((3, 2)))
    >>> with tl.autocast("bf16"):
    ...     y = tl.ones((4, 3)) @ w
    ...     loss = y.softmax(1).sum()
    >>> y.dtype.value, loss.dtype.value
    ('bf16', 'f32')
    >>> loss.backward()[w].dtype.value
    'f32'
    """
    target = argument.dtype("autocast", "dtype", dtype)
    if target not in _CAST:
        raise InvalidArgument("autocast", f"dtype is bf16 or f16, or f32 for none, not {target.value}")
    return _casting(target)


@contextmanager
def _casting(dtype: DType) -> Iterator[None]:
    """Convert operands to a dtype in a block; none of them for f32."""
    before = _block.get()
    _block.set(None if dtype is DType.F32 else _Block(dtype))
    try:
        yield
    finally:
        _block.set(before)


def _narrowed(*operands: Any) -> tuple[Any, ...]:
    """Operands of a product in the dtype of the block around; those that are no tensors stay."""
    block = _block.get()
    tensors = [it for it in operands if isinstance(it, Tensor)]
    if block is None or not all(it.dtype in _CAST or not it.dtype.is_inexact for it in tensors):
        return operands
    return tuple(
        [
            block.cast(it) if isinstance(it, Tensor) and it.dtype in _CAST and it.dtype is not block.dtype else it
            for it in operands
        ]
    )


def _widened(*operands: Any) -> tuple[Any, ...]:
    """Operands in f32 that have 16 bits, in a block."""
    if _block.get() is None:
        return operands
    return tuple([it.to_dtype(DType.F32) if isinstance(it, Tensor) and it.dtype in _SHORT else it for it in operands])


extensions.provide(
    narrowed=_narrowed, widened=_widened, is_cast=_block.get, without_autocast=partial(_casting, DType.F32)
)
