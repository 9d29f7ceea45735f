"""Tokens a second of a llama of 8 billion weights that ranks share.

The weights are random. "prefill" reads a prompt of 512 tokens at once, "decode" reads tokens after it one by one. One
rank leaves its logits in a file, and more ranks compare theirs with these.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tallow as tl
from tallow import GgmlDType, QTensor, Tensor
from tallow import distributed as dist
from tallow.gguf import save_gguf
from tallow.models import ModelRuntime

WIDTH, HIDDEN, HEADS, KEY_HEADS, HEAD_DIM, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
CONTEXT, PROMPT, STEPS, TURNS = 1024, 512, 64, 5
# So many rows of each matrix are random, and the others repeat them.
ROWS = 512


def write_model(path: Path, format: str, layers: int) -> None:
    """Write a model of so many layers, whose matrices have a format, to a GGUF file."""
    generator, blocks = np.random.default_rng(0), {}

    def matrix(rows: int, columns: int) -> QTensor:
        if columns not in blocks:
            random = generator.standard_normal((ROWS, columns), np.float32) / np.float32(math.sqrt(columns))
            blocks[columns] = QTensor.quantize(Tensor(random), format).data
        data = np.resize(blocks[columns], rows * (blocks[columns].size // ROWS))
        storage = tl.QStorage.from_data(data, tl.Device.cpu(), GgmlDType(format))
        return QTensor(storage, (rows, columns))

    ones, queries, keys = Tensor(np.ones(WIDTH, np.float32)), HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM
    sizes = {"attn_q": (queries, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH)}
    sizes |= {"attn_output": (WIDTH, queries), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH)}
    sizes |= {"ffn_down": (WIDTH, HIDDEN)}
    # Layers have the same weights, so that memory holds one.
    layer = {f"{name}.weight": matrix(*size) for name, size in sizes.items()}
    layer |= {f"{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    table = matrix(VOCABULARY, WIDTH)
    tensors: dict[str, Tensor | QTensor] = {"token_embd.weight": table, "output.weight": table}
    tensors["output_norm.weight"] = ones
    for number in range(layers):
        tensors |= {f"blk.{number}.{name}": tensor for name, tensor in layer.items()}
    values = {
        "block_count": layers,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD_DIM,
    }
    metadata = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in values.items()}}
    save_gguf(tensors, path, metadata)


def report(path: Path, backend: str, logits: Path | None) -> Iterator[str]:
    """All lines, for the ranks of this process's group."""
    group, device = dist.init(), dist.device(backend)
    started = time.perf_counter()
    runtime = ModelRuntime.load_from_gguf(path, device, CONTEXT, group=group)
    device.synchronize()
    loaded = time.perf_counter() - started
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, PROMPT).tolist()
    prefills, decodes = [], []
    for _ in range(TURNS):
        runtime.reset_state()
        dist.barrier()
        started = time.perf_counter()
        actual = runtime.prefill(tokens).numpy()
        prefills.append(PROMPT / (time.perf_counter() - started))
        runtime.decode_step([1]).numpy()
        runtime.decode_step([1]).numpy()
        started = time.perf_counter()
        for token in tokens[:STEPS]:
            runtime.decode_step([token])
        device.synchronize()
        decodes.append(STEPS / (time.perf_counter() - started))
    gigabytes = runtime.total_weight_memory() / 1e9
    yield f"{group.size} ranks, {backend}: {gigabytes:.1f} GB of weights on a rank, read in {loaded:.1f} s"
    yield f"prefill {statistics.median(prefills):.0f} tokens/s, decode {statistics.median(decodes):.1f} tokens/s"
    if logits is None or group.rank > 0:
        return
    if group.size == 1:
        np.save(logits, actual)
        return
    expected = np.load(logits)
    far = np.abs(actual - expected).max() / np.abs(expected).max()
    same = "the same" if actual.argmax() == expected.argmax() else "another"
    yield f"logits differ by up to {far:.1e} of the largest one; the most probable token is {same}"
