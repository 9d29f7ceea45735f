"""The safetensors format: headers, checked, and the bytes behind them.

A file is the length of the header in 8 bytes, the header, and the elements of all tensors. The header is a JSON object:
a tensor's dtype, shape, and where its elements begin and end behind the header, by its name. Nothing lies between two
tensors, and nothing behind the last.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..dtype import Array, DType
from ..error import FileError, InvalidArgument, MissingFile, shown
from ..layout import Layout

METADATA: Final = "__metadata__"
"""The key of the header that holds text, and so no tensor."""
LARGEST_HEADER: Final = 100_000_000
"""What readers take of a header, in bytes."""
LENGTH_BYTES: Final = 8
"""How many bytes hold the length of the header."""

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A file in the format: its path, or its bytes."""

_INDEX_SUFFIX: Final = ".json"
_WEIGHT_MAP: Final = "weight_map"

# What to do where the system refuses.
_CHOOSE_ANOTHER: Final = "choose another path"
_ADVICE: Final = {
    errno.EISDIR: "give the path of a file",
    errno.ENOSPC: "make room on the disk, or choose another one",
    errno.EDQUOT: "make room on the disk, or choose another one",
}


class Entry(NamedTuple):
    """A tensor of a file: `begin` is the place of its first byte in the file."""

    dtype: DType
    layout: Layout
    begin: int


class Content:
    """The bytes of one file. Several threads may read them at once."""

    def __init__(self, operation: str, name: str, size: int) -> None:
        self.operation = operation
        self.name = name
        """What errors call it."""
        self.size = size

    @abstractmethod
    def read_into(self, target: memoryview, begin: int) -> None:
        """Fill `target` with the bytes from `begin` on."""

    @abstractmethod
    def mapped(self, begin: int, nbytes: int) -> Array:
        """The bytes as they are, in an array that nothing may write to."""

    def close(self) -> None:
        """Give up what holds the bytes."""

    def require_open(self) -> None:
        """Raise InvalidArgument after `close`."""

    def refused(self, reason: str) -> InvalidArgument:
        """The error that the file is wrong."""
        return InvalidArgument(self.operation, f"{self.name}: {reason}")

    def malformed(self, reason: object) -> InvalidArgument:
        """The error that it is no file of the format."""
        return self.refused(f"it is no safetensors file, or was cut short ({reason}); write it with save_safetensors")


class _Memory(Content):
    """A file whose bytes are in memory."""

    def __init__(self, operation: str, name: str, content: bytes | bytearray | memoryview) -> None:
        self._bytes = np.frombuffer(content, np.uint8)
        super().__init__(operation, name, self._bytes.size)

    def read_into(self, target: memoryview, begin: int) -> None:
        np.copyto(np.frombuffer(target, np.uint8), self._bytes[begin : begin + target.nbytes])

    def mapped(self, begin: int, nbytes: int) -> Array:
        return self._bytes[begin : begin + nbytes]


class _File(Content):
    """A file on a disk. It is read, not mapped: a process dies of a mapped file that another one cuts short."""

    def __init__(self, operation: str, path: str) -> None:
        self._path = path
        with told(operation, path):
            self._stream = Path(path).open("rb", buffering=0)  # noqa: SIM115 - until `close`
            super().__init__(operation, f"path '{path}'", os.fstat(self._stream.fileno()).st_size)
        self._lock = threading.Lock()

    def read_into(self, target: memoryview, begin: int) -> None:
        with told(self.operation, self._path):
            while target:
                count = self._read(target, begin)
                if not count:
                    raise self.refused("it was cut short while it was read; write it again, then read it")
                target, begin = target[count:], begin + count

    def _read(self, target: memoryview, begin: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._stream.fileno(), [target], begin)
        with self._lock:
            self._stream.seek(begin)
            return self._stream.readinto(target) or 0

    def mapped(self, begin: int, nbytes: int) -> Array:
        # Only here, for parts that lie all over the file.
        with told(self.operation, self._path):
            return np.memmap(self._stream, np.uint8, "r")[begin : begin + nbytes]

    def close(self) -> None:
        self._stream.close()

    def require_open(self) -> None:
        if self._stream.closed:
            raise self.refused("it is closed; read it before close() or inside its with block")


def contents(operation: str, path: Source | Sequence[Source]) -> Iterator[tuple[Content, frozenset[str] | None]]:
    """Open the files that `path` means, with the names of the tensors that are meant, or None for all of them."""
    is_one = isinstance(path, str | bytes | bytearray | memoryview) or not isinstance(path, Sequence)
    sources: Sequence[object] = (path,) if is_one else path  # type: ignore[assignment]
    for source in sources:
        if isinstance(source, bytes | bytearray | memoryview):
            yield _Memory(operation, f"path, {memoryview(source).nbytes} bytes", source), None
            continue
        name = checked_path(operation, source)
        if name.endswith(_INDEX_SUFFIX):
            for file, names in _files_of_index(operation, name).items():
                yield _opened(operation, file), frozenset(names)
        else:
            yield _opened(operation, name), None


def _opened(operation: str, path: str) -> Content:
    with told(operation, path):
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            # It can be read once, and in order.
            return _Memory(operation, f"path '{path}'", Path(path).read_bytes())
    return _File(operation, path)


def _files_of_index(operation: str, path: str) -> dict[str, list[str]]:
    """The names of tensors by the path of the file that has them, as an index says."""
    import json

    with told(operation, path):
        text = Path(path).read_bytes()
    files: dict[str, list[str]] = {}
    try:
        for tensor, file in json.loads(text)[_WEIGHT_MAP].items():
            # Files beside the index alone: an index is as little to be trusted as what else is downloaded.
            if not isinstance(file, str) or file != Path(file).name or "\\" in file:
                raise ValueError(f"'{tensor}' is in {shown(file)}, which names no file beside the index")
            files.setdefault(str(Path(path).parent / file), []).append(tensor)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"path '{path}' is no index of safetensors files ({error!r}); give the files themselves"
        raise InvalidArgument(operation, reason) from None
    return files


def entries(content: Content) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors of a file by name, and its metadata. Raises InvalidArgument where the header lies."""
    import json

    length = LENGTH_BYTES
    if content.size < length:
        raise content.malformed(f"it has {content.size} bytes, and the length of its header alone takes {length}")
    size = int.from_bytes(_read(content, 0, length), "little")
    start = length + size
    if size > LARGEST_HEADER or start > content.size:
        raise content.malformed(f"a header of {size} bytes does not fit into {content.size}")
    try:
        header = json.loads(_read(content, length, size), object_pairs_hook=_without_duplicates)
        if not isinstance(header, dict):
            raise TypeError("the header is no object")
        metadata = header.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise TypeError("the metadata are no texts by name")
        places = {name: _place(name, entry) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise content.malformed(error) from None
    begin = 0
    for name, (_, _, (first, end)) in sorted(places.items(), key=lambda item: item[1][2]):
        if first != begin:
            raise content.malformed(f"tensor '{name}' begins at byte {first} of the elements and not at {begin}")
        begin = end
    if start + begin != content.size:
        raise content.malformed(f"its tensors end at byte {start + begin}, the file at {content.size}")
    return {name: _entry(content, name, start, *place) for name, place in places.items()}, metadata


def _read(content: Content, begin: int, nbytes: int) -> bytes:
    text = bytearray(nbytes)
    content.read_into(memoryview(text), begin)
    return bytes(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _place(name: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """The dtype, the shape, and the bytes that a header tells of a tensor."""
    dtype, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or any(type(size) is not int or size < 0 for size in (*shape, first, end)):
        raise ValueError(f"tensor '{name}' has a dtype, shape or offset that is none")
    return dtype, tuple(shape), (first, end)


def _entry(
    content: Content, name: str, start: int, dtype_name: str, shape: tuple[int, ...], span: tuple[int, int]
) -> Entry:
    dtypes = {dtype.safetensors: dtype for dtype in DType} | {"BOOL": DType.U8}
    dtype = dtypes.get(dtype_name)
    if dtype is None:
        raise content.refused(f"tensor '{name}' has dtype {dtype_name}; convert it to one of {', '.join(dtypes)}")
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes != span[1] - span[0]:
        raise content.malformed(f"tensor '{name}' of {nbytes} bytes has {span[1] - span[0]} there")
    try:
        return Entry(dtype, Layout.contiguous(shape), start + span[0])
    except InvalidArgument as error:
        raise content.refused(f"tensor '{name}': {error.reason}") from None


def checked_path(operation: str, path: object) -> str:
    """The text of a path; InvalidArgument for what is none."""
    try:
        name = os.fspath(path)  # type: ignore[call-overload]
        is_path = isinstance(name, str) and b"\0" not in os.fsencode(name)
    except (TypeError, UnicodeEncodeError):
        is_path = False
    if not is_path:
        raise InvalidArgument(operation, f"path: {shown(path)} names no file; give a str or a pathlib.Path")
    return str(name)


@contextmanager
def told(operation: str, name: str) -> Iterator[None]:
    """Tell what the system refuses as this package's error, with the path that was given."""
    try:
        yield
    except FileNotFoundError:
        folder = Path(name).resolve().parent
        advice = _CHOOSE_ANOTHER if folder.is_dir() else f"make the folder '{folder}' first"
        raise MissingFile(operation, name, errno.ENOENT, advice) from None
    except OSError as error:
        number = error.errno or errno.EIO
        raise FileError(operation, name, number, _ADVICE.get(number, _CHOOSE_ANOTHER)) from None
