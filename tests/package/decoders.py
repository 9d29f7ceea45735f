"""Decoders of random weights for tests: their files, and their logits by NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tallow import Device, DType, GgmlDType, QTensor, Tensor
from tallow.gguf import save_gguf

Arrays = dict[str, NDArray[Any]]

LAYERS, HEADS, KEY_HEADS = 2, 4, 2
VOCABULARY, CONTEXT, ROPE_BASE, EPSILON = 29, 40, 100.0, 1e-5
# In whole blocks of 256, where every matrix can be in blocks of every format.
BLOCKS = {"width": 256, "hidden": 256, "head_dim": 64}
FORMATS = ("F32", "F16", "Q8_0", "Q4_0", "Q4K", "Q6K")

TEXTS = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxy"]
# A vocabulary of letters, as files of SentencePiece have it.
SENTENCES = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TEXTS,
    "tokenizer.ggml.scores": np.zeros(VOCABULARY, np.float32),
    "tokenizer.ggml.token_type": np.array([2, 3, 3, *[1] * 26], np.int32),
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}

# Whether products have biases; those of one tensor by several weights are one where these are in blocks.
ARCHITECTURES = pytest.mark.parametrize(
    ("architecture", "biased"),
    [
        pytest.param("llama", False, id="llama"),
        pytest.param("llama", True, id="llama with biases"),
        pytest.param("qwen2", True, id="qwen2"),
        pytest.param("qwen3", False, id="qwen3"),
    ],
)


def some_tokens(count: int) -> list[int]:
    return np.random.default_rng(5).integers(0, VOCABULARY, count).tolist()


TOKENS = some_tokens(12)


def metadata(
    architecture: str, *, width: int = 24, hidden: int = 20, head_dim: int = 8, **changes: object
) -> dict[str, Any]:
    """The keys of a small model, changed or, with None, without some."""
    keys = {
        "block_count": LAYERS,
        "embedding_length": width,
        "feed_forward_length": hidden,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "context_length": CONTEXT,
        "rope.freq_base": ROPE_BASE,
        **changes,
    }
    results = {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": architecture, **results}


def weights(
    architecture: str,
    *,
    key_heads: int = KEY_HEADS,
    tied: bool = False,
    biased: bool = False,
    width: int = 24,
    hidden: int = 20,
    head_dim: int = 8,
    deviation: float | None = None,
) -> Arrays:
    """Random weights, by the names of GGUF files, of a deviation that keeps the size of what they multiply or another.

    Queries, keys and values of qwen2 have biases; with `biased` all products of the others have.
    """
    random = np.random.default_rng(7)
    rows, key_rows = HEADS * head_dim, key_heads * head_dim
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,)}
    if not tied:
        shapes["output.weight"] = (VOCABULARY, width)
    if biased and architecture != "qwen2":
        shapes["output.bias"] = (VOCABULARY,)
    for layer in range(LAYERS):
        parts = {
            "attn_norm.weight": (width,),
            "ffn_norm.weight": (width,),
            "attn_q.weight": (rows, width),
            "attn_k.weight": (key_rows, width),
            "attn_v.weight": (key_rows, width),
            "attn_output.weight": (width, rows),
            "ffn_gate.weight": (hidden, width),
            "ffn_up.weight": (hidden, width),
            "ffn_down.weight": (width, hidden),
        }
        if biased or architecture == "qwen2":
            parts |= {"attn_q.bias": (rows,), "attn_k.bias": (key_rows,), "attn_v.bias": (key_rows,)}
        if biased and architecture != "qwen2":
            parts |= {"attn_output.bias": (width,), "ffn_down.bias": (width,)}
            parts |= {"ffn_gate.bias": (hidden,), "ffn_up.bias": (hidden,)}
        if architecture == "qwen3":
            parts |= {"attn_q_norm.weight": (head_dim,), "attn_k_norm.weight": (head_dim,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    usual = 2 / math.sqrt(width)

    def scale(shape: tuple[int, ...]) -> float:
        return usual if deviation is None or len(shape) == 1 else deviation

    return {
        name: (random.standard_normal(shape) * scale(shape) + ("norm" in name)).astype(np.float32)
        for name, shape in shapes.items()
    }


def oracle(architecture: str, arrays: Arrays, tokens: list[int], base: float = ROPE_BASE) -> NDArray[Any]:
    """The logits (tokens, vocabulary) of a decoder, in float64."""
    w = {name: array.astype(np.float64) for name, array in arrays.items()}
    n, halves = len(tokens), architecture.startswith("qwen")
    size = len(w["blk.0.attn_q.weight"]) // HEADS
    frequencies = base ** (-np.arange(0, size, 2) / size) / w.get("rope_freqs.weight", 1)
    turns = np.exp(1j * np.arange(n)[:, None] * frequencies)

    def norm(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight

    def transposed(x: NDArray[Any]) -> NDArray[Any]:
        pairs = x[..., : size // 2] + 1j * x[..., size // 2 :] if halves else x[..., 0::2] + 1j * x[..., 1::2]
        pairs = pairs * turns
        parts = (pairs.real, pairs.imag)
        return np.concatenate(parts, -1) if halves else np.stack(parts, -1).reshape(x.shape)

    x = w["token_embd.weight"][tokens]
    for layer in range(LAYERS):
        of = {name.split(".", 2)[2]: array for name, array in w.items() if name.startswith(f"blk.{layer}.")}
        normed = norm(x, of["attn_norm.weight"])
        q, k, v = (
            (normed @ of[f"attn_{part}.weight"].T + of.get(f"attn_{part}.bias", 0)).reshape(n, -1, size).swapaxes(0, 1)
            for part in "qkv"
        )
        if architecture == "qwen3":
            q, k = norm(q, of["attn_q_norm.weight"]), norm(k, of["attn_k_norm.weight"])
        k, v = (np.repeat(part, len(q) // len(k), axis=0) for part in (transposed(k), v))
        scores = transposed(q) @ k.swapaxes(1, 2) / math.sqrt(size) + np.triu(np.full((n, n), -np.inf), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        results = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(n, -1)
        x = x + results @ of["attn_output.weight"].T + of.get("attn_output.bias", 0)
        normed = norm(x, of["ffn_norm.weight"])
        gate, up = (normed @ of[f"ffn_{part}.weight"].T + of.get(f"ffn_{part}.bias", 0) for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ of["ffn_down.weight"].T + of.get("ffn_down.bias", 0)
    head = w.get("output.weight", w["token_embd.weight"])
    return norm(x, w["output_norm.weight"]) @ head.T + w.get("output.bias", 0)


def saved(path: Path, arrays: Arrays, values: Mapping[str, Any], dtype: DType = DType.F32) -> Path:
    """A file of weights, whose matrices have a dtype."""
    tensors = {name: Tensor(array).to_dtype(dtype if array.ndim > 1 else DType.F32) for name, array in arrays.items()}
    save_gguf(tensors, path, values)
    return path


def in_blocks(arrays: Arrays, format: str, device: Device | None = None) -> dict[str, Tensor | QTensor]:
    """The weights with each matrix in blocks of a format."""
    tensors = {name: Tensor(array, device=device) for name, array in arrays.items()}
    return {
        name: QTensor.quantize(tensor, GgmlDType(format)) if tensor.rank == 2 and format != "F32" else tensor
        for name, tensor in tensors.items()
    }


def decoded(tensors: Mapping[str, Tensor | QTensor]) -> Arrays:
    """Return the weights."""
    return {
        name: (tensor.dequantize() if isinstance(tensor, QTensor) else tensor).numpy()
        for name, tensor in tensors.items()
    }


def read_back(path: Path) -> Arrays:
    """Read and decode a file with the gguf package."""
    gguf = __import__("gguf")
    return {
        tensor.name: np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(path).tensors
    }


def distance(logits: Tensor | NDArray[Any], expected: NDArray[Any]) -> float:
    """How far logits are from others at most, in units of the standard deviation of these."""
    actual = logits.numpy() if isinstance(logits, Tensor) else logits
    return float(np.abs(actual - expected).max() / expected.std())


def agree(logits: Tensor, expected: NDArray[Any]) -> None:
    """Within 2e-5 of the standard deviation on the CPU, 1e-4 elsewhere."""
    assert distance(logits, expected) <= (2e-5 if logits.device == Device.cpu() else 1e-4)
