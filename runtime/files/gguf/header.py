"""The header of a GGUF file: metadata by key, and the type, shape and offset of each tensor."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from ....ggml_dtype import GgmlDType
from ...base.error import InvalidArgument, describe
from ...core.shape import MAX_ELEMENTS
from ..content import Content
from .metadata import KIND, SIZE, Reader, Value

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
ALIGNMENT: Final = "general.alignment"
"""The key that says at multiples of how many bytes tensors begin."""
MAX_DIMS: Final = 4
_LARGEST_ALIGNMENT: Final = 1 << 20
# The bytes that a value and a tensor take at least.
_MIN_VALUE: Final = SIZE.size + KIND.size + 1
_MIN_TENSOR: Final = 2 * SIZE.size + 2 * KIND.size


class Entry(NamedTuple):
    """A tensor of a file, whose bytes are `nbytes` from `begin` on. The last dim of the shape is dense."""

    dtype: GgmlDType
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class Header(NamedTuple):
    """The contents of a file before its elements."""

    version: int
    metadata: dict[str, Value]
    tensors: dict[str, Entry]


def read_header(content: Content) -> Header:
    """Read and check a header. Raises InvalidArgument that names the key or the tensor."""
    reader = Reader(content)
    magic = reader.take(len(MAGIC))
    if magic != MAGIC:
        reader.refuse(f"begins with {magic!r} and not with {MAGIC!r}, so this is no GGUF file")
    version = reader.integer(KIND)
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        what = "is of a machine with the other byte order" if swapped else f"is of version {version}"
        reader.refuse(f"{what}; versions {' and '.join(map(str, VERSIONS))}, little-endian, are read")
    count = reader.integer(SIZE)
    values = reader.integer(SIZE)
    reader.require_bytes(values, _MIN_VALUE)
    metadata = _metadata(reader, values)
    reader.what = "the header"
    reader.require_bytes(count, _MIN_TENSOR)
    entries = [_tensor(reader) for _ in range(count)]
    tensors = _positioned(reader, content.size, _alignment(reader, metadata), entries)
    return Header(version, metadata, tensors)


def alignment_of(metadata: Mapping[str, object]) -> int:
    """At multiples of how many bytes tensors begin; ValueError where the metadata say what cannot be."""
    alignment = metadata.get(ALIGNMENT, 32)
    if type(alignment) is not int or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"is {describe(alignment)}, and must be a power of two up to {_LARGEST_ALIGNMENT}")
    return alignment


def _metadata(reader: Reader, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for number in range(count):
        reader.what = f"the key number {number}"
        key = reader.text()
        reader.what = f"key '{key}'"
        if key in metadata:
            reader.refuse("occurs twice")
        metadata[key] = reader.value()
    return metadata


def _alignment(reader: Reader, metadata: dict[str, Value]) -> int:
    reader.what = f"key '{ALIGNMENT}'"
    try:
        return alignment_of(metadata)
    except ValueError as error:
        reader.refuse(str(error))


class _Description(NamedTuple):
    """The description of a tensor in the header."""

    name: str
    dtype: GgmlDType
    shape: tuple[int, ...]
    offset: int


def _tensor(reader: Reader) -> _Description:
    reader.what = "the name of a tensor"
    name = reader.text()
    reader.what = f"tensor '{name}'"
    rank = reader.integer(KIND)
    if rank > MAX_DIMS:
        reader.refuse(f"has {rank} dims; there are {MAX_DIMS} at most")
    # The dense dim comes first in a file.
    shape = struct.unpack(f"<{rank}Q", reader.take(rank * SIZE.size))[::-1]
    try:
        dtype = GgmlDType.from_u32(reader.integer(KIND))
    except InvalidArgument as error:
        reader.refuse(f"has another type: {error.reason}")
    if 0 in shape:
        reader.refuse(f"has shape {shape}, and so a dim of 0")
    if math.prod(shape) >= MAX_ELEMENTS:
        reader.refuse(f"has shape {shape}, of more elements than can be counted")
    if (shape[-1] if shape else 1) % dtype.block_size:
        reader.refuse(f"has shape {shape}, whose last dim is no multiple of the {dtype.block_size} of {dtype.value}")
    return _Description(name, dtype, shape, reader.integer(SIZE))


def _positioned(reader: Reader, size: int, alignment: int, descriptions: list[_Description]) -> dict[str, Entry]:
    """The tensors in the order of the file, which lie in it and not in each other."""
    start = -(-reader.offset // alignment) * alignment
    end, before = start, ""
    by_name: dict[str, Entry] = {}
    for name, dtype, shape, offset in sorted(descriptions, key=lambda tensor: tensor.offset):
        reader.what = f"tensor '{name}'"
        if name in by_name:
            reader.refuse("occurs twice")
        if offset % alignment:
            reader.refuse(f"begins at byte {offset} of the elements, which is no multiple of {alignment}")
        begin = start + offset
        if begin < end:
            reader.refuse(f"begins at byte {offset} of the elements, inside of tensor '{before}'")
        nbytes = math.prod(shape) // dtype.block_size * dtype.type_size
        end, before = begin + nbytes, name
        if end > size:
            reader.refuse(f"ends at byte {end} of a file of {size}, which was cut short")
        by_name[name] = Entry(dtype, shape, begin, nbytes)
    return {tensor.name: by_name[tensor.name] for tensor in descriptions}
