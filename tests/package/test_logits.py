"""Logits of decoders of random weights beside NumPy in float64 and, with --full, beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tallow import Device, DType, InvalidArgument
from tallow.gguf import open_gguf, save_gguf
from tallow.models import ExecutionPlan, ModelConfig, ModelRuntime

from .decoders import (
    ARCHITECTURES,
    BLOCKS,
    EPSILON,
    FORMATS,
    HEADS,
    KEY_HEADS,
    LAYERS,
    ROPE_BASE,
    TOKENS,
    VOCABULARY,
    Arrays,
    agree,
    decoded,
    distance,
    in_blocks,
    metadata,
    oracle,
    read_back,
    saved,
    some_tokens,
    weights,
)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases, one key head and a tied head": ("llama", {"key_heads": 1, "tied": True, "biased": True}),
    "mistral": ("mistral", {"key_heads": 4}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_definition(device: Device, tmp_path: Path, name: str) -> None:
    architecture, options = CASES[name]
    arrays = weights(architecture, **options)
    key_heads = options.get("key_heads", KEY_HEADS)
    path = saved(tmp_path / "m.gguf", arrays, metadata(architecture, **{"attention.head_count_kv": key_heads}))
    expected = oracle(architecture, arrays, TOKENS)
    runtime = ModelRuntime.load_from_gguf(path, device)
    agree(runtime.decode_step(TOKENS), expected)
    runtime.reset_state()
    # The second step of one token and those behind it are replays, on a GPU.
    for token, row in zip(TOKENS, expected, strict=True):
        agree(runtime.decode_step([token])[0], row)
    runtime.reset_state()
    agree(runtime.prefill(TOKENS[:-1], piece=5), expected[-2])
    agree(runtime.decode_step([TOKENS[-1]])[0], expected[-1])
    assert runtime.cache.length == len(TOKENS)


def test_steps_of_one_token_are_replayed_on_the_cpu() -> None:
    if Device.cpu().inner.kernels is None:
        pytest.skip("NumPy repeats no steps; run 'opgen compile --host', and leave TALLOW_THREADS alone")
    tensors = in_blocks(weights("llama", **BLOCKS), "Q8_0")
    config = ModelConfig.from_metadata(metadata("llama", **BLOCKS))
    runtime = ModelRuntime(ExecutionPlan(config, tensors, "cpu", activations="q8_1"))
    logits = [runtime.decode_step([token])[0].numpy() for token in TOKENS]
    assert runtime._graph is not None
    runtime.recreate_kv_cache()
    for token, row in zip(TOKENS[:2], logits, strict=False):
        assert runtime.decode_step([token])[0].numpy().tolist() == row.tolist()
    runtime.reset_state()
    for token, row in zip(TOKENS, logits, strict=True):
        assert runtime.decode_step([token])[0].numpy().tolist() == row.tolist()


def test_weights_of_16_bits_are_read_as_they_are(device: Device, tmp_path: Path) -> None:
    arrays = weights("llama")
    for dtype in (DType.F16, DType.BF16):
        path = saved(tmp_path / "m.gguf", arrays, metadata("llama"), dtype)
        with open_gguf(path) as file:
            rounded = {name: tensor.load().to_dtype("f32").numpy() for name, tensor in file.items()}
        agree(ModelRuntime.load_from_gguf(path, device).decode_step(TOKENS), oracle("llama", rounded, TOKENS))


@ARCHITECTURES
@pytest.mark.parametrize("format", FORMATS[1:])
def test_matrices_stay_in_their_blocks(
    device: Device, tmp_path: Path, format: str, architecture: str, biased: bool, full: bool
) -> None:
    if not full and (FORMATS.index(format) + len(architecture) + biased) % 2:
        pytest.skip("each format has half of the architectures, and --full has all")
    tensors = in_blocks(weights(architecture, tied=True, biased=biased, **BLOCKS), format)
    path, tokens = tmp_path / "m.gguf", some_tokens(32)
    save_gguf(tensors, path, metadata(architecture, **BLOCKS))
    expected = oracle(architecture, decoded(tensors), tokens)
    runtime = ModelRuntime.load_from_gguf(path, device)
    agree(runtime.decode_step(tokens), expected)
    runtime.reset_state()
    # One token at a time a GPU does the same for each.
    few = len(tokens) if full or device.is_cpu() else 3
    for token, row in zip(tokens[:few], expected[:few], strict=True):
        agree(runtime.decode_step([token])[0], row)


# docs/models.md says so: of models that transformers begins with, and of those whose weights keep the size of x.
@pytest.mark.parametrize(("deviation", "most", "max_of_q4_0"), [(0.02, 0.2, 0.2), (0.125, 0.4, 0.8)])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("format", FORMATS[1:])
def test_rounded_activations_move_logits_by_a_part_of_their_deviation(
    device: Device, format: str, architecture: str, deviation: float, most: float, max_of_q4_0: float, full: bool
) -> None:
    if not full and (FORMATS.index(format) + (architecture == "llama") + (deviation == 0.125)) % 2:
        pytest.skip("each format has both architectures and both deviations, and --full has each with each")
    tensors = in_blocks(weights(architecture, deviation=deviation, **BLOCKS), format, device)
    config, tokens = ModelConfig.from_metadata(metadata(architecture, **BLOCKS)), some_tokens(32)
    exact = ModelRuntime(ExecutionPlan(config, tensors, device))
    rounded = ModelRuntime(ExecutionPlan(config, tensors, device, activations="q8_1"))
    expected = exact.decode_step(tokens).numpy()
    # Of more than 8 rows at once none is rounded, and floats are no quants.
    logits = np.concatenate([rounded.decode_step([token]).numpy() for token in tokens])
    off = distance(logits, expected)
    if format == "F16":
        assert off < 1e-4
    else:
        assert 1e-3 < off < (max_of_q4_0 if format == "Q4_0" else most)


def test_activations_are_rounded_in_one_way() -> None:
    with pytest.raises(InvalidArgument, match="activations is 'q8_1' or None, not 'q4'"):
        ExecutionPlan(
            ModelConfig.from_metadata(metadata("llama")), in_blocks(weights("llama"), "F32"), activations="q4"
        )


def of_transformers(architecture: str, arrays: Arrays, biased: bool, tokens: list[int]) -> NDArray[Any]:
    """The logits of transformers' model of weights."""
    torch = pytest.importorskip("torch", reason="what transformers stands on")
    transformers = pytest.importorskip("transformers", reason="the oracle of whole models")
    prefix = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[architecture]
    if not hasattr(transformers, f"{prefix}Config"):
        pytest.skip(f"this version of transformers has no {prefix}")
    rows, width = arrays["blk.0.attn_q.weight"].shape
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=len(arrays["blk.0.ffn_up.weight"]),
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=rows // HEADS,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        tie_word_embeddings=False,
        # Those of qwen2 are there without it.
        attention_bias=biased,
    )
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"} | {
        f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"
    }
    parts |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")} | {
        "attn_output": "self_attn.o_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    state = {}
    for name, array in arrays.items():
        stem, kind = name.rsplit(".", 1)
        if architecture == "llama" and stem.endswith(("attn_q", "attn_k")):
            # There pairs are halves, and files have their rows as neighbours.
            array = array.reshape(-1, rows // HEADS // 2, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            stem = f"model.layers.{layer}.{parts[part]}"
        state[f"{names.get(stem, stem)}.{kind}"] = torch.tensor(array)
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
    model.load_state_dict(state)
    with torch.no_grad():
        logits: NDArray[Any] = model(torch.tensor([tokens])).logits[0].numpy()
    return logits


@pytest.mark.full
@pytest.mark.parametrize("by", ["the whole prompt", "token by token"])
@ARCHITECTURES
@pytest.mark.parametrize("format", FORMATS)
def test_logits_are_those_of_transformers(
    device: Device, tmp_path: Path, format: str, architecture: str, biased: bool, by: str
) -> None:
    pytest.importorskip("gguf", reason="what reads the weights back from the file")
    path, tokens = tmp_path / "m.gguf", some_tokens(32)
    save_gguf(in_blocks(weights(architecture, biased=biased, **BLOCKS), format), path, metadata(architecture, **BLOCKS))
    expected = of_transformers(architecture, read_back(path), biased, tokens)
    runtime = ModelRuntime.load_from_gguf(path, device)
    if by == "the whole prompt":
        agree(runtime.decode_step(tokens), expected)
        return
    full = runtime.decode_step(tokens).numpy()
    runtime.reset_state()
    for token, row, row_of_whole in zip(tokens, expected, full, strict=True):
        logits = runtime.decode_step([token])[0]
        agree(logits, row)
        agree(logits, row_of_whole)
