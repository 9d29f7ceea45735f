"""Files of models that are read, and say what no model is: each runs, or is refused with an error of this package."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import GgmlDType, QStorage, QTensor, TallowError, Tensor
from tallow.gguf import open_gguf, save_gguf
from tallow.models import ExecutionPlan, ModelRuntime, Sampler
from tallow.tokenizer import Tokenizer

from .decoders import BLOCKS, SENTENCES, TEXTS, VOCABULARY, in_blocks, metadata, weights

pytest.importorskip("tokenizers", reason="what a tokenizer stands on")

Weights = dict[str, Tensor | QTensor]
Values = dict[str, Any]
Random = np.random.Generator

BYTES = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": [*TEXTS[:-1], "ab"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.add_bos_token": True,
}
SCALED = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
# Of no use, of the other sign, and beyond 32 and 64 bits; what a number is mistaken for.
INTEGERS = [0, 1, 2, 3, 5, 8, 16, 32, 4096, 1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1, -1, -(1 << 63)]
REALS = [0.0, -0.0, -1.0, 1e-45, 1e38, float("inf"), float("nan"), np.float64(1e-300), np.float64(1e300)]
OTHERS = [
    True,
    False,
    "",
    "8",
    "linear",
    "qwen2",
    "llama",
    [1, 2],
    ["a"],
    [[1]],
    np.zeros(VOCABULARY),
    [0.5] * VOCABULARY,
]


def model(architecture: str, format: str, values: Values) -> tuple[Weights, Values]:
    """A model whose matrices are in blocks of a format."""
    arrays = weights(architecture, **BLOCKS)
    if architecture == "llama":
        arrays["rope_freqs.weight"] = np.ones(BLOCKS["head_dim"] // 2, np.float32)
    return in_blocks(arrays, format), metadata(architecture, **BLOCKS, **SCALED) | values


def of_shape(tensor: Tensor | QTensor, shape: tuple[int, ...]) -> Tensor | QTensor:
    """As much as a shape takes of the numbers of a tensor, again and again, in its format where that can be."""
    plain = tensor.dequantize() if isinstance(tensor, QTensor) else tensor
    result = Tensor(np.resize(plain.numpy(), shape))
    full = isinstance(tensor, QTensor) and shape and shape[-1] % tensor.dtype.block_size == 0
    return QTensor.quantize(result, tensor.dtype) if full and isinstance(tensor, QTensor) else result


def any_blocks(random: Random, tensor: Tensor | QTensor, format: GgmlDType) -> QTensor:
    """Blocks of any bytes in a format, as many as the shape of a tensor takes."""
    size = tensor.shape.elem_count // format.block_size * format.type_size
    content = random.integers(0, 256, size, np.uint8)
    return QTensor(QStorage.from_data(content, tensor.device, format), tensor.shape)


def another_size(random: Random, tensors: Weights, name: str, _: Values) -> None:
    shape = [*tensors[name].shape]
    at = int(random.integers(len(shape)))
    shape[at] = int(random.choice([1, 2, shape[at] - 1, shape[at] + 1, 2 * shape[at], shape[at] // 2, 256, 512]))
    tensors[name] = of_shape(tensors[name], tuple(max(size, 1) for size in shape))


def another_rank(random: Random, tensors: Weights, name: str, _: Values) -> None:
    shape = tuple(tensors[name].shape)
    others = [(), (1,), (*shape, 1), (1, *shape), shape[::-1], shape[:1], shape[1:], (1, 1, *shape)]
    shape = others[random.integers(len(others))]
    tensors[name] = of_shape(tensors[name], shape[-4:])  # files have no more dims


def missing(_: Random, tensors: Weights, name: str, __: Values) -> None:
    del tensors[name]


def another_name(random: Random, tensors: Weights, name: str, _: Values) -> None:
    tensors[str(random.choice([*tensors]))] = tensors[name]


def another_format(random: Random, tensors: Weights, name: str, _: Values) -> None:
    tensor = tensors[name]
    plain = tensor.dequantize() if isinstance(tensor, QTensor) else tensor
    formats = [format for format in GgmlDType if plain.shape and plain.shape[-1] % format.block_size == 0]
    if not formats:
        return
    format = formats[random.integers(len(formats))]
    # Formats of grids are only read.
    tensors[name] = any_blocks(random, plain, format) if format.has_grid else QTensor.quantize(plain, format)


def other_numbers(random: Random, tensors: Weights, name: str, _: Values) -> None:
    tensor = tensors[name]
    if isinstance(tensor, QTensor):
        tensors[name] = any_blocks(random, tensor, tensor.dtype)
    else:
        extremes = np.array([0, -1, 1e38, 1e-45, np.inf, np.nan], np.float32)
        tensors[name] = Tensor(random.choice(extremes, tuple(tensor.shape)))


def another_value(random: Random, _: Weights, __: str, values: Values) -> None:
    key = str(random.choice([*values]))
    likely = {int: INTEGERS, float: REALS}.get(type(values[key]), OTHERS)
    pool = [likely, likely, INTEGERS, REALS, OTHERS][random.integers(5)]
    values[key] = pool[random.integers(len(pool))]


def value_of_another_key(random: Random, _: Weights, __: str, values: Values) -> None:
    to, of = random.choice([*values], 2)
    values[str(to)] = values[str(of)]


def missing_value(random: Random, _: Weights, __: str, values: Values) -> None:
    del values[str(random.choice([*values]))]


def other_tokens(random: Random, _: Weights, __: str, values: Values) -> None:
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
        if isinstance(values.get(key), list):
            texts = [str(text) for text in values[key]]
            other = ["", " ", "a", "a b", "ü\0", "<0x41>", "▁", "long" * 50_000][random.integers(8)]
            texts[int(random.integers(len(texts)))] = other
            values[key] = texts


MUTATIONS: list[Callable[[Random, Weights, str, Values], None]] = [
    another_size,
    another_rank,
    missing,
    another_name,
    another_format,
    other_numbers,
    another_value,
    value_of_another_key,
    missing_value,
    other_tokens,
]


def run(path: Path) -> None:
    """A step of one token and one that is drawn."""
    with open_gguf(path) as file:
        tokenizer = Tokenizer(file.metadata)
        plan = ExecutionPlan.from_gguf(file)
        plan.preload_all()
    runtime = ModelRuntime(plan)
    prompt = tokenizer.encode("ab")
    runtime.decode_step(prompt[:1])
    for token in runtime.generate(prompt, 2, Sampler(temperature=1.0)):
        tokenizer.decode([token])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Weights, Values]]:
    """Models that run."""
    results = [
        model("llama", "F32", SENTENCES),
        model("llama", "Q8_0", BYTES),
        model("qwen2", "Q4K", BYTES),
        model("qwen3", "Q6K", SENTENCES),
    ]
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    for tensors, values in results:
        save_gguf(tensors, path, values)
        run(path)
    return results


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutated_models_run_or_are_refused(
    models: list[tuple[Weights, Values]],
    tmp_path: Path,
    full: bool,
    mutation: Callable[[Random, Weights, str, Values], None],
) -> None:
    path = tmp_path / "model.gguf"
    random = np.random.default_rng(MUTATIONS.index(mutation))
    refused = 0
    tracemalloc.start()
    try:
        for number in range(1000 if full else 12):
            tensors, values = ({**part} for part in models[number % len(models)])
            for _ in range(random.integers(1, 3)):
                mutation(random, tensors, str(random.choice([*tensors])), values)
            save_gguf(tensors, path, values)
            tracemalloc.reset_peak()
            begin = time.thread_time()
            try:
                run(path)
            except TallowError:
                refused += 1
            assert time.thread_time() - begin < 1
            assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    # Each matrix may be in blocks of its own format.
    assert refused or mutation is another_format
