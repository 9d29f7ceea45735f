"""Every tensor and every key that GGUF files may have: it changes the logits, is refused by name, or is listed.

The names are those of the gguf package, which has all that llama.cpp writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import Device, InvalidArgument, ShapeMismatch, Tensor
from tallow.gguf import open_gguf
from tallow.models import ExecutionPlan, ModelConfig, ModelRuntime
from tallow.runtime.base.error import TallowError

from .decoders import HEADS, KEY_HEADS, LAYERS, SENTENCES, TOKENS, VOCABULARY, metadata, oracle, saved, weights

gguf = pytest.importorskip("gguf", reason="it names the tensors and keys of all architectures")

WIDTH, HIDDEN, HEAD_DIM = 24, 20, 8
# What a tensor may have the shape of.
SHAPES = [
    (size,) for size in (WIDTH, HIDDEN, HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM, VOCABULARY, HEAD_DIM, HEAD_DIM // 2)
]
SUFFIXES = ".weight", ".bias", "", ".scale", ".input_scale", ".weight.lora_a"
# Rotations by frequencies that follow from the keys; llama.cpp skips them too.
UNUSED_TENSORS = {"attn_rot_embd", "attn_rot_embd.weight"}
UNUSED_KEYS = {
    "attention.layer_norm_epsilon",
    "attention.sliding_window_pattern",
    "pooling_type",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "tensor_data_layout",
    "vocab_size",
}
# Two of each type, no number of which is a default or another way to say that something is off.
VALUES: tuple[tuple[Any, ...], ...] = ((3, 5), (3.5, 0.75), ("yarn", "longrope"), ([1, 2], np.array([3, 1])))

# The sizes of a model, of which an error may name another that does not fit.
SIZES = {"attention.head_count", "attention.head_count_kv", "attention.key_length", "embedding_length", "block_count"}

by_architecture = pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])


def tensors_of(architecture: str, device: Device) -> dict[str, Tensor]:
    return {name: Tensor(array, device=device) for name, array in weights(architecture).items()}


def logits(plan: ExecutionPlan) -> np.ndarray:
    return ModelRuntime(plan, 8).prefill(TOKENS[:5]).numpy()


def tensor_names() -> Iterator[str]:
    """The names of all tensors, of the first layer, and of one that the model does not have."""
    for name in sorted({*gguf.TENSOR_NAMES.values(), "blk.{bid}.rope_freqs"}):
        for suffix in SUFFIXES:
            for layer in (0, LAYERS):
                yield name.format(bid=layer) + suffix


@by_architecture
def test_every_tensor_is_used_or_refused_by_name_or_listed(architecture: str, device: Device) -> None:
    config, tensors = ModelConfig.from_metadata(metadata(architecture)), tensors_of(architecture, device)
    usual = logits(ExecutionPlan(config, tensors, device))
    used, unused = set(), set()
    for name in sorted({*tensor_names()} - tensors.keys()):
        for shape in SHAPES:
            try:
                plan = ExecutionPlan(config, {**tensors, name: Tensor.full(shape, 3.0, device=device)}, device)
            except ShapeMismatch as error:
                assert f"'{name}'" in str(error)
                continue
            except InvalidArgument as error:
                assert f"'{name}'" in str(error)
                break
            if name in plan.unused:
                unused.add(name)
            else:
                assert not np.array_equal(logits(plan), usual), name
                used.add(name)
            break
        else:
            pytest.fail(f"{name} has none of the shapes")
    biases = {
        f"blk.0.{part}.bias" for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    assert used == ({*biases, "output.bias", "rope_freqs.weight"}) - tensors.keys()
    assert unused == {f"blk.{layer}.{name}" for name in UNUSED_TENSORS for layer in (0, LAYERS)}


def keys(architecture: str) -> Iterator[str]:
    """The keys of an architecture, and those of others and of no architecture that are not about files or tokens."""

    def of(names: type) -> Iterator[str]:
        for name, value in vars(names).items():
            if isinstance(value, type):
                yield from of(value)
            elif not name.startswith("_"):
                yield value.format(arch=architecture, id=0, name="tool", dense="dense_2")

    yield from of(gguf.Keys)
    # Older ones, of others, and of nobody.
    yield from (f"{architecture}.rope.scale_linear", f"{architecture}.rope.scale", f"{architecture}.unheard_of")
    yield from ("gemma2.final_logit_softcapping", "unheard.of", "quantize.imatrix.file")


@by_architecture
def test_every_key_is_used_or_refused_by_name_or_listed(architecture: str) -> None:
    base = metadata(architecture)
    usual = ModelConfig.from_metadata(base)
    for key in sorted({*keys(architecture)} - {"general.architecture"}):
        own = key.removeprefix(f"{architecture}.")
        for value in (value for values in VALUES for value in values):
            try:
                config, unused = ModelConfig.of({**base, key: value})
            except TallowError as error:
                assert own in str(error) or own in SIZES, (key, value, str(error))
                assert own not in UNUSED_KEYS, key
                assert own != key or key in ("general.type", "split.count"), key
                continue
            if own == key or own in UNUSED_KEYS:
                is_about_files = key.startswith(("general.", "split.", "tokenizer.", "quantize."))
                assert (config, unused) == (usual, () if is_about_files else (key,)), key
            else:
                assert config != usual, (key, value)
                assert unused == (), key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, 0)
            for key in ("expert_count", "attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv")
        ),
        *((key, 1.0) for key in ("logit_scale", "embedding_scale", "residual_scale", "rope.scaling.attn_factor")),
        ("attention.causal", True),
        ("use_parallel_residual", False),
    ],
)
def test_a_key_that_is_off_is_listed(key: str, value: object) -> None:
    config, unused = ModelConfig.of(metadata("llama", **{key: value}))
    assert (config, unused) == (ModelConfig.from_metadata(metadata("llama")), (f"llama.{key}",))


# How llama.cpp reads them: a factor alone is linear, 0 is 1, and the type none turns off any factor.
@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.factor": 4.0, "rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.type": "linear", "rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, 1.0),
        ({"rope.scaling.factor": 0.0}, 1.0),
        ({"rope.scaling.type": "linear"}, None),
        ({"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0}, None),
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, None),
    ],
)
def test_rope_scaling_of_old_and_incomplete_keys(values: dict[str, Any], scale: float | None) -> None:
    if scale is None:
        with pytest.raises(InvalidArgument, match=r"rope\.scal"):
            ModelConfig.from_metadata(metadata("llama", **values))
        return
    config = ModelConfig.from_metadata(metadata("llama", **values))
    tensors = tensors_of("llama", Device.cpu())
    (cos, _), (usual, _) = (
        ExecutionPlan(each, tensors).rotations(9) for each in (config, ModelConfig.from_metadata(metadata("llama")))
    )
    assert np.array_equal(cos.numpy()[:: int(scale)], usual.numpy()[: len(cos.numpy()[:: int(scale)])])


@by_architecture
def test_biases_of_every_product(architecture: str, device: Device) -> None:
    arrays = weights(architecture, biased=True)
    plan = ExecutionPlan(
        ModelConfig.from_metadata(metadata(architecture)),
        {name: Tensor(array, device=device) for name, array in arrays.items()},
        device,
    )
    np.testing.assert_allclose(logits(plan), oracle(architecture, arrays, TOKENS[:5])[-1], rtol=1e-3, atol=1e-4)


def test_a_file_lists_once_what_has_no_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="what the command reads text with")
    from tallow.run import main

    arrays = {**weights("llama"), "blk.1.attn_rot_embd.weight": np.ones(HEAD_DIM // 2, np.float32)}
    values = {**metadata("llama", vocab_size=VOCABULARY), "general.name": "m", "other.key": 1, **SENTENCES}
    path = saved(tmp_path / "m.gguf", arrays, values)
    with open_gguf(path) as file:
        plan = ExecutionPlan.from_gguf(file)
    assert plan.unused == ("llama.vocab_size", "other.key", "blk.1.attn_rot_embd.weight")
    assert main([str(path), "--prompt", "abc", "--max-tokens", "1"]) == 0
    line = "of no effect in the file: llama.vocab_size, other.key, blk.1.attn_rot_embd.weight"
    assert capsys.readouterr().err.count(line) == 1
    saved(path, {**arrays, "blk.0.ffn_sub_norm.weight": np.ones(HIDDEN, np.float32)}, values)
    assert main([str(path), "--prompt", "abc", "--max-tokens", "1"]) == 1
    assert "tensor 'blk.0.ffn_sub_norm.weight' is used by no step" in capsys.readouterr().err
