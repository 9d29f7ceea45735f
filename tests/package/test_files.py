"""Safetensors files: what is written, what is read, and what is left where either fails."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tallow import (
    Device,
    DType,
    FileError,
    InvalidArgument,
    MissingFile,
    Tensor,
    UnsupportedDType,
    load_safetensors,
    open_safetensors,
    save_safetensors,
)

from .arrays import REALS, numbers, same

ONE = {"x": Tensor([1.0])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.fixture
def umask() -> Iterator[int]:
    """An umask that no default has."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_keep_every_dtype_and_layout(device: Device, path: Path) -> None:
    tensors = {dtype.value: Tensor(numbers((2, 3), dtype), device=device).T for dtype in DType if dtype.safetensors}
    tensors |= {"scalar": Tensor(3, device=device), "empty": Tensor.zeros((0, 2), device=device), "": Tensor([1])}
    save_safetensors(tensors, path, {"made": "by a test: ü"})
    loaded = load_safetensors(str(path), device)
    assert sorted(loaded) == sorted(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].device == device
        same(loaded[name], tensor.numpy())
    loaded["f32"].fill_(1)


def test_files_are_read_by_the_library_of_the_format(path: Path) -> None:
    from safetensors import safe_open

    save_safetensors({"b": Tensor([1, 2]), "a": Tensor([[1.5]]), "c": Tensor([7], DType.U8)}, path, {"made": "here"})
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"made": "here"}
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {"a": [[1.5]], "b": [1, 2], "c": [7]}  # noqa: SIM118
    header = struct.unpack("<Q", path.read_bytes()[:8])[0]
    entries = json.loads(path.read_bytes()[8 : 8 + header])
    assert header % 8 == 0
    # The widest come first, so that all are aligned.
    assert [entries[name]["data_offsets"] for name in "bac"] == [[0, 16], [16, 20], [20, 21]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([Tensor([1.0])],), "tensors must be a dict of tensors by name, not of type list"),
        (({5: Tensor([1.0])},), "tensors: the name is a str .* not 5"),
        (({"\ud800": Tensor([1.0])},), "tensors: the name is a str that UTF-8 can hold"),
        (({"x": np.ones(2)},), "tensors: 'x' must be a Tensor, not of type ndarray"),
        (({"__metadata__": Tensor([1.0])},), "tensors: the format keeps the name '__metadata__' to itself"),
        (({"x" * 100_000_001: Tensor([1.0])},), "readers take 100000000, so use shorter ones"),
        ((ONE, {"made": 5}), "metadata: 'made' is a str .* not 5"),
        ((ONE, {5: "made"}), "metadata: the name is a str .* not 5"),
        ((ONE, 5), "metadata must be a dict of strings by name, not of type int"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_file_can_hold_is_refused(path: Path, arguments: tuple[Any, ...], message: str) -> None:
    save_safetensors(ONE, path)
    with pytest.raises(InvalidArgument, match=f"^save_safetensors: .*{message}"):
        save_safetensors(arguments[0], path, *arguments[1:])
    assert load_safetensors(path)["x"].tolist() == [1.0]
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("wrong", [5, None, "a\0b", "\ud800", open])
@pytest.mark.parametrize("call", [lambda path: save_safetensors(ONE, path), load_safetensors])
def test_what_names_no_file_is_refused(call: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=r"_safetensors: path: .* names no file; give a str or a pathlib.Path"):
        call(wrong)


def test_a_new_file_has_the_mode_that_open_gives(path: Path, umask: int) -> None:
    save_safetensors(ONE, path)
    assert mode(path) == 0o666 & ~umask


def test_a_file_that_is_replaced_keeps_its_mode(path: Path, umask: int) -> None:
    for saved in (0o604, 0o666):
        path.touch()
        path.chmod(saved)
        save_safetensors(ONE, path)
        assert mode(path) == saved


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_file_that_is_replaced_keeps_its_owner_or_at_least_its_group(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    asked = []

    def chown(file: int, owner: int, group: int) -> None:
        asked.append((owner, group))
        # Nobody else can have opened it so far.
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
        if owner != -1 and not is_allowed:
            raise PermissionError

    save_safetensors(ONE, path)
    saved = mode(path)
    monkeypatch.setattr(os, "chown", chown)
    save_safetensors(ONE, path)
    full = path.stat().st_uid, path.stat().st_gid
    assert asked == [full] if is_allowed else [full, (-1, path.stat().st_gid)]
    assert mode(path) == saved


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "target", tmp_path / "link"
    link.symlink_to(Path("data", "target"))
    for number in (1.0, 2.0):  # first a link to nothing, then one to a file
        save_safetensors({"x": Tensor([number])}, link)
        assert link.is_symlink()
        assert load_safetensors(target)["x"].tolist() == [number]
    assert (names(tmp_path), names(target.parent)) == (["data", "link"], ["target"])


def test_what_is_no_plain_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())", str(pipe)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        save_safetensors(ONE, pipe)
        (tmp_path / "copy").write_bytes(reader.communicate()[0])
    assert load_safetensors(tmp_path / "copy")["x"].tolist() == [1.0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("failure", [RuntimeError("in the middle"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(tensor: Tensor) -> Any:
        assert len(names(path.parent)) == 2
        raise failure

    save_safetensors(ONE, path)
    monkeypatch.setattr(Tensor, "numpy", fails)
    with pytest.raises(type(failure)):
        save_safetensors({"x": Tensor([2.0])}, path)
    monkeypatch.undo()
    assert load_safetensors(path)["x"].tolist() == [1.0]
    assert names(path.parent) == [path.name]


def test_a_disk_that_has_no_room(path: Path) -> None:
    save_safetensors(ONE, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(FileError, match=f"^save_safetensors: path '{path}': File too large; ") as raised:
            save_safetensors({"x": Tensor.zeros(1 << 20)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert load_safetensors(path)["x"].tolist() == [1.0]
    assert names(path.parent) == [path.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_device_that_has_no_room() -> None:
    with pytest.raises(FileError, match="path '/dev/full': No space left on device; free space"):
        save_safetensors(ONE, "/dev/full")


def test_a_save_that_is_killed_leaves_one_file_beside_the_old_one(path: Path) -> None:
    save_safetensors(ONE, path)
    script = f"""
import os, signal
from pathlib import Path
from tallow import Tensor, save_safetensors
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
save_safetensors({{"x": Tensor([2.0])}}, {str(path)!r})
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    left, saved = names(path.parent)
    assert (left[:8], len(left), saved) == (".tallow-", 24, path.name)
    assert load_safetensors(path)["x"].tolist() == [1.0]
    save_safetensors({"x": Tensor([3.0])}, path)
    assert load_safetensors(path)["x"].tolist() == [3.0]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name, kind, message in (
        ("missing/x", MissingFile, f"No such file or directory; make the folder '{tmp_path}/missing' first"),
        ("file/x", FileError, "Not a directory; choose another path"),
        ("", FileError, "Is a directory; give the path of a file"),
        ("new/", FileError, "Is a directory; give the path of a file"),
        ("loop", FileError, "Too many levels of symbolic links; choose another path"),
        ("x" * 300, FileError, "File name too long; choose another path"),
    ):
        path = f"{tmp_path}/{name}"
        with pytest.raises(FileError) as raised:
            save_safetensors(ONE, path)
        error = raised.value
        assert (type(error), str(error)) == (kind, f"save_safetensors: path '{path}': {message}")
        # No other path is told by what else a traceback shows.
        assert error.__cause__ is None
        assert error.__suppress_context__
    assert names(tmp_path) == ["file", "loop"]


def test_a_name_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    save_safetensors(ONE, path)
    assert names(tmp_path) == [path.name]


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=f"^load_safetensors: path '{tmp_path}/x': No such file .*; choose another"):
        load_safetensors(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="make the folder"):
        load_safetensors(tmp_path / "missing" / "x")
    with pytest.raises(FileError, match=f"path '{tmp_path}': Is a directory; give the path of a file"):
        load_safetensors(tmp_path)


def content(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], end: int) -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no safetensors file"),
        (b"not a header", "is no safetensors file"),
        (struct.pack("<Q", 1 << 63) + b"{}", "is no safetensors file"),
        (content(b'{"x":' * 100_000), "is no safetensors file"),
        (content(entry("F32", [2], 8), bytes(4)), "or was cut short"),
        (content(entry("F32", [1], 4), bytes(8)), "is no safetensors file"),
        (content(entry("F32", [3], 4), bytes(4)), "is no safetensors file"),
        (content(entry("F32", [1 << 62, 4], 0)), "is no safetensors file"),
        (content(entry("F32", [-1], 4), bytes(4)), "is no safetensors file"),
        (content(entry("F32", [1] * 9, 4), bytes(4)), "tensor 'x': a tensor has at most 8 dims, not 9"),
        (content(entry("I4", [2], 2), bytes(2)), "tensor 'x' has dtype I4; convert it to one of"),
    ],
)
def test_files_that_are_cut_short_or_lie(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(InvalidArgument, match=f"^load_safetensors: path '{path}'.*{message}"):
        load_safetensors(path)


def test_every_cut_of_a_file_is_told(path: Path) -> None:
    save_safetensors({"x": Tensor([1.0, 2.0]), "y": Tensor([3])}, path, {"made": "here"})
    full = path.read_bytes()
    for size in range(len(full)):
        path.write_bytes(full[:size])
        with pytest.raises(InvalidArgument, match="is no safetensors file, or was cut short"):
            load_safetensors(path)


def test_truth_values_of_files_may_be_any_bytes(path: Path, device: Device) -> None:
    save_file({"x": np.array([[True], [False]])}, path)
    full = path.read_bytes()
    assert full.endswith(b"\1\0")
    path.write_bytes(full[:-2] + b"\x80\0")
    with open_safetensors(path, device) as file:
        part = file["x"][::2]
    for x in (load_safetensors(path, device)["x"], part):
        same(x[:1], np.array([[True]]))
        assert x.numpy().view(np.uint8)[0] == 1
        same(x.to_dtype(DType.F32)[:1], np.array([[1]], np.float32))
        same((x == True)[:1], np.array([[True]]))  # noqa: E712


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.safetensors is None], ids=str)
def test_safetensors_lacks_a_dtype(dtype, path):
    with pytest.raises(UnsupportedDType, match=r"'x': the format lacks the dtype.*use write_npy"):
        save_safetensors({"x": Tensor.zeros(3, dtype=dtype)}, path)
    assert not path.exists()


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.safetensors is not None], ids=str)
def test_a_dtype_is_what_safetensors_and_ml_dtypes_call_so(dtype, path):
    save_file({"x": np.zeros(3, dtype.numpy)}, path)
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["x"]
    begin, end = header["data_offsets"]
    assert (header["dtype"], end - begin) == (dtype.safetensors, 3 * dtype.itemsize)
    if dtype not in REALS:
        return
    facts = ml_dtypes.finfo(dtype.numpy) if dtype.is_float else ml_dtypes.iinfo(dtype.numpy)
    assert (facts.bits, facts.min < 0) == (8 * dtype.itemsize, dtype.kind != "unsigned")
    # The letters of a format's own name say how its bits are shared.
    name = dtype.value.upper()
    assert facts.dtype.name.removeprefix("b").startswith("float" if dtype.is_float else ("int", "uint"))
    if "E" in name:
        exponent, mantissa = (int(part) for part in name.partition("E")[2].split("M"))
        assert (facts.iexp, facts.nmant) == (exponent, mantissa)
