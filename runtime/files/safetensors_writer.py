"""Tensors written to files, in the safetensors format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import numpy as np

from ..base.error import InvalidArgument, UnsupportedDType, type_name
from ..tensor.base import TensorBase
from ..tensor.tensor import Tensor
from .content import checked_path, written
from .safetensors import LARGEST_HEADER, LENGTH_BYTES, METADATA

# A multiple of where the elements begin.
_ALIGNMENT: Final = 8


def save_safetensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name to a safetensors file; `metadata` is text that the file carries along.

    A file is written next to the target and then renamed to it, so that no reader ever sees half of it. The new file
    has the mode and, where that is allowed, the owner of the one that it replaces, else what any new file has. Of a
    link, the file that it names is replaced. What fails leaves the old file as it was, and nothing else; a process that
    is killed may leave one file next to it whose name begins with `.tallow-`. A pipe or a device is written to as it
    is.

    `InvalidArgument` for what is no tensor or no text, or a name that no reader takes; `FileError` where the file
    cannot be written.

    >>> tl.save_safetensors({"weight": tl.ones((2, 2))}, "model.safetensors")
    >>> list(tl.load_safetensors("model.safetensors"))
    ['weight']
    """
    operation = "save_safetensors"
    name = checked_path(operation, path)
    # The widest first, as the library of the format writes them: so each is aligned.
    entries = sorted(_checked_tensors(tensors).items(), key=lambda entry: (-entry[1].dtype.itemsize, entry[0]))
    header = _header(entries, {} if metadata is None else _checked_metadata(metadata))
    with written(operation, name) as stream:
        stream.write(header)
        for _, tensor in entries:
            stream.write(tensor.numpy().reshape(-1).view(np.uint8).data)


def _checked_tensors(tensors: object) -> Mapping[str, Tensor]:
    operation = "save_safetensors"
    if not isinstance(tensors, Mapping):
        reason = f"tensors must be a dict of tensors by name, not of type {type_name(tensors)}"
        raise InvalidArgument(operation, reason)
    for name, tensor in tensors.items():
        _require_text("tensors: the name", name)
        if name == METADATA:
            raise InvalidArgument(operation, f"tensors: the format keeps the name '{name}' to itself; choose another")
        if not isinstance(tensor, TensorBase):
            reason = (
                f"tensors: '{name}' must be a Tensor, not of type {type_name(tensor)}; convert it with Tensor(data)"
            )
            raise InvalidArgument(operation, reason)
        if tensor.dtype.safetensors is None:
            reason = "the format lacks the dtype; convert with to_dtype, or use write_npy"
            raise UnsupportedDType(operation, tensor.dtype, tensor.device.backend, f"tensors: '{name}': {reason}")
    return tensors


def _checked_metadata(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, Mapping):
        reason = f"metadata must be a dict of strings by name, not of type {type_name(metadata)}"
        raise InvalidArgument("save_safetensors", reason)
    for name, text in metadata.items():
        _require_text("metadata: the name", name)
        _require_text(f"metadata: '{name}'", text)
    return dict(metadata)


def _require_text(what: str, text: object) -> None:
    with suppress(UnicodeEncodeError):
        if isinstance(text, str):
            text.encode()
            return
    raise InvalidArgument("save_safetensors", f"{what} is a str that UTF-8 can hold, not {text!r}; use another")


def _header(entries: list[tuple[str, Tensor]], metadata: dict[str, str]) -> bytes:
    """Return the bytes before the elements: the length of a JSON object, and that object, padded to a multiple of 8."""
    import json

    described: dict[str, object] = {METADATA: metadata} if metadata else {}
    begin = 0
    for name, tensor in entries:
        end = begin + tensor.elem_count * tensor.dtype.itemsize
        described[name] = {"dtype": tensor.dtype.safetensors, "shape": tensor.shape, "data_offsets": (begin, end)}
        begin = end
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > LARGEST_HEADER:
        reason = f"tensors and metadata: names, shapes and texts take {len(text)} bytes; readers take {LARGEST_HEADER}"
        raise InvalidArgument("save_safetensors", f"{reason}, so use shorter ones or several files")
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
