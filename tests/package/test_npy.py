"""NumPy's files."""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tallow import Device, DType, FileError, FileFormatError, InvalidArgument, MissingFile, Tensor, UnsupportedDType

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
        actual = tl.read_npy(str(tmp_path / "x.npy"), device)
        assert actual.device == device
        same(actual, tensor.numpy())
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
    result = tl.read_npz(tmp_path / "x.npz")
    same(result["a"], numbers((4,)))
    same(result["b"], np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("read", [tl.read_npy, tl.read_npz])
def test_what_is_no_such_file(tmp_path: Path, read: Callable[[Any], object]) -> None:
    path = tmp_path / "x"
    for data in (b"", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'", b"PK\x03\x04", bytes(200)):
        path.write_bytes(data)
        with pytest.raises(InvalidArgument, match=f"{read.__name__}: path '{path}': it is no complete NumPy file"):
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


def files_of_numpy() -> dict[str, bytes]:
    """Files of one array, and of several in each way that zip files pack them, with a folder."""
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(40, dtype=">i4"), "c": np.array(True)}
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(arrays["a"]))
    files = {"npy": stream.getvalue()}
    for name in ("STORED", "DEFLATED", "BZIP2", "LZMA"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", getattr(zipfile, f"ZIP_{name}")) as archive:
            archive.writestr("d/", b"")
            for key, array in arrays.items():
                with archive.open(f"d/{key}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
        files[name] = stream.getvalue()
    return files


FILES = files_of_numpy()


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused_as_such(name: str, tmp_path: Path, full: bool) -> None:
    path, complete, random = tmp_path / "x", FILES[name], np.random.default_rng(1)
    read = tl.read_npy if name == "npy" else tl.read_npz
    path.write_bytes(complete)
    read(path)
    mutants = [complete[:size] for size in range(0, len(complete), 1 if full else 29)]
    for _ in range(4000 if full else 100):
        content, kind = bytearray(complete), random.integers(4)
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(len(content)))
            match kind:
                case 0:
                    content[at] ^= 1 << int(random.integers(8))
                case 1:
                    content[at] = int(random.choice([0, 1, 9, 12, 14, 39, 40, 44, 127, 255, random.integers(256)]))
                case 2:
                    content[at : at + int(random.integers(1, 9))] = b""
                case _:
                    content[at:at] = bytes(random.integers(0, 256, int(random.integers(1, 9)), np.uint8))
        mutants.append(bytes(content))
    refused = 0
    for content in mutants:
        path.write_bytes(content)
        try:
            read(path)
        except FileFormatError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > len(mutants) // 4


def test_members_that_cannot_be_told_apart_or_be_so_large_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
        archive.writestr("a", stream.getvalue())
    with pytest.raises(FileFormatError, match="two members are called 'a'"):
        tl.read_npz(path)
    np.savez_compressed(path, a=np.arange(3))
    content = bytearray(path.read_bytes())
    central = content.find(b"PK\x01\x02")
    content[central + 24 : central + 28] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=f"member 'a.npy' cannot be {1 << 31} bytes in"):
        tl.read_npz(path)
    # An array is no larger than its file, whatever its header says.
    header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    path.write_bytes(stream.getvalue())
    with pytest.raises(FileFormatError, match="an array of shape"):
        tl.read_npy(path)


def fits(name: str) -> bool:
    """Whether zip files can hold a name, with the ending of NumPy's."""
    try:
        return len(name.encode()) <= (1 << 16) - 1 - len(".npy") and "\0" not in name
    except UnicodeEncodeError:
        return False


AWKWARD = st.sampled_from(["", "a", "a.npy", "a\0", "a\0x", "\ud800", "d/", "/", "..", "é", "a\\b"])


@settings(max_examples=25)
@given(names=st.lists(st.text(max_size=5) | AWKWARD, unique=True))
@example(names=["x" * 65531])
@example(names=["x" * 65532])
@example(names=["é" * 32765])
@example(names=["é" * 32766])
@example(names=["a\0x", "a\0y"])
def test_every_name_is_read_back_or_refused(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "names.npz"
    tensors = {name: Tensor(number) for number, name in enumerate(names)}
    if not all(map(fits, names)):
        with pytest.raises(InvalidArgument, match="write_npz: tensors: a name must be UTF-8"):
            tl.write_npz(tensors, path)
        return
    tl.write_npz(tensors, path)
    expected = {name: number for number, name in enumerate(names)}
    assert {name: tensor.item() for name, tensor in tl.read_npz(path).items()} == expected


WRITERS = {
    "npy": lambda path: tl.write_npy(Tensor.ones((1 << 17,)), path),
    "npz": lambda path: tl.write_npz({"a": Tensor.ones((1 << 17,)), "b": Tensor.ones((3,))}, path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_devices_and_pipes_are_written_to_as_they_are(name: str, tmp_path: Path) -> None:
    write = WRITERS[name]
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    write("/dev/null")
    with pytest.raises(FileError) as caught:
        write("/dev/full")
    assert caught.value.errno == errno.ENOSPC
    os.mkfifo(tmp_path / "pipe")
    content: list[bytes] = []
    thread = threading.Thread(target=lambda: content.append((tmp_path / "pipe").read_bytes()))
    thread.start()
    write(tmp_path / "pipe")
    thread.join()
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "x").write_bytes(content[0])
    read: Any = {"npy": tl.read_npy, "npz": lambda path: tl.read_npz(path)["a"]}[name]
    assert read(tmp_path / "x").shape == (1 << 17,)
