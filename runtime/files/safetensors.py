"""The safetensors format: headers, checked, and the bytes after them.

A file is the length of the header in 8 bytes, the header, and the elements of all tensors. The header is a JSON object:
a tensor's dtype, shape, and where its elements begin and end after the header, by its name. Nothing lies between two
tensors, and nothing after the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...dtype import DType
from ..base.error import FileFormatError, InvalidArgument, describe
from ..core.layout import Layout
from .content import Content, Source, checked_path, open_content, translate_errors

METADATA: Final = "__metadata__"
"""The key of the header that holds text, and so no tensor."""
LARGEST_HEADER: Final = 100_000_000
"""The most bytes of a header that readers accept."""
LENGTH_BYTES: Final = 8
"""How many bytes hold the length of the header."""

_INDEX_SUFFIX: Final = ".json"
_WEIGHT_MAP: Final = "weight_map"


class Entry(NamedTuple):
    """A tensor of a file: `begin` is the offset of its first byte in the file."""

    dtype: DType
    layout: Layout
    begin: int


def contents(operation: str, path: Source | Sequence[Source]) -> Iterator[tuple[Content, frozenset[str] | None]]:
    """Open the files that `path` means, with the names of the tensors that are meant, or None for all of them."""
    is_one = isinstance(path, str | bytes | bytearray | memoryview) or not isinstance(path, Sequence)
    sources: Sequence[object] = (path,) if is_one else path  # type: ignore[assignment]
    for source in sources:
        if isinstance(source, bytes | bytearray | memoryview):
            yield open_content(operation, source), None
            continue
        name = checked_path(operation, source)
        if name.endswith(_INDEX_SUFFIX):
            for file, names in _files_of_index(operation, name).items():
                yield open_content(operation, file), frozenset(names)
        else:
            yield open_content(operation, name), None


def _files_of_index(operation: str, path: str) -> dict[str, list[str]]:
    """The names of tensors by the path of the file that has them, as an index says."""
    import json

    with translate_errors(operation, path):
        text = Path(path).read_bytes()
    files: dict[str, list[str]] = {}
    try:
        for tensor, file in json.loads(text, object_pairs_hook=_without_duplicates)[_WEIGHT_MAP].items():
            # Only files next to the index: an index is as little to be trusted as anything else that is downloaded.
            if not isinstance(file, str) or file != Path(file).name or "\\" in file:
                raise ValueError(f"'{tensor}' is in {describe(file)}, which names no file next to the index")
            files.setdefault(str(Path(path).parent / file), []).append(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"path '{path}' is no index of safetensors files ({error!r}); give the files themselves"
        raise FileFormatError(operation, reason) from None
    return files


def entries(content: Content) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors of a file by name, and its metadata. Raises InvalidArgument where the header lies."""
    import json

    length = LENGTH_BYTES
    if content.size < length:
        raise _malformed(content, f"it has {content.size} bytes, and the length of its header alone takes {length}")
    size = int.from_bytes(_read(content, 0, length), "little")
    start = length + size
    if size > LARGEST_HEADER or start > content.size:
        raise _malformed(content, f"a header of {size} bytes does not fit into {content.size}")
    try:
        header = json.loads(_read(content, length, size), object_pairs_hook=_without_duplicates)
        if not isinstance(header, dict):
            raise TypeError("the header is no object")
        metadata = header.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise TypeError("the metadata are no texts by name")
        parts = {name: _part(name, entry) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _malformed(content, error) from None
    begin = 0
    for name, (_, _, (first, end)) in sorted(parts.items(), key=lambda item: item[1][2]):
        if first != begin:
            raise _malformed(content, f"tensor '{name}' begins at byte {first} of the elements and not at {begin}")
        begin = end
    if start + begin != content.size:
        raise _malformed(content, f"its tensors end at byte {start + begin}, the file at {content.size}")
    return {name: _entry(content, name, start, *part) for name, part in parts.items()}, metadata


def _read(content: Content, begin: int, nbytes: int) -> bytes:
    text = bytearray(nbytes)
    content.read_into(memoryview(text), begin)
    return bytes(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _part(name: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Return the dtype, the shape, and the bytes of a tensor, as the header says."""
    dtype, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or any(type(size) is not int or size < 0 for size in (*shape, first, end)):
        raise ValueError(f"tensor '{name}' has a dtype, shape or offset that is none")
    return dtype, tuple(shape), (first, end)


def _entry(
    content: Content, name: str, start: int, dtype_name: str, shape: tuple[int, ...], span: tuple[int, int]
) -> Entry:
    dtypes = {dtype.safetensors: dtype for dtype in DType if dtype.safetensors is not None}
    dtype = dtypes.get(dtype_name)
    if dtype is None:
        raise content.refused(f"tensor '{name}' has dtype {dtype_name}; convert it to one of {', '.join(dtypes)}")
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes != span[1] - span[0]:
        raise _malformed(content, f"tensor '{name}' of {nbytes} bytes has {span[1] - span[0]} there")
    try:
        return Entry(dtype, Layout.contiguous(shape), start + span[0])
    except InvalidArgument as error:
        raise content.refused(f"tensor '{name}': {error.reason}") from None


def _malformed(content: Content, reason: object) -> InvalidArgument:
    """The error that it is no file of the format."""
    return content.refused(f"it is no safetensors file, or was cut short ({reason}); write it with save_safetensors")
