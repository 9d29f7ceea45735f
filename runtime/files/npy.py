"""Tensors in NumPy's files: .npy of one array, .npz of several by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from ...device import Device
from ...dtype import Array
from ..base.error import InvalidArgument, UnsupportedDType
from ..helpers.host_memory import tells_lack_of_memory
from ..tensor.base import device_of, require_tensors
from ..tensor.tensor import Tensor
from .content import checked_path, told, written

_SUFFIX: Final = ".npy"


@tells_lack_of_memory
def read_npy(path: str | os.PathLike[str], device: Device | str | None = None) -> Tensor:
    """Read the array of a .npy file to a device, by default the CPU.

    `FileError` where the file cannot be read, `MissingFile` where there is none; `InvalidArgument` if it is no such
    file, was cut short, or has elements that no tensor has.
    """
    target = device_of(device)
    with _read("read_npy", path) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    return Tensor._of_array("read_npy", array, target)


@tells_lack_of_memory
def read_npz(path: str | os.PathLike[str], device: Device | str | None = None) -> dict[str, Tensor]:
    """Read all arrays of a .npz file, by name, to a device, by default the CPU. The errors are those of `read_npy`."""
    # With what it decompresses it takes longer to import than most modules.
    import zipfile

    target, tensors = device_of(device), {}
    with _read("read_npz", path) as stream, zipfile.ZipFile(stream) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            tensors[name.removesuffix(_SUFFIX)] = Tensor._of_array("read_npz", array, target)
    return tensors


def write_npy(tensor: Tensor, path: str | os.PathLike[str]) -> None:
    """Write a tensor to a .npy file, which is put in its place whole, as by `save_safetensors`.

    `UnsupportedDType` for bf16 and f8e4m3, which such files lack; `FileError` where the file cannot be written.
    """
    require_tensors("write_npy", tensor=tensor)
    array = _array("write_npy", tensor)
    with written("write_npy", checked_path("write_npy", path)) as stream:
        np.lib.format.write_array(stream, array, allow_pickle=False)


def write_npz(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write tensors by name to a .npz file. The errors are those of `write_npy`."""
    import zipfile

    if not isinstance(tensors, Mapping) or not all(isinstance(name, str) for name in tensors):
        raise InvalidArgument("write_npz", "tensors must be a dict of tensors by name")
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


@contextmanager
def _read(operation: str, path: object) -> Iterator[BinaryIO]:
    """Open a file, and tell what is wrong with it."""
    name = checked_path(operation, path)
    with told(operation, name), Path(name).open("rb") as stream:
        try:
            yield stream
        except Exception as error:
            from zipfile import BadZipFile

            if not isinstance(error, ValueError | EOFError | KeyError | SyntaxError | BadZipFile):
                raise
            reason = f"path '{name}': it is no whole file of NumPy's with numbers alone: {error}"
            raise InvalidArgument(operation, f"{reason}; write it again with write_{operation[5:]}") from None
