"""GGUF files: what is read of those that the gguf package writes, what that reads of ours, and what is refused."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tallow import Device, DType, FileError, InvalidArgument, MissingFile, MissingTensor, QTensor, TallowError, Tensor
from tallow.gguf import GgufFile, open_gguf, save_gguf

from .arrays import numbers, same

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 0.5,
    "least": -(2**31),
    "wide": 2**40,
    "lowest": -(2**40),
    "flag": True,
    "text": "ü\0 ",
    "tokenizer.ggml.tokens": ["", "a", "ü"],
    "tokenizer.ggml.scores": np.array([0.5, -1], np.float32),
    "mask": np.array([True, False]),
    "pair": np.array([1, 2], np.uint16),
    "byte": np.int8(-3),
    "double": np.float64(0.1),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.fixture
def theirs() -> Any:
    return pytest.importorskip("gguf", reason="the oracle of the format")


def plain(value: Any) -> Any:
    """A value as Python's own."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def written(version: int = 3, alignment: int = 32, **tensors: tuple[tuple[int, ...], int, int, bytes]) -> bytes:
    """A file of tensors, each a shape with the dense dim first, a type, an offset and bytes, without metadata."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), alignment != 32)
    if alignment != 32:
        key = b"general.alignment"
        head += struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, alignment)
    for name, (shape, kind, offset, _) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)
    content = bytearray(head + bytes(-len(head) % max(alignment, 1)))
    start = len(content)
    for _, _, offset, elements in tensors.values():
        if offset < 1 << 20:
            content.extend(bytes(max(0, start + offset + len(elements) - len(content))))
            content[start + offset : start + offset + len(elements)] = elements
    return bytes(content)


def test_files_keep_tensors_and_metadata(device: Device, path: Path) -> None:
    tensors = {
        "f32": Tensor(numbers((2, 3)), device=device).T,
        "f16": Tensor(numbers((2, 1, 3, 4), DType.F16), device=device),
        "bf16": Tensor(numbers((5,), DType.BF16), device=device),
        "scalar": Tensor(3.0, device=device),
    }
    for version in (2, 3):
        save_gguf(tensors, path, METADATA, version=version)
        with open_gguf(path, device) as file:
            assert file.version == version
            assert {key: plain(value) for key, value in file.metadata.items()} == {
                key: plain(value) for key, value in METADATA.items()
            }
            assert [*file] == [*tensors]
            for name, tensor in tensors.items():
                assert file[name].shape == tensor.shape
                loaded = file[name].load()
                assert loaded.device == device
                same(loaded, tensor.numpy())
    assert not [other for other in path.parent.iterdir() if other != path]


def test_the_gguf_package_reads_what_is_written_here(theirs: Any, path: Path) -> None:
    arrays = {"x": numbers((3, 4)), "y": numbers((2, 3, 32), DType.F16), "z": numbers((7,))}
    blocks = QTensor.quantize(Tensor(numbers((3, 256))), "Q4K")
    for alignment in (32, 64):
        metadata = METADATA | {"general.alignment": alignment}
        save_gguf({name: Tensor(array) for name, array in arrays.items()} | {"blocks": blocks}, path, metadata)
        reader = theirs.GGUFReader(path)
        assert {key: reader.fields[key].contents() for key in metadata} == {
            key: plain(value) for key, value in metadata.items()
        }
        *plain_ones, last = reader.tensors
        for tensor in plain_ones:
            assert tensor.data_offset % alignment == 0
            np.testing.assert_array_equal(tensor.data, arrays[tensor.name], strict=True)
        assert (last.tensor_type.name, [*last.shape]) == ("Q4_K", [256, 3])
        assert last.data.tobytes() == blocks.data.tobytes()


def their_file(theirs: Any, path: Path) -> dict[str, NDArray[Any]]:
    """Write a file of every kind of block with the gguf package: the tensors' numbers."""
    writer = theirs.GGUFWriter(path, "llama")
    for key, value in METADATA.items():
        if key.startswith(("llama", "tokenizer.ggml.tokens", "flag", "text")):
            writer.add_key_value(key, value, theirs.GGUFValueType.get_type(value), None)
    writer.add_uint64("wide", METADATA["wide"])
    arrays = {"plain": numbers((3, 64)), "half": numbers((2, 32), DType.F16)}
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    random = np.random.default_rng(0)
    for kind in ("Q4_0", "Q8_0", "Q4_K", "Q6_K"):
        kind = theirs.GGMLQuantizationType[kind]
        _, nbytes = theirs.GGML_QUANT_SIZES[kind]
        arrays[kind.name] = random.integers(0, 256, (3, 2 * nbytes), np.uint8)
        writer.add_tensor(kind.name, arrays[kind.name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays


def test_files_of_the_gguf_package_are_read_here(device: Device, theirs: Any, path: Path) -> None:
    arrays = their_file(theirs, path)
    with open_gguf(path, device) as file:
        for key in ("llama.block_count", "wide", "flag", "tokenizer.ggml.tokens"):
            assert file.metadata[key] == METADATA[key]
        assert [*file] == [*arrays]
        for name in ("plain", "half"):
            same(file[name].load(), arrays[name])
        for name in ("Q4_0", "Q8_0", "Q4_K", "Q6_K"):
            kind = theirs.GGMLQuantizationType[name]
            assert file[name].dtype.to_u32() == kind
            assert tuple(file[name].shape) == (3, 2 * theirs.GGML_QUANT_SIZES[kind][0])
            loaded = file[name].load()
            assert (loaded.dtype, loaded.shape, loaded.device) == (file[name].dtype, file[name].shape, device)
            np.testing.assert_array_equal(loaded.data, arrays[name].reshape(-1))
            with np.errstate(all="ignore"):
                expected = theirs.dequantize(arrays[name], kind)
            np.testing.assert_array_equal(loaded.dequantize().numpy(), expected)
        assert file["half"].blocks().data.tobytes() == arrays["half"].tobytes()


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(width=32, allow_nan=False)
    | texts
    | st.lists(texts, min_size=1)
    | st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1)
    | st.lists(st.lists(st.booleans(), min_size=1), min_size=1)
)


@given(metadata=st.dictionaries(texts, values, max_size=5))
def test_metadata_return_as_they_were(tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, Any]) -> None:
    metadata.pop("general.alignment", None)
    path = tmp_path_factory.getbasetemp() / "metadata.gguf"
    save_gguf({}, path, metadata)
    with open_gguf(path) as file:
        actual = {
            key: [plain(item) for item in value] if isinstance(value, list) else plain(value)
            for key, value in file.metadata.items()
        }
    assert actual == metadata


def test_a_vocabulary_is_read_in_a_window(path: Path) -> None:
    """Texts that cross the ends of windows, and one that is longer than a window."""
    texts = [f"{number:x}" * (number % 7) for number in range(300_000)] + ["long" * 1_000_000, "end"]
    save_gguf({}, path, {"tokens": texts})
    with open_gguf(path) as file:
        assert file.metadata["tokens"] == texts


@pytest.mark.parametrize("is_text", [True, False])
def test_a_header_of_more_than_128_mib_is_refused_before_it_is_read(path: Path, is_text: bool) -> None:
    nbytes = (128 << 20) + 8
    key = b"tokens"
    value = struct.pack("<IQ", 8, nbytes) if is_text else struct.pack("<IIQ", 9, 0, nbytes)
    with path.open("wb") as stream:
        stream.write(HEAD + struct.pack("<Q", len(key)) + key + value)
        stream.truncate(nbytes + 4096)  # a hole that takes no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match=f"key 'tokens' ends after the {128 << 20} bytes that are read"):
            open_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_tensors_of_a_closed_file_are_not_read(path: Path) -> None:
    save_gguf({"x": Tensor([1.0])}, path)
    with open_gguf(path) as file:
        tensor = file["x"]
        with pytest.raises(MissingTensor, match="did you mean 'x'"):
            file["x."]
    with pytest.raises(InvalidArgument, match="it is closed"):
        tensor.load()


def test_whether_a_file_has_a_tensor_is_told_without_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan asks so for each tensor that an architecture may lack, and an error compares the names of all."""
    save_gguf({"x": Tensor([1.0])}, path)
    monkeypatch.setattr(MissingTensor, "among", None)
    with open_gguf(path) as file:
        assert "x" in file
        assert "y" not in file
        assert [] not in file


def test_what_cannot_be_opened_is_named(path: Path) -> None:
    with pytest.raises(MissingFile, match=r"model\.gguf"):
        open_gguf(path)
    with pytest.raises(FileError, match="directory"):
        open_gguf(path.parent)
    with pytest.raises(InvalidArgument, match="names no file"):
        open_gguf(3)  # type: ignore[arg-type]


ONE = ((4,), 0, 0, bytes(16))
HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)


def keyed(kind: int, value: bytes, key: bytes = b"key") -> bytes:
    return HEAD + struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the header was cut short"),
        (b"PK\3\4" + bytes(60), "no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "the other byte order"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "the header counts"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "the header counts"),
        (HEAD + struct.pack("<Q", 1 << 62) + bytes(20), "the key number 0 was cut short"),
        (keyed(13, bytes(8)), "key 'key' has a value of kind 13"),
        (keyed(8, struct.pack("<Q", 99)), "key 'key' was cut short"),
        (keyed(8, struct.pack("<Q", 1) + b"\xff"), "key 'key' has a text that is not UTF-8"),
        (keyed(9, struct.pack("<IQ", 8, 1 << 61)), "key 'key' counts"),
        (keyed(9, struct.pack("<IQ", 4, 1 << 62)), "key 'key' counts"),
        (keyed(9, struct.pack("<IQ", 8, 2) + struct.pack("<Q", 0) + struct.pack("<Q", 9)), "key 'key' was cut short"),
        (keyed(9, struct.pack("<IQ", 9, 1) * 99), "key 'key' has arrays nested deeper"),
        (keyed(7, b"\2"), "key 'key' has a bool that is neither"),
        (keyed(4, struct.pack("<I", 48), b"general.alignment"), "key 'general.alignment' is 48"),
        (keyed(4, struct.pack("<I", 0), b"general.alignment"), "key 'general.alignment' is 0"),
        (written(x=ONE)[:-1], "tensor 'x' ends at byte .* cut short"),
        (written(x=ONE)[:48], "tensor 'x' was cut short"),
        (written(x=ONE, y=((4,), 0, 1 << 40, b"")), "tensor 'y' ends at byte"),
        (written(x=ONE, y=((4,), 0, 40, bytes(16))), "tensor 'y' begins at byte 40 .* no multiple of 32"),
        (written(alignment=64, x=ONE, y=((4,), 0, 32, bytes(16))), "tensor 'y' begins at byte 32 .* no multiple of 64"),
        (written(x=((16,), 0, 0, bytes(64)), y=((4,), 0, 32, bytes(16))), "tensor 'y' .* inside of tensor 'x'"),
        (written(x=((4, 0), 0, 0, b"")), "tensor 'x' has shape .* a dim of 0"),
        (written(x=((48,), 2, 0, bytes(36))), "tensor 'x' has shape .* multiple of the 32 of Q4_0"),
        (written(x=((1 << 32, 1 << 32), 0, 0, b"")), "tensor 'x' has shape .* more elements than can be counted"),
        (written(x=((1, 1, 1, 1, 1), 0, 0, bytes(4))), "tensor 'x' has 5 dims"),
        (written(x=((4,), 99, 0, bytes(16))), "tensor 'x' has another type: 99 is"),
        (written(x=ONE, y=ONE).replace(b"y", b"x"), "tensor 'x' occurs twice"),
        (HEAD[:-8] + struct.pack("<Q", 2) + keyed(4, bytes(4))[24:] * 2, "key 'key' occurs twice"),
    ],
    ids=lambda part: "" if isinstance(part, bytes) else part,
)
def test_a_file_that_lies_is_refused_by_key_or_tensor(content: bytes, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^open_gguf: path, {len(content)} bytes: .*{reason}"):
        open_gguf(content)


def test_a_file_that_does_not_lie_is_read() -> None:
    """The helpers of these tests write files that only the error of each case spoils."""
    with open_gguf(written(alignment=64, x=ONE, y=((32, 2), 2, 64, bytes(36)))) as file:
        assert file["y"].nbytes == 36
    with open_gguf(keyed(9, struct.pack("<IQ", 9, 1) * 3 + struct.pack("<IQ", 0, 1) + b"\7")) as file:
        assert np.array(file.metadata["key"]).tolist() == [[[[7]]]]


@pytest.mark.parametrize(
    ("tensors", "metadata", "reason"),
    [
        ([], {}, "tensors must be a dict by name"),
        ({"x": np.zeros(3)}, {}, "tensors: 'x' must be a Tensor or a QTensor"),
        ({1: Tensor([1.0])}, {}, "tensors: the name must be a str"),
        ({"x": Tensor([1])}, {}, "tensors: 'x' is of i64; convert it to one of f32, f16, bf16"),
        ({"x": Tensor.zeros((1, 1, 1, 1, 1))}, {}, "tensors: 'x' has shape"),
        ({"x": Tensor.zeros((0,))}, {}, "tensors: 'x' has shape"),
        ({}, {"key": None}, "metadata: key 'key' must be a bool"),
        ({}, {"key": 1 << 64}, "metadata: key 'key' must be a bool"),
        ({}, {"key": 1e300}, "metadata: key 'key' is beyond f32"),
        ({}, {"key": [0.5, -1e300]}, "metadata: key 'key' is beyond f32"),
        ({}, {"key": "\ud800"}, "metadata: key 'key' must be a str that UTF-8 can hold"),
        ({}, {"key": ["a", 1]}, "metadata: key 'key' must be a bool"),
        ({}, {"key": [[1], 1]}, "metadata: key 'key' mixes arrays"),
        ({}, {"key": np.zeros((2, 2))}, "metadata: key 'key' is an array of 2 dims"),
        ({}, {"key": np.float16(1)}, "metadata: key 'key' has dtype float16"),
        ({}, {"key": [[[[[[[1]]]]]]]}, "metadata: key 'key' has arrays nested deeper"),
        ({}, {"general.alignment": 48}, "metadata: key 'general.alignment' is 48"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(path: Path, tensors: Any, metadata: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"save_gguf: {reason}"):
        save_gguf(tensors, path, metadata)
    assert not path.exists()
    with pytest.raises(InvalidArgument, match="version must be 2 or 3"):
        save_gguf({}, path, version=1)


def read(content: bytes) -> GgufFile:
    """Read all of a file."""
    with open_gguf(content) as file:
        for tensor in file.values():
            tensor.load()
    return file


EXTREMES = [0, 1, 2, 7, 31, 32, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 56, 1 << 63, (1 << 64) - 1]


def mutated(random: np.random.Generator, content: bytes) -> bytes:
    """A file with one to four changes: other bytes, other integers, parts cut out, doubled or put elsewhere."""
    changed = bytearray(content)
    for _ in range(random.integers(1, 5)):
        if not changed:
            break
        at = int(random.integers(0, min(len(changed), 1000)))
        end = at + int(random.integers(1, 40))
        match random.integers(0, 6):
            case 0:
                changed[at] = random.integers(0, 256)
            case 1:
                changed[at : at + 8] = struct.pack("<Q", EXTREMES[random.integers(len(EXTREMES))])
            case 2:
                changed[at : at + 4] = struct.pack("<I", random.integers(0, 40))
            case 3:
                del changed[at:end]
            case 4:
                changed[at:at] = changed[at:end]
            case 5:
                del changed[int(random.integers(len(changed))) :]
    return bytes(changed)


def test_mutated_files_load_or_are_refused(path: Path, full: bool) -> None:
    tensors = {"x": Tensor(numbers((3, 4))), "half": Tensor(numbers((2, 3, 32), DType.F16)), "last": Tensor([1.0])}
    save_gguf(tensors, path, METADATA | {"nested": [[[1], [2, 3]], [[4]]]})
    contents = [path.read_bytes(), written(x=ONE, y=((4, 2), 0, 32, bytes(32)), z=((32, 3), 2, 64, bytes(54)))]
    random = np.random.default_rng(7)
    refused = 0
    tracemalloc.start()
    try:
        for number in range(10_000 if full else 300):
            content = mutated(random, contents[number % 2])
            tracemalloc.reset_peak()
            begin = time.thread_time()
            try:
                read(content)
            except TallowError as error:
                refused += 1
                assert "open_gguf: path, " in str(error)
            assert time.thread_time() - begin < 1
            assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert refused


def test_a_tensor_takes_no_memory_but_its_own(path: Path) -> None:
    nbytes = 32 << 20
    save_gguf({"x": Tensor.zeros((nbytes // 2,), dtype=DType.F16)}, path)
    tracemalloc.start()
    try:
        with open_gguf(path) as file:
            file["x"].load()
        assert tracemalloc.get_traced_memory()[1] < nbytes + (2 << 20)
    finally:
        tracemalloc.stop()
