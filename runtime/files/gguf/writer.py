"""Tensors and metadata written to GGUF files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from ....dtype import Array
from ....ggml_dtype import GgmlDType
from ...base.error import InvalidArgument, describe, type_name
from ...core import argument
from ...quantized import QTensor
from ...tensor import Tensor
from ..content import Appending, checked_path, written
from .file import PLAIN
from .header import ALIGNMENT, MAGIC, MAX_DIMS, VERSIONS, alignment_of
from .metadata import ARRAY, ARRAY_HEAD, KIND, MAX_NESTED, NUMBERS, SIZE, TEXT, Value

_OPERATION: Final = "save_gguf"
_KINDS: Final = {dtype: kind for kind, dtype in NUMBERS.items()}
_STORED: Final = {dtype: stored for stored, dtype in PLAIN.items()}
# What a Python number is written as: the first that holds it. Readers of models look for these.
_INTEGERS: Final = ("<u4", "<i4", "<u8", "<i8")
_FLOAT: Final = np.dtype("<f4")


class _Planned(NamedTuple):
    """A tensor to write, and its offset after the header."""

    name: str
    dtype: GgmlDType
    tensor: Tensor | QTensor
    offset: int
    nbytes: int


def save_gguf(
    tensors: Mapping[str, Tensor | QTensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, Value] | None = None,
    *,
    version: int = 3,
) -> None:
    """Write tensors by name, and metadata by key, to a GGUF file. Replaces the file atomically.

    An int is written as u32 where that has it, else as i32, u64 or i64, a float as f32; a NumPy number, or an array of
    them, keeps its dtype. Tensors begin at multiples of what `general.alignment` says, 32 bytes by default.

    `InvalidArgument`, which names the tensor or the key, for what the format cannot hold: tensors of more than four
    dims, of no elements or, where they are not block-quantized, of other dtypes than f32, f16 and bf16, and values of
    other types; `FileError` where the file cannot be written.

    >>> from tallow import gguf
    >>> gguf.save_gguf({"weight": tl.ones((2, 32))}, "model.gguf", {"general.architecture": "llama"})
    >>> with gguf.open_gguf("model.gguf") as file:
    ...     file["weight"].shape
    (2, 32)
    """
    name = checked_path(_OPERATION, path)
    if argument.integer(_OPERATION, "version", version) not in VERSIONS:
        raise InvalidArgument(_OPERATION, f"version must be {' or '.join(map(str, VERSIONS))}, not {describe(version)}")
    values = _checked("metadata", {} if metadata is None else metadata)
    try:
        alignment = alignment_of(values)
    except ValueError as error:
        raise InvalidArgument(_OPERATION, f"metadata: key '{ALIGNMENT}' {error}") from None
    plan = list(_planned(_checked("tensors", tensors), alignment))
    head = b"".join(_head(version, plan, values))
    with written(_OPERATION, name) as stream:
        stream.write(head)
        _pad(stream, len(head), alignment)
        for tensor in plan:
            stream.write(_bytes(tensor.tensor))
            _pad(stream, tensor.nbytes, alignment)


def _bytes(tensor: Tensor | QTensor) -> memoryview:
    content: Array = tensor.data if isinstance(tensor, QTensor) else tensor.numpy()
    return content.reshape(-1).view(np.uint8).data


def _pad(stream: BinaryIO | Appending, nbytes: int, alignment: int) -> None:
    stream.write(bytes(-nbytes % alignment))


def _checked(what: str, values: object) -> Mapping[str, object]:
    if not isinstance(values, Mapping):
        raise InvalidArgument(_OPERATION, f"{what} must be a dict by name, not of type {type_name(values)}")
    for name in values:
        _text(f"{what}: the name", name)
    return values


def _text(what: str, text: object) -> bytes:
    """The length of a text, and its bytes."""
    try:
        if isinstance(text, str):
            encoded = text.encode()
            return SIZE.pack(len(encoded)) + encoded
    except UnicodeEncodeError:
        pass
    raise InvalidArgument(_OPERATION, f"{what} must be a str that UTF-8 can hold, not {describe(text)}")


def _planned(tensors: Mapping[str, object], alignment: int) -> Iterator[_Planned]:
    offset = 0
    for name, tensor in tensors.items():
        what = f"tensors: '{name}'"
        if not isinstance(tensor, Tensor | QTensor):
            reason = f"{what} must be a Tensor or a QTensor, not of type {type_name(tensor)}"
            raise InvalidArgument(_OPERATION, reason)
        dtype = tensor.dtype if isinstance(tensor, QTensor) else _STORED.get(tensor.dtype)
        if dtype is None:
            known = ", ".join(known.value for known in _STORED)
            raise InvalidArgument(_OPERATION, f"{what} is of {tensor.dtype.value}; convert it to one of {known}")
        if tensor.rank > MAX_DIMS or not tensor.shape.elem_count:
            reason = f"{what} has shape {tensor.shape}; it must have elements, and at most {MAX_DIMS} dims"
            raise InvalidArgument(_OPERATION, reason)
        nbytes = tensor.shape.elem_count // dtype.block_size * dtype.type_size
        yield _Planned(name, dtype, tensor, offset, nbytes)
        offset += -(-nbytes // alignment) * alignment


def _head(version: int, plan: Sequence[_Planned], values: Mapping[str, object]) -> Iterator[bytes]:
    yield MAGIC + KIND.pack(version) + SIZE.pack(len(plan)) + SIZE.pack(len(values))
    for key, value in values.items():
        what = f"metadata: key '{key}'"
        kind, body = _value(what, value, 0)
        yield _text(what, key) + KIND.pack(kind) + body
    for tensor in plan:
        shape = tensor.tensor.shape
        yield (
            _text("tensors: the name", tensor.name)
            + KIND.pack(len(shape))
            + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        )
        yield KIND.pack(tensor.dtype.to_u32()) + SIZE.pack(tensor.offset)


def _value(what: str, value: object, depth: int) -> tuple[int, bytes]:
    """The kind of a value, and its bytes."""
    if isinstance(value, str):
        return TEXT, _text(what, value)
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        if depth > MAX_NESTED:
            raise InvalidArgument(_OPERATION, f"{what} has arrays nested deeper than {MAX_NESTED}; flatten them")
        return ARRAY, _array(what, value, depth)
    number = _numbers(what, value)
    return _KINDS[number.dtype], number.tobytes()


def _array(what: str, value: Sequence[object] | Array, depth: int) -> bytes:
    if not isinstance(value, np.ndarray):
        if all(isinstance(item, str) for item in value):
            return ARRAY_HEAD.pack(TEXT, len(value)) + b"".join(_text(what, item) for item in value)
        if any(isinstance(item, list | tuple | np.ndarray) for item in value):
            items = [_value(what, item, depth + 1) for item in value]
            if {kind for kind, _ in items} != {ARRAY}:
                raise InvalidArgument(_OPERATION, f"{what} mixes arrays with other values; give one or the other")
            return ARRAY_HEAD.pack(ARRAY, len(items)) + b"".join(body for _, body in items)
    numbers = _numbers(what, value)
    if numbers.ndim != 1:
        raise InvalidArgument(_OPERATION, f"{what} is an array of {numbers.ndim} dims; give one, or nested lists")
    return ARRAY_HEAD.pack(_KINDS[numbers.dtype], numbers.size) + numbers.tobytes()


def _numbers(what: str, value: object) -> Array:
    """Numbers in a dtype that the format has."""
    numbers = (
        np.asarray(value) if isinstance(value, bool | int | float | list | tuple | np.generic | np.ndarray) else None
    )
    if numbers is None or numbers.dtype.kind not in "biuf":
        reason = f"{what} must be a bool, a number, a str, or an array of one of them, not {describe(value)}"
        raise InvalidArgument(_OPERATION, reason)
    if not isinstance(value, np.generic | np.ndarray) and numbers.dtype.kind != "b":
        with np.errstate(over="ignore"):
            narrow = numbers.astype(_FLOAT if numbers.dtype.kind == "f" else _integers(numbers))
        if not np.array_equal(np.isfinite(narrow), np.isfinite(numbers)):
            raise InvalidArgument(_OPERATION, f"{what} is beyond f32, which floats become; give a NumPy float64")
        numbers = narrow
    dtype = numbers.dtype.newbyteorder("<")
    if dtype not in _KINDS:
        raise InvalidArgument(_OPERATION, f"{what} has dtype {numbers.dtype}, which the format lacks; convert it first")
    return numbers.astype(dtype)


def _integers(numbers: Array) -> np.dtype[np.generic]:
    smallest, largest = int(numbers.min()), int(numbers.max())
    for name in _INTEGERS:
        limit = np.iinfo(name)
        if limit.min <= smallest and largest <= limit.max:
            return np.dtype(name)
    raise AssertionError("NumPy's widest integers are among those of the format")
