"""Runs a cell on the device under test and on NumPy with the same numbers, and compares the results."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ...kernels.constants import ROWS
from ..base.error import (
    BackendUnavailable,
    CompilationFailed,
    InvalidArgument,
    InvalidLayout,
    TallowError,
    UnsupportedDType,
)
from ..core.layout import Layout
from .examples import (
    ANY,
    LARGEST,
    Example,
    Numbers,
    block_arguments,
    block_count,
    contiguous,
    device_arguments,
    storage_example,
)

if TYPE_CHECKING:
    from ...device import Device
    from ...storage import Storage
    from ..doctor.support import SupportCell

_NOT_INITIALISED: Final = ("alloc_uninit",)
# Their vectors are unique up to a sign or a phase.
_DECOMPOSITIONS: Final = ("eig", "eigh", "qr", "svd")
# How many times more sensitive to rounding than sums the vectors of decompositions are, and exponentials of sums, of
# which attention of 16 bits may also round the probabilities to 16 bits.
_OF_DECOMPOSITIONS: Final = 256
_OF_ATTENTION: Final = 16
# Each step of these rounds what the next one multiplies by weights.
_RECURRENT: Final = tuple(f"{layer}{of}" for layer in ("lstm", "gru") for of in ("", "_with_products", "_gradient"))
_OF_RECURRENT: Final = 16
FORWARD: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    **{
        f"{op}_gradient": (
            op,
            ("", *[""] * facts.has_index, *[f"saved_{k}" for k in range(1, facts.number_results - facts.has_index)]),
        )
        for op, facts in ROWS.items()
        if facts.number_results
    },
    "scaled_dot_product_attention_gradient": (
        "scaled_dot_product_attention_with_logsumexp",
        ("result", "logsumexp"),
    ),
    "lstm_gradient": ("lstm_with_products", ("states", "products")),
    "gru_gradient": ("gru_with_products", ("states", "products")),
    "max_pool_gradient": ("max_pool", ("result",)),
    "normalize_groups_gradient": ("normalize_groups", ("result", "mean", "variance")),
}
"""The methods that compute arguments of gradients, and the arguments that are their results, "" for no argument."""


class Tolerance(NamedTuple):
    """The error bound of a result, in units of rounding of its dtype."""

    of_element: float
    """Factor of its own magnitude."""
    of_typical: float
    """Factor of the median magnitude of the results: sums of terms of both signs cancel."""


# For dtypes that are computed in a wider one and rounded once.
_ROUNDED_ONCE: Final = Tolerance(2, 1)
_COMPUTED: Final = Tolerance(8, 128)


def name_of(cell: SupportCell) -> str:
    """The name of a cell in reports."""
    return " ".join(filter(None, [cell.method, cell.op, cell.dtype and cell.dtype.value]))


def strided(sizes: Sequence[int]) -> Layout:
    """A layout with an offset whose first dim has the smallest stride, and with gaps between elements."""
    strides, step = [], 2
    for size in sizes:
        strides.append(step)
        step *= size + 1
    return Layout(tuple(sizes), strides, 5)


def reference() -> Device:
    """The CPU, on which NumPy does all work: independent of every kernel."""
    from ...backends import CpuDevice
    from ...device import Device

    inner = CpuDevice(0)
    # The value of the cached property.
    inner.__dict__["kernels"] = None
    return Device(inner)


def array(generator: np.random.Generator, name: str, length: int, numbers: Numbers = ANY) -> Array:
    """Return random numbers that all floats but those of 8 bits represent exactly; some are equal."""
    dtype = DType(name)
    if numbers.below is not None:
        return generator.integers(0, numbers.below, length).astype(dtype.numpy)
    if numbers.matrix is not None:
        return _matrix(generator, numbers.matrix, length, dtype)
    if dtype.kind in ("bool", "unsigned", "signed"):
        least = -5 if dtype.kind == "signed" else 0
        values: Array = generator.integers(least, 2 if dtype.kind == "bool" else 10, length)
        if numbers.units:
            values = np.where(values % 2, 1, 1 if least == 0 else -1)
    else:
        values = generator.integers(-16, 17, length) / 8
        if dtype.is_complex:
            values = values + 1j * generator.integers(-16, 17, length) / 8
        if numbers.units:
            values = np.where(values.real > 0, 1, -1)
        elif numbers.positive:
            values = 0.25 + np.abs(values) / 4
        elif numbers.small:
            values = values / 8
    if numbers.ascending:
        values = np.sort(values)
    return values.astype(dtype.numpy)


def _matrix(generator: np.random.Generator, where: Layout, length: int, dtype: DType) -> Array:
    """Return a storage with a Hermitian matrix whose eigenvalues are near 1, 2, 3 and so on, and zeros around it."""
    rows = where.shape[0]
    noise = generator.standard_normal((rows, rows)) / (8 * rows)
    if dtype.is_complex:
        noise = noise + 1j * generator.standard_normal((rows, rows)) / (8 * rows)
    elements = np.zeros(length, dtype.numpy)
    down, right = np.indices(where.shape)
    offsets = where.start_offset + down * where.strides[0] + right * where.strides[1]
    elements[offsets] = np.diag(np.arange(1.0, rows + 1)) + noise + noise.conj().T
    return elements


def example(
    cell: SupportCell, device: Device, lay: Callable[[Sequence[int]], Layout] = contiguous
) -> tuple[Example, list[Storage]]:
    """Return the call of a cell on a device, and its storages. The numbers depend on the cell alone."""
    generator = np.random.default_rng(zlib.crc32(name_of(cell).encode()))
    operands: list[Storage] = []

    def make(name: str, length: int, /, numbers: Numbers = ANY) -> Storage:
        operands.append(device.storage(array(generator, name, length, numbers)))
        return operands[-1]

    if hasattr(type(device), cell.method):
        device.set_seed(7)
        return Example(device, cell.method, device_arguments(cell, LARGEST)), operands
    if isinstance(cell.dtype, GgmlDType):
        weights = device.quantized_from_data(_blocks(cell.dtype, block_count(cell, LARGEST)), cell.dtype)
        return Example(weights, cell.method, block_arguments(cell, make, LARGEST)), operands
    return consistent(storage_example(cell, make, LARGEST, lay)), operands


def consistent(example: Example) -> Example:
    """Pass to a gradient the results of its function, instead of random numbers."""
    method, keys = FORWARD.get(example.method, ("", ()))
    if method:
        function = getattr(example.owner, method)
        names = [*inspect.signature(function).parameters]
        # What a gradient does not depend on, such as a bias, is left out.
        results = function(**{name: name == "saves" or example.arguments.get(name) for name in names})
        results = results if isinstance(results, tuple) else (results,)
        for key, result in zip(keys, results[: len(keys)], strict=True):
            if key in example.arguments:
                example.arguments[key] = result
                example.arguments[f"{key}_layout"] = example.arguments[f"{key}_layout"].dense
    return example


_encoded: dict[tuple[GgmlDType, int], Array] = {}


def _blocks(dtype: GgmlDType, count: int) -> Array:
    """Return block-quantized weights: encoded by NumPy, or random bits of a format that weights are not rounded to."""
    if (dtype, count) not in _encoded:
        generator = np.random.default_rng(1)
        device = reference()
        weights = device.quantized_zeros(count, dtype)
        source = device.storage(array(generator, "f32", count))
        try:
            weights.quantize(source, Layout.contiguous((count,)))
            _encoded[dtype, count] = np.array(weights.data)
        except UnsupportedDType:
            _encoded[dtype, count] = _random_blocks(generator, dtype, count)
    return _encoded[dtype, count]


def _random_blocks(generator: np.random.Generator, dtype: GgmlDType, count: int) -> Array:
    """Return blocks of random bits, whose scales are small numbers."""
    size = count // dtype.block_size * dtype.type_size
    blocks = generator.integers(0, 256, size, np.uint8).view(dtype.numpy)
    for name in blocks.dtype.names or ():
        if blocks.dtype[name].base.kind == "f":
            blocks[name] = generator.uniform(0.001, 0.01, blocks[name].shape)
    return blocks.view(np.uint8)


def run(
    cell: SupportCell, device: Device, lay: Callable[[Sequence[int]], Layout] = contiguous
) -> list[Array] | TallowError:
    """Return the results of a call and its operands afterwards, or the error by which it refuses a layout."""
    try:
        call, operands = example(cell, device, lay)
        try:
            result = call.call()
        except UnsupportedDType:
            result = _unfused(call)
    except (InvalidArgument, InvalidLayout) as error:
        return error
    results = [*_arrays(result), *(operand.to_numpy() for operand in operands)]
    if cell.method == "quantize":
        results.append(np.array(call.owner.data))
    device.synchronize()
    return results if cell.method not in _NOT_INITIALISED else [np.array(each.shape) for each in results]


def _unfused(call: Example) -> Any:
    """Return the result of a fused product by its two ops."""
    from ...op import BinaryOp

    arguments = call.arguments
    x, layout, weights = arguments["x"], arguments["layout"], call.owner
    if call.method == "fwd_rms_norm":
        names = ("weight", "weight_layout", "residual", "residual_layout", "eps")
        x, *sums = x.rms_norm(layout, *(arguments[name] for name in names))
    else:
        x, sums = x.binary_impl(BinaryOp.SILU_MUL, arguments["y"], layout, arguments["y_layout"]), []
    return weights.fwd(arguments["rows"], arguments["hidden"], x, layout, arguments["activations"]), *sums


def _arrays(result: Any) -> Iterator[Array]:
    if isinstance(result, tuple | list):
        for each in result:
            yield from _arrays(each)
    elif hasattr(result, "to_numpy"):
        yield result.to_numpy()
    elif hasattr(result, "data") and hasattr(result, "dtype"):
        yield np.array(result.data)
    elif isinstance(result, int | float):
        yield np.array(result)


def fault(
    cell: SupportCell, device: Device, trusted: Device, lay: Callable[[Sequence[int]], Layout] = contiguous
) -> str | None:
    """Return how the result of a cell differs from that of NumPy, or the error; None if it agrees."""
    try:
        expected = run(cell, trusted, lay)
    except Exception as error:  # a cell that cannot be compared is not right either
        return f"there is nothing to compare it with: {type(error).__name__}: {error}"
    try:
        actual = run(cell, device, lay)
    except BackendUnavailable as error:
        return error.reason
    except CompilationFailed as error:
        return f"{error.compiler} does not compile kernel {error.kernel} for {error.target}: {_first_line(error.log)}"
    except Exception as error:  # whatever it is, this cell fails, and the others are tried
        return f"{type(error).__name__}: {error}"
    if isinstance(expected, TallowError) or isinstance(actual, TallowError):
        return (
            None if type(expected) is type(actual) else f"NumPy gives {expected!r:.80}, and the device {actual!r:.80}"
        )
    if len(expected) != len(actual):
        return f"{len(actual)} results instead of {len(expected)}"
    if cell.method in _DECOMPOSITIONS:
        expected, actual = (list(map(np.abs, each)) for each in (expected, actual))
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        if (difference := different(one, other, slack(cell))) is not None:
            return difference if number == 0 else f"result or operand {number + 1}: {difference}"
    return None


def slack(cell: SupportCell) -> float:
    """Return the factor of the error bounds of a cell."""
    if cell.method in _DECOMPOSITIONS:
        return _OF_DECOMPOSITIONS
    if cell.method in _RECURRENT:
        return _OF_RECURRENT
    is_short = isinstance(cell.dtype, DType) and cell.dtype.is_narrow
    return _OF_ATTENTION if "attention" in cell.method and not is_short else 1


def _first_line(log: str) -> str:
    lines = log.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")


def different(actual: Array, expected: Array, factor: float = 1) -> str | None:
    """Return how two results differ; None if they agree within rounding."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.shape} elements of {actual.dtype} instead of {expected.shape} of {expected.dtype}"
    dtype = DType.from_numpy(expected.dtype)
    if dtype.is_inexact:
        wide = np.complex128 if dtype.is_complex else np.float64
        wrong = ~_close(actual.astype(wide), expected.astype(wide), dtype, factor)
    else:
        wrong = actual != expected
    if not wrong.any():
        return None
    first = int(np.flatnonzero(wrong)[0])
    shown = f"element {first} is {actual.reshape(-1)[first]} instead of {expected.reshape(-1)[first]}"
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong: {shown}"


def _close(actual: Array, expected: Array, dtype: DType, factor: float) -> Array:
    tolerance = _COMPUTED if dtype.compute is dtype else _ROUNDED_ONCE
    with np.errstate(all="ignore"):
        magnitudes = np.abs(expected)
        ordinary = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
        typical = float(np.median(ordinary)) if ordinary.size else 0.0
        allowed = factor * _unit(dtype) * (tolerance.of_element * magnitudes + tolerance.of_typical * typical)
        close = (np.abs(actual - expected) <= allowed) & np.isfinite(magnitudes)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    result: Array = close | same
    return result


def _unit(dtype: DType) -> float:
    """The distance of 1 to the next number of a dtype, or of the parts of complex numbers."""
    return dtype.real.format.eps
