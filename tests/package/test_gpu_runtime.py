"""Models on the GPU of --device, and on the HIP runtime for the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tallow import Device, Tensor
from tallow.gguf import open_gguf, save_gguf
from tallow.runtime import ModelConfig, ModelRuntime

from . import backend
from .test_runtime import TOKENS, agree, metadata, oracle, weights

backend.require_package()


def test_a_tensor_goes_to_the_device_through_64_mib_at_most(gpu: Any, tmp_path: Path) -> None:
    save_gguf({"x": Tensor.zeros((50 << 20,), dtype="f16")}, tmp_path / "m.gguf")
    gpu.loader.close()  # and what it kept for others
    with open_gguf(tmp_path / "m.gguf", Device(gpu)) as file:
        file["x"].load()
    assert 0 < sum(slot.memory.nbytes for slot in gpu.loader._slots) <= 64 << 20


def test_a_step_of_one_token_is_one_replay_that_allocates_nothing(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(gpu)
    arrays = weights("qwen3")
    expected = oracle("qwen3", arrays, TOKENS)
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    runtime = ModelRuntime.new_with_config(ModelConfig.from_metadata(metadata("qwen3")), tensors, device)
    for _ in range(2):
        runtime.reset_state()
        for token, row in zip(TOKENS[:3], expected, strict=False):
            agree(runtime.decode_step([token])[0], row)
    monkeypatch.setattr(runtime.plan, "forward_layer", None)
    before = gpu.allocator.statistics()
    for token, row in zip(TOKENS[3:], expected[3:], strict=True):
        agree(runtime.decode_step([token])[0], row)
    after = gpu.allocator.statistics()
    assert after == before
    assert runtime.cache.length == len(TOKENS)
    assert runtime.cache.position.numpy().tolist() == [len(TOKENS)]
