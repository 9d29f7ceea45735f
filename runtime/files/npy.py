"""Tensors in NumPy's files: .npy of one array, .npz of several by name."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from ...device import Device
from ...dtype import Array
from ..base.error import FileFormatError, InvalidArgument, TallowError, UnsupportedDType
from ..helpers.host_memory import raises_out_of_memory
from ..tensor.base import device_of, require_tensors
from ..tensor.tensor import Tensor
from .content import Appending, checked_path, translate_errors, written

if TYPE_CHECKING:
    import zipfile

_SUFFIX: Final = ".npy"
# A zip file counts the bytes of a name in 16 bits.
_LONGEST_NAME: Final = (1 << 16) - 1 - len(_SUFFIX)
# Deflate expands a byte to at most this many.
_MAX_DEFLATED: Final = 1032


@raises_out_of_memory
def read_npy(path: str | os.PathLike[str], device: Device | str | None = None) -> Tensor:
    """Read the array of a .npy file to a device, by default the CPU.

    `FileError` where the file cannot be read, `MissingFile` where there is none; `FileFormatError` if it is no such
    file, was cut short, or has elements that no tensor has.

    >>> np.save("x.npy", np.arange(3))
    >>> tl.read_npy("x.npy")
    Tensor([0, 1, 2], dtype=i64)
    """
    target = device_of(device)
    with _read("read_npy", path) as stream:
        return _tensor("read_npy", stream, os.fstat(stream.fileno()).st_size, target)


@raises_out_of_memory
def read_npz(path: str | os.PathLike[str], device: Device | str | None = None) -> dict[str, Tensor]:
    """Read all arrays of a .npz file, by name, to a device, by default the CPU. The errors are those of `read_npy`.

    >>> np.savez("x.npz", a=np.arange(3))
    >>> tl.read_npz("x.npz")["a"]
    Tensor([0, 1, 2], dtype=i64)
    """
    # With what it decompresses it takes longer to import than most modules.
    import zipfile

    target, tensors = device_of(device), dict[str, Tensor]()
    with _read("read_npz", path) as stream, zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            name = member.filename.removesuffix(_SUFFIX)
            if name in tensors:
                raise ValueError(f"two members are called '{name}'")
            _require_possible(member)
            with archive.open(member) as content:
                tensors[name] = _tensor("read_npz", content, member.file_size, target)
    return tensors


def write_npy(tensor: Tensor, path: str | os.PathLike[str]) -> None:
    """Write a tensor to a .npy file, which is replaced atomically, as by `save_safetensors`.

    `UnsupportedDType` for bf16 and f8e4m3, which such files lack; `FileError` where the file cannot be written.

    >>> tl.write_npy(tl.arange(3), "x.npy")
    >>> np.load("x.npy")
    array([0, 1, 2])
    """
    require_tensors("write_npy", tensor=tensor)
    array = _array("write_npy", tensor)
    with written("write_npy", checked_path("write_npy", path)) as stream:
        # NumPy writes past what it takes for a file, and does not report why that fails.
        np.lib.format.write_array(Appending(stream), array, allow_pickle=False)


def write_npz(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write tensors by name to a .npz file.

    The errors are those of `write_npy`, and InvalidArgument for a name that such files cannot hold: one with a null
    character, that UTF-8 lacks, or of more than 65,531 bytes.

    >>> tl.write_npz({"a": tl.arange(3)}, "x.npz")
    >>> np.load("x.npz")["a"]
    array([0, 1, 2])
    """
    import zipfile

    if not isinstance(tensors, Mapping):
        raise InvalidArgument("write_npz", "tensors must be a dict of tensors by name")
    for name in tensors:
        _require_name(name)
    require_tensors("write_npz", **{f"tensors[{name!r}]": tensor for name, tensor in tensors.items()})
    arrays = {name: _array("write_npz", tensor) for name, tensor in tensors.items()}
    with written("write_npz", checked_path("write_npz", path)) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + _SUFFIX, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _array(operation: str, tensor: Tensor) -> Array:
    if not tensor.dtype.is_of_numpy:
        reason = "NumPy's files have the types of NumPy alone; convert with to_dtype, or use save_safetensors"
        raise UnsupportedDType(operation, tensor.dtype, tensor.device.backend, reason)
    return tensor.numpy()


def _require_name(name: object) -> None:
    """Refuse a name that a reader of zip files would not get back."""
    if not isinstance(name, str):
        raise InvalidArgument("write_npz", "tensors must be a dict of tensors by name")
    try:
        fits = len(name.encode()) <= _LONGEST_NAME and "\0" not in name
    except UnicodeEncodeError:
        fits = False
    if not fits:
        reason = f"a name must be UTF-8 of at most {_LONGEST_NAME} bytes without null characters"
        raise InvalidArgument("write_npz", f"tensors: {reason}, not {name[:40]!r}; use another, or save_safetensors")


def _tensor(operation: str, stream: IO[bytes], nbytes: int, device: Device) -> Tensor:
    """Read a tensor from a stream of `nbytes`. ValueError if the header claims more."""
    _require_whole(stream, nbytes)
    stream.seek(0)
    return Tensor._of_array(operation, np.lib.format.read_array(stream, allow_pickle=False), device)


def _require_whole(stream: IO[bytes], nbytes: int) -> None:
    """Check that a stream has all elements that its header has, before there is memory for them."""
    version = np.lib.format.read_magic(stream)
    readers: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    reader = readers.get(version)
    if reader is None:
        # Only names in structures, which no tensor has, need another.
        return
    try:
        shape, _, dtype = reader(stream)
    except MemoryError:
        raise ValueError("its header is nested too deep") from None
    needed = stream.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed > nbytes:
        raise ValueError(f"an array of shape {shape} and type {dtype} ends at byte {needed} of {nbytes}")


def _require_possible(member: zipfile.ZipInfo) -> None:
    """Check that a member can have as many bytes as the archive says."""
    most = {0: member.compress_size, 8: _MAX_DEFLATED * (member.compress_size + 1)}
    if member.file_size > most.get(member.compress_type, member.file_size):
        reason = f"cannot be {member.file_size} bytes in {member.compress_size}"
        raise ValueError(f"member '{member.filename}' {reason}")


@contextmanager
def _read(operation: str, path: object) -> Iterator[IO[bytes]]:
    """Open a file, and report whatever its content makes NumPy and zipfile raise as its format's error."""
    name = checked_path(operation, path)
    with translate_errors(operation, name), Path(name).open("rb") as stream:
        try:
            yield stream
        except MemoryError:
            raise
        except Exception as error:
            # A position before the file, which only its content can ask for, is an invalid argument to the system.
            is_of_system = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
            if is_of_system or (isinstance(error, TallowError) and not isinstance(error, InvalidArgument)):
                raise
            reason = error.reason if isinstance(error, InvalidArgument) else error
            text = f"path '{name}': it is no complete NumPy file of numbers only: {reason}"
            raise FileFormatError(operation, f"{text}; write it again with write_{operation[5:]}") from None
