"""Tensors in files, in the safetensors format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..device import Device
from ..dtype import DType
from ..error import InvalidArgument
from ..layout import Layout
from .base import device_of
from .tensor import Tensor


def save_safetensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors by name to a safetensors file; `metadata` is text that the file carries along.

    The file is written aside and then put in place of an older one, so that no reader ever sees half of it.
    """
    from tempfile import TemporaryDirectory

    from safetensors.numpy import save_file

    target = Path(path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        written = Path(folder) / target.name
        save_file(arrays, written, metadata)
        written.replace(target)


def load_safetensors(path: str | os.PathLike[str], device: Device | str | None = None) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file to a device, by default the CPU.

    Booleans become u8. `InvalidArgument` if it is no such file, or has a tensor of a dtype that tallow lacks.
    """
    from safetensors import SafetensorError, deserialize

    target = device_of(device)
    try:
        entries = deserialize(Path(path).read_bytes())  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        reason = f"{os.fspath(path)} is no safetensors file ({error}); write it with save_safetensors"
        raise InvalidArgument("load_safetensors", reason) from error
    dtypes = {dtype.safetensors: dtype for dtype in DType} | {"BOOL": DType.U8}
    tensors = {}
    for name, entry in sorted(entries):
        dtype = dtypes.get(entry["dtype"])
        if dtype is None:
            reason = f"tensor '{name}' has dtype {entry['dtype']}; convert it to one of {', '.join(dtypes)}"
            raise InvalidArgument("load_safetensors", reason)
        array = np.frombuffer(entry["data"], dtype.numpy)
        tensors[name] = Tensor._new(target.storage_owned(array), Layout.contiguous(entry["shape"]))
    return tensors
