"""NumPy's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, DType, FileError, InvalidArgument, MissingFile, Tensor, UnsupportedDType

from .arrays import numbers, same


def of_numpy(device: Device) -> list[DType]:
    """The dtypes that NumPy's files and a device have."""
    return [dtype for dtype in DType if dtype.is_of_numpy and not (dtype is DType.F64 and device.is_metal())]


def test_files_keep_dtypes_and_shapes(device: Device, tmp_path: Path) -> None:
    tensors = {dtype.value: Tensor(numbers((2, 3), dtype), device=device).T for dtype in of_numpy(device)}
    tensors |= {"scalar": Tensor(3, device=device), "": Tensor.zeros((0, 2), device=device), "file": Tensor([1])}
    for tensor in tensors.values():
        tl.write_npy(tensor, tmp_path / "x.npy")
        same(tensor, np.load(tmp_path / "x.npy"))
        found = tl.read_npy(str(tmp_path / "x.npy"), device)
        assert found.device == device
        same(found, tensor.numpy())
    tl.write_npz(tensors, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as archive:
        assert sorted(archive.files) == sorted(tensors)
        for name, tensor in tl.read_npz(tmp_path / "x.npz", device).items():
            same(tensor, tensors[name].numpy())
            same(tensor, archive[name])
    assert tl.read_npz(tmp_path / "x.npz").keys() == tensors.keys()


def test_files_of_numpy(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(numbers((2, 3))))
    same(tl.read_npy(tmp_path / "x.npy"), numbers((2, 3)))
    np.savez_compressed(tmp_path / "x.npz", a=numbers((4,)), b=np.arange(3, dtype=">i4"))
    found = tl.read_npz(tmp_path / "x.npz")
    same(found["a"], numbers((4,)))
    same(found["b"], np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("read", [tl.read_npy, tl.read_npz])
def test_what_is_no_such_file(tmp_path: Path, read: Callable[[Any], object]) -> None:
    path = tmp_path / "x"
    for data in (b"", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'", b"PK\x03\x04", bytes(200)):
        path.write_bytes(data)
        with pytest.raises(InvalidArgument, match=f"{read.__name__}: path '{path}': it is no whole file of NumPy's"):
            read(path)
    with pytest.raises(MissingFile):
        read(tmp_path / "none")
    with pytest.raises(FileError):
        read(tmp_path)
    with pytest.raises(InvalidArgument):
        read(3)


def test_objects_and_cut_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([None]))
    with pytest.raises(InvalidArgument, match="Object arrays"):
        tl.read_npy(path)
    np.save(path, np.arange(100))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidArgument):
        tl.read_npy(path)
    np.save(path, np.array(["a"]))
    with pytest.raises(InvalidArgument):
        tl.read_npy(path)


def test_what_is_not_written(tmp_path: Path) -> None:
    for dtype in DType:
        if not dtype.is_of_numpy:
            for write in (tl.write_npy, lambda x, path: tl.write_npz({"x": x}, path)):
                with pytest.raises(UnsupportedDType):
                    write(Tensor([1.0], dtype), tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(InvalidArgument):
        tl.write_npy(np.ones(2), tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        tl.write_npz({3: Tensor([1])}, tmp_path / "x")  # type: ignore[dict-item]
    with pytest.raises(MissingFile):
        tl.write_npy(Tensor([1]), tmp_path / "none" / "x")
    assert not list(tmp_path.iterdir())
