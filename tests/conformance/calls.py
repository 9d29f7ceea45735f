"""The smallest valid call of every cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tallow import GgmlDType
from tallow.examples import METHODS
from tallow.runtime.core.layout import Layout
from tallow.runtime.selftest import examples
from tallow.runtime.selftest.examples import ANY, another_dtype, device_arguments

from . import custom_ops
from .bench import shape_of

if TYPE_CHECKING:
    import tallow
    from tallow.runtime.doctor.support import SupportCell

__all__ = ["another_dtype", "device_arguments"]

# Makes a storage of a dtype's name and a length.
Make = Callable[[str, int], "tallow.Storage"]
# By name, in the order of the signature.
Arguments = dict[str, Any]

_CONV = {"b_size": 1, "c_in": 1, "c_out": 1, "padding": 0, "stride": 1, "dilation": 1}
LINE = {**_CONV, "l_in": 4, "k_size": 2}
IMAGE = {**_CONV, "i_h": 2, "i_w": 2, "k_h": 1, "k_w": 2}


def layout(*sizes: int) -> Layout:
    """A contiguous layout."""
    return Layout.contiguous(shape_of(*sizes))


def format_of(name: str) -> GgmlDType:
    """The package's block format of this name."""
    return GgmlDType(name)


def call_blocks(cell: SupportCell, blocks: tallow.QStorage, make: Make) -> object:
    """Call a method of weights in blocks, of which there are two rows of 256."""
    return _made(blocks, cell.method, block_arguments(cell, make))


def call_storage(cell: SupportCell, make: Make, number: int = examples.SMALLEST) -> object:
    """Call a storage method on a few elements of the cell's dtype, and what it needs besides."""
    return _made(*storage_call(cell, make, number))


def call_device(cell: SupportCell, device: tallow.Device) -> object:
    """Call a device method."""
    return _made(device, cell.method, device_arguments(cell))


def _made(owner: object, method: str, arguments: Arguments) -> object:
    called = getattr(owner, method)
    return called(*arguments.values()) if callable(called) else called


def block_arguments(cell: SupportCell, make: Make) -> Arguments:
    """Return the arguments of a method of two rows of 256 block-quantized weights."""
    return examples.block_arguments(cell, _any_numbers(make))


def small_examples(cell: SupportCell) -> range:
    """The numbers of the examples of a storage method but for the largest one."""
    return range(max(len(METHODS[cell.method].calls) - 1, 1))


def storage_call(
    cell: SupportCell, make: Make, number: int = examples.SMALLEST
) -> tuple[tallow.Storage, str, Arguments]:
    """The storage of a valid call of a cell, by default the smallest, its method and the arguments by name."""
    op = custom_op(cell.method) if is_custom(cell) else None
    return examples.storage_example(cell, _any_numbers(make), number, op=op)


def is_custom(cell: SupportCell) -> bool:
    """Whether a method calls an op that users write."""
    return cell.method.startswith(("apply_op", "inplace_op"))


def _any_numbers(make: Make) -> examples.Make:
    """Create storages of ones, of which calls are made or refused."""
    return lambda name, length, numbers=ANY: make(name, length)


def custom_op(method: str) -> object:
    """The op that `method` is called with."""
    return {
        "apply_op1": custom_ops.Interleave1,
        "apply_op2": custom_ops.Interleave2,
        "apply_op3": custom_ops.Interleave3,
        "inplace_op1": custom_ops.Reverse,
        "inplace_op2": custom_ops.Replace,
        "inplace_op3": custom_ops.Blend,
    }[method]()


def error_op(cell: SupportCell) -> str:
    """Return the op's name in errors: the unary op and so on if there is one, the custom op's name, or the method."""
    if is_custom(cell):
        return str(custom_op(cell.method).name)
    return cell.op or cell.method
