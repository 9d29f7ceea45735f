"""Models on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import Device, Graph, InvalidArgument, QStorage, QTensor, Tensor
from tallow.gguf import open_gguf, save_gguf
from tallow.models import ModelConfig, ModelRuntime
from tallow.runtime.backends.gpu_backend.memory.allocator import Slice
from tallow.runtime.files.gguf.file import concatenated_blocks

from . import backend
from .decoders import BLOCKS, TOKENS, agree, decoded, in_blocks, metadata, oracle, weights

backend.require_package()


@pytest.mark.parametrize("of", ["floats", "blocks", "joined"])
def test_tensors_go_to_the_device_through_64_mib_at_most(gpu: Any, tmp_path: Path, of: str) -> None:
    shape = (13 << 10, 4096)
    if of == "floats":
        tensors: dict[str, Any] = {"x": Tensor.zeros(shape, dtype="f16")}
    else:
        content = np.zeros(shape[0] * shape[1] // 32 * 34, np.uint8)
        content[-1] = 7
        tensors = {name: QTensor(QStorage.from_data(content, Device.cpu(), "Q8_0"), shape) for name in ("x", "y")}
    save_gguf(tensors, tmp_path / "m.gguf")
    gpu.loader.close()  # and what it kept for others
    with open_gguf(tmp_path / "m.gguf", Device(gpu)) as file:
        loaded = concatenated_blocks([file["x"], file["y"]]) if of == "joined" else file["x"].load()
    assert 0 < sum(slot.memory.nbytes for slot in gpu.loader._slots) <= 64 << 20
    if of == "joined":
        assert isinstance(loaded, QTensor)
        assert np.flatnonzero(loaded.data).tolist() == [content.size - 1, 2 * content.size - 1]


def counted(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> Counter[str]:
    """How often memory is asked for, of the driver and of the allocator, and how often work is replayed."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        original = getattr(owner, name)

        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            counts[what] += 1
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, wrapped)

    count(type(gpu.driver), "allocate", "driver")
    count(Slice, "__init__", "slices")
    count(Graph, "replay", "replays")
    return counts


@pytest.mark.parametrize("format", ["F32", "Q8_0", "Q4K"])
def test_from_the_second_on_a_step_is_one_replay_that_allocates_nothing(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    device = Device(gpu)
    tensors = in_blocks(weights("qwen3", **BLOCKS), format, device)
    expected = oracle("qwen3", decoded(tensors), TOKENS)
    config = ModelConfig.from_metadata(metadata("qwen3", **BLOCKS))
    runtime = ModelRuntime.new_with_config(config, tensors, device)
    gpu.allocator.empty_cache()
    counts = counted(monkeypatch, gpu)
    agree(runtime.decode_step([TOKENS[0]])[0], expected[0])
    assert runtime.cache.length == 1
    assert counts["driver"] > 0
    assert counts["slices"] > counts["driver"]
    assert counts["replays"] == 0
    monkeypatch.setattr(runtime.plan, "_layer", None)
    counts.clear()
    before = gpu.allocator.statistics()
    logits = []
    for token in TOKENS[1:]:
        logits.append(runtime.decode_step([token])[0].numpy())
    assert counts == {"replays": len(TOKENS) - 1}
    assert gpu.allocator.statistics() == before
    agree(Tensor(np.array(logits), device=device), expected[1:])
    assert runtime.cache.length == len(TOKENS)
    assert runtime.cache.position.numpy().tolist() == [len(TOKENS)]
    runtime.reset_state()
    agree(runtime.decode_step([TOKENS[0]])[0], expected[0])


def test_the_last_token_that_there_is_room_for_may_be_the_first_step(gpu: Any) -> None:
    """The capture behind it asks for no more room."""
    device = Device(gpu)
    arrays = weights("llama")
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    config = ModelConfig.from_metadata(metadata("llama"))
    runtime = ModelRuntime.new_with_config(config, tensors, device, max_seq_len=4)
    runtime.prefill(TOKENS[:3])
    expected = oracle("llama", arrays, TOKENS[:4])
    agree(runtime.decode_step([TOKENS[3]])[0], expected[3])
    with pytest.raises(InvalidArgument, match="holds 4 tokens, 4 are there"):
        runtime.decode_step([TOKENS[4]])
    runtime.reset_state()
    for token, row in zip(TOKENS[:4], expected, strict=True):
        agree(runtime.decode_step([token])[0], row)
