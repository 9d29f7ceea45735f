"""Safetensors files that are read in other ways than one file, whole, by its path."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file
from tallow import (
    Device,
    DType,
    FileError,
    FileFormatError,
    InvalidArgument,
    InvalidIndex,
    MissingFile,
    MissingTensor,
    OutOfMemory,
    Tensor,
    load_safetensors,
    open_safetensors,
    save_safetensors,
)
from tallow.gguf import open_gguf, save_gguf

from .arrays import numbers, same
from .test_files import content, entry

ARRAYS = {"b": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "a": np.array([7], np.int64)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path, {"made": "elsewhere"})
    return path


def made_index(folder: Path, weight_map: object) -> Path:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """An index of two files, one of which has a tensor that the index does not name."""
    save_file({"x": ARRAYS["a"], "more": ARRAYS["a"]}, tmp_path / "model-1.safetensors")
    save_file({"y": ARRAYS["b"]}, tmp_path / "model-2.safetensors")
    return made_index(tmp_path, {"x": "model-1.safetensors", "y": "model-2.safetensors"})


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_of_a_file(device: Device, kind: type) -> None:
    loaded = load_safetensors(kind(save(ARRAYS)), device)
    assert list(loaded) == ["a", "b"]
    for name, array in ARRAYS.items():
        same(loaded[name], array)
    with pytest.raises(InvalidArgument, match="path, 3 bytes: it is no safetensors file"):
        load_safetensors(kind(b"abc"))


def test_several_files(device: Device, path: Path) -> None:
    loaded = load_safetensors([path, save({"c": ARRAYS["b"]})], device)
    assert list(loaded) == ["a", "b", "c"]
    same(loaded["c"], ARRAYS["b"])
    with pytest.raises(InvalidArgument, match=r"path, .* bytes: tensor 'a' is in another of the files too"):
        load_safetensors([path, save({"a": ARRAYS["b"]})])
    assert load_safetensors([]) == {}


def test_an_index_stands_for_its_files(device: Device, shards: Path) -> None:
    loaded = load_safetensors(shards, device)
    assert list(loaded) == ["x", "y"]
    same(loaded["y"], ARRAYS["b"])


@pytest.mark.parametrize("file", ["../x.safetensors", "/etc/passwd", "a/b", "", ".", "..", "a\\b", 5, None])
def test_an_index_names_files_beside_it_and_no_others(tmp_path: Path, file: object) -> None:
    index = made_index(tmp_path, {"x": file})
    with pytest.raises((InvalidArgument, FileError), match=r"names no file next to the index|Is a directory"):
        load_safetensors(index)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 5}', '{"weight_map": []}', "[" * 100_000, "\x00"])
def test_what_is_no_index_is_told(tmp_path: Path, text: str) -> None:
    index = tmp_path / "x.json"
    index.write_text(text)
    with pytest.raises(InvalidArgument, match=f"^load_safetensors: path '{index}' is no index of safetensors files"):
        load_safetensors(index)


def test_an_index_that_names_what_is_not_there(shards: Path) -> None:
    made_index(shards.parent, {"x": "model-2.safetensors"})
    with pytest.raises(InvalidArgument, match=r"model-2.safetensors': it has no tensor 'x', which the index names"):
        load_safetensors(shards)
    made_index(shards.parent, {"x": "model-3.safetensors"})
    with pytest.raises(MissingFile, match=r"model-3.safetensors': No such file"):
        load_safetensors(shards)


def test_progress_is_told_up_to_the_end(device: Device, path: Path) -> None:
    told: list[tuple[int, int]] = []
    load_safetensors(path, device, progress=lambda *bytes_: told.append(bytes_))
    total = sum(array.nbytes for array in ARRAYS.values())
    assert told == sorted(told)
    assert told[-1] == (total, total)
    with pytest.raises(InvalidArgument, match="progress must be of type Callable"):
        load_safetensors(path, progress=5)  # type: ignore[arg-type]


def test_what_progress_raises_ends_the_loading(device: Device, path: Path) -> None:
    def stops(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_safetensors(path, device, progress=stops)
    same(load_safetensors(path, device)["b"], ARRAYS["b"])


def test_an_open_file_tells_what_it_has(path: Path) -> None:
    with open_safetensors(path) as file:
        assert (list(file), len(file), "a" in file, "c" in file) == (["a", "b"], 2, True, False)
        assert file.metadata == {"made": "elsewhere"}
        assert (file["b"].shape, file["b"].dtype, file["b"].nbytes) == ((2, 3, 4), DType.F32, 96)
        assert repr(file["b"]) == "<StoredTensor of shape (2, 3, 4), f32>"
        assert repr(file) == "<SafetensorsFile of 2 tensors, to cpu>"


INDEXES = (
    ...,
    1,
    (0, 2),
    slice(1, 2),
    (slice(None), 1),
    (..., 3),
    (slice(None), slice(0, 3, 2), None, 1),
    (1, 2, 3),
    (),
)


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("source", ["path", "bytes"])
def test_parts_are_read_as_numpy_would_index_them(device: Device, path: Path, index: Any, source: str) -> None:
    with open_safetensors(path if source == "path" else path.read_bytes(), device) as file:
        part = file["b"][index]
    assert part.device == device
    same(part, ARRAYS["b"][index])
    part.fill_(1)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.safetensors is not None])
def test_parts_of_every_dtype_at_any_place(device: Device, tmp_path: Path, dtype: DType) -> None:
    array = numbers((5, 7), dtype)
    save_safetensors({"x": Tensor(array), "y": Tensor.zeros((3,), dtype=DType.U8)}, tmp_path / "x")
    full = (tmp_path / "x").read_bytes()
    # A header of an odd size puts elements where no element of more than a byte is aligned.
    size = int.from_bytes(full[:8], "little")
    odd = (size + 1).to_bytes(8, "little") + full[8 : 8 + size] + b" " + full[8 + size :]
    for file in (open_safetensors(tmp_path / "x", device), open_safetensors(odd, device)):
        with file:
            same(file["x"][...], array)
            same(file["x"][1:, ::2], array[1:, ::2])


# A piece holds an element, some, or all.
@pytest.mark.parametrize("span", [1, 2, 6, 16, 40, 1 << 16])
@given(data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_index_reads_what_it_chooses(span: int, data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallow.runtime.files.content._LARGEST_SPAN", span)
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    slices = st.builds(
        slice, st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5), st.none() | st.integers(1, 3)
    )
    index = tuple(data.draw(slices | st.integers(-size, size - 1) if size else slices) for size in shape)
    with open_safetensors(save({"x": array})) as file:
        same(file["x"][index], array[index])


def stored_in(kind: str, path: Path, array: np.ndarray) -> Callable[[], Any]:
    """Write an array to a file; what opens it."""
    if kind == "gguf":
        save_gguf({"x": Tensor(array)}, path)
        return lambda: open_gguf(path)
    save_file({"x": array}, path)
    return lambda: open_safetensors(path)


# How a tensor is read: at once, and by pieces.
READS: dict[str, tuple[str, Callable[[Any], Tensor]]] = {
    "safetensors": ("safetensors", lambda file: file["x"][...]),
    "safetensors, strided": ("safetensors", lambda file: file["x"][:, ::2]),
    "gguf": ("gguf", lambda file: file["x"].load()),
    "gguf, blocks": ("gguf", lambda file: file["x"].blocks().dequantize()),
    "gguf, columns": ("gguf", lambda file: file["x"].part(1, 1, 2).load()),
}


@pytest.mark.parametrize("name", READS)
def test_a_file_that_is_closed_while_it_is_read_gives_its_own_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "preadv"):
        pytest.skip("the system reads by the object, whose number is its own")
    kind, read = READS[name]
    array = np.arange(1 << 15, dtype=np.float32).reshape(128, 256)
    opens = stored_in(kind, tmp_path / "x", array)
    (tmp_path / "other").write_bytes(b"other" * (1 << 16))
    with opens() as file:
        expected = read(file).numpy()
    file, others, preadv = opens(), [], os.preadv

    def closed_first(*given: Any) -> int:
        # As another thread would between the look at the descriptor and the read.
        if not others:
            file.close()
            others.append((tmp_path / "other").open("rb"))
        return preadv(*given)

    monkeypatch.setattr(os, "preadv", closed_first)
    try:
        same(read(file), expected)
    except InvalidArgument as error:  # what is read by pieces ends behind one
        assert "it is closed" in str(error)
    finally:
        for other in others:
            other.close()
    with pytest.raises(InvalidArgument, match="it is closed"):
        read(file)


@pytest.mark.parametrize("name", READS)
def test_a_file_that_is_cut_short_once_it_is_open(name: str, tmp_path: Path) -> None:
    kind, read = READS[name]
    with stored_in(kind, tmp_path / "x", np.ones((128, 256), np.float32))() as file:
        os.truncate(tmp_path / "x", 1 << 16)
        with pytest.raises(FileFormatError, match="it was cut short while it was read"):
            read(file)


def test_an_index_that_names_a_tensor_twice(tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}')
    with pytest.raises(FileFormatError, match="twice"):
        load_safetensors(index)


def test_an_index_out_of_range(path: Path) -> None:
    with open_safetensors(path) as file, pytest.raises(InvalidIndex, match="index 2 is out of range"):
        file["b"][2]


def test_a_tensor_that_is_not_there(path: Path) -> None:
    with open_safetensors(path) as file:
        with pytest.raises(MissingTensor, match=r"^open_safetensors: there is no tensor 'bb'; did you mean 'b'\?"):
            file["bb"]
        with pytest.raises(KeyError, match=r"list\(file\) gives all names"):
            file["something else"]
        assert file.get("c") is None


def test_nothing_is_read_after_the_end(path: Path) -> None:
    file = open_safetensors(path)
    stored = file["b"]
    with file:
        saved = stored[0]
    file.close()
    for index in (..., (slice(None), 1)):
        with pytest.raises(InvalidArgument, match="it is closed; read it before close"):
            stored[index]
    same(saved, ARRAYS["b"][0])


def test_a_file_that_is_cut_short_while_it_is_read(device: Device, path: Path) -> None:
    with open_safetensors(path, device) as file:
        os.truncate(path, path.stat().st_size - 40)
        with pytest.raises(InvalidArgument, match="it was cut short while it was read"):
            file["b"][...]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "file").write_bytes(save(ARRAYS))
    script = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), open(sys.argv[2], 'wb'))"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "file"), str(pipe)]):
        same(load_safetensors(pipe)["b"], ARRAYS["b"])


LIES = [
    content(b""),
    content([]),
    content({"x": []}),
    content({"x": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    content({"x": {"dtype": 5, "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    content({"x": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, bytes(4)),
    content({"x": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4)),
    content({"x": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}}, bytes(4)),
    content({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(4)),
    content({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
    content({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, bytes(4)),
    content(entry("F32", [1], 4) | {"y": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}, bytes(6)),
    content(entry("F32", [1], 4) | {"y": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    content(
        b'{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    ),
    content({"__metadata__": {"x": 5}}),
    content({"__metadata__": []}),
    content(b'{"x": \xff}'),
    content({"x": {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4 * 10**30]}}, bytes(4)),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_headers_that_lie_are_told_and_nothing_is_allocated(
    device: Device, tmp_path: Path, lie: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of several files is looked at before the first one is read."""
    (tmp_path / "x").write_bytes(lie)
    monkeypatch.setattr(type(device.inner), "load", lambda *_: pytest.fail("memory is allocated"))
    for source in (lie, tmp_path / "x", [save(ARRAYS), lie]):
        with pytest.raises(InvalidArgument, match="it is no safetensors file, or was cut short"):
            load_safetensors(source, device)


def test_a_file_that_is_larger_than_the_memory(device: Device, tmp_path: Path) -> None:
    nbytes = 1 << 43
    path = tmp_path / "sparse"
    path.write_bytes(content(entry("U8", [nbytes], nbytes)))
    try:
        os.truncate(path, path.stat().st_size + nbytes)
    except OSError:
        pytest.skip("the file system has no files of this size")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    # Where the system promises any memory, only this makes it refuse.
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, limits[1]))
    try:
        with pytest.raises(OutOfMemory):
            load_safetensors(path, device)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    with open_safetensors(path, device) as file:
        assert file["x"][-2:].tolist() == [0, 0]


def test_reading_takes_no_second_copy(tmp_path: Path) -> None:
    nbytes = 1 << 24
    save_file({"x": np.ones(nbytes, np.uint8)}, tmp_path / "x")
    tracemalloc.start()
    try:
        loaded = load_safetensors(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 1.1 * nbytes
        with open_safetensors(tmp_path / "x") as file:
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            file["x"][5:10]
            file["x"][::1000]
            assert tracemalloc.get_traced_memory()[1] < held + nbytes // 10
    finally:
        tracemalloc.stop()
    assert loaded["x"].sum().item() == nbytes
