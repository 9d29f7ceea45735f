"""GGUF files beside llama-cpp-python: it reads ours, and we read its quantiser's. Both give the same logits.

With --full, where it is installed. On a CPU it rounds what weights multiply: to f16 or bf16 where they are so, and to
8 bits where they are in blocks. So each file is compared twice: as it is, within what that rounding makes of logits,
and as llama.cpp's quantiser decodes it to F32, within the rounding of sums.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from tallow.gguf import save_gguf
from tallow.models import ModelRuntime

from .decoders import (
    ARCHITECTURES,
    BLOCKS,
    FORMATS,
    VOCABULARY,
    agree,
    distance,
    in_blocks,
    metadata,
    oracle,
    read_back,
    some_tokens,
    weights,
)

pytestmark = pytest.mark.full

TOKENS = some_tokens(32)
# The deviation of matrices with which transformers begins. The size of x is kept by one of 0.125, and more is made of
# what is rounded: 0.4 of the deviation of logits.
DEVIATION = 0.02
EXACT = 5e-6
# In units of the standard deviation of the logits.
ROUNDED = {"F32": EXACT, "F16": 4e-3, "BF16": 4e-2}
ROUNDED_TO_BYTES = 0.15
# By the number of a file's type, the format of most matrices. With K some are in others, which have more bits.
TYPES = dict(enumerate(["F32", "F16", "Q4_0", "Q4_1"])) | {7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 18: "Q6_K", 32: "BF16"}
TYPES |= {10: "Q2_K", 11: "Q3_K", 12: "Q3_K", 13: "Q3_K", 14: "Q4_K", 15: "Q4_K", 16: "Q5_K", 17: "Q5_K"}


@pytest.fixture(scope="module")
def llama_cpp() -> Any:
    return pytest.importorskip("llama_cpp", reason="the other reader of GGUF files, with a quantiser")


def written(path: Path, architecture: str, format: str, biased: bool = False) -> Path:
    """A model with a vocabulary, without which llama.cpp reads no file."""
    vocabulary = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *map(chr, range(ord("A"), ord("A") + VOCABULARY - 3))],
        "tokenizer.ggml.scores": np.zeros(VOCABULARY, np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, *[1] * (VOCABULARY - 3)], np.int32),
    }
    tensors = in_blocks(weights(architecture, biased=biased, deviation=DEVIATION, **BLOCKS), format)
    # The length of a cache there is a multiple of 256.
    save_gguf(tensors, path, metadata(architecture, context_length=256, **BLOCKS) | vocabulary)
    return path


def logits_of(llama_cpp: Any, path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """What llama.cpp makes of the whole prompt, and of token by token."""
    f32 = llama_cpp.GGML_TYPE_F32
    # Several threads spin while they wait for one another, which takes long where others work too.
    model = llama_cpp.Llama(
        str(path), n_ctx=256, n_threads=1, n_threads_batch=1, type_k=f32, type_v=f32, logits_all=True, verbose=False
    )
    try:
        model.eval(TOKENS)
        full = model.scores[: len(TOKENS)].copy()
        model.reset()
        for token in TOKENS:
            model.eval([token])
        return full, model.scores[: len(TOKENS)].copy()
    finally:
        model.close()


def quantised(llama_cpp: Any, path: Path, number: int) -> Path:
    """What its quantiser makes of a file: the type is 0 for F32, which decodes blocks."""
    result = path.with_name(f"{path.stem}-{number}.gguf")
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.nthread, options.allow_requantize = number, 1, True
    assert llama_cpp.llama_model_quantize(os.fsencode(path), os.fsencode(result), options) == 0
    return result


def ours(path: Path) -> NDArray[Any]:
    runtime = ModelRuntime.load_from_gguf(path, "cpu")
    full = runtime.decode_step(TOKENS).numpy()
    runtime.reset_state()
    for token, row in zip(TOKENS, full, strict=True):
        agree(runtime.decode_step([token])[0], row)
    return cast("NDArray[Any]", full)


@ARCHITECTURES
@pytest.mark.parametrize("format", FORMATS)
def test_llama_cpp_makes_the_same_logits_of_our_files(
    llama_cpp: Any, tmp_path: Path, format: str, architecture: str, biased: bool
) -> None:
    path = written(tmp_path / "m.gguf", architecture, format, biased)
    actual = ours(path)
    for theirs in logits_of(llama_cpp, path):
        assert distance(theirs, actual) <= ROUNDED.get(format, ROUNDED_TO_BYTES)
    for theirs in logits_of(llama_cpp, quantised(llama_cpp, path, 0)):
        assert distance(theirs, actual) <= EXACT


@ARCHITECTURES
def test_logits_with_rounded_activations_are_those_of_llama_cpp(
    llama_cpp: Any, tmp_path: Path, architecture: str, biased: bool
) -> None:
    path = written(tmp_path / "m.gguf", architecture, "Q8_0", biased)
    rounded = ModelRuntime.load_from_gguf(path, "cpu", activations="q8_1")
    one_by_one = logits_of(llama_cpp, path)[1]
    off = [
        distance(rounded.decode_step([token]).numpy()[0], row) for token, row in zip(TOKENS, one_by_one, strict=True)
    ]
    # Of Q8_0 both multiply the same integers, up to a number so near the middle of two that sums move it across: that
    # goes on in the cache, so the tokens behind it have other logits too.
    assert off[0] <= EXACT
    assert max(off) <= ROUNDED_TO_BYTES


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("number", TYPES, ids=lambda number: f"type {number} of {TYPES[number]}")
def test_files_of_its_quantiser_give_the_same_logits_here(
    llama_cpp: Any, tmp_path: Path, number: int, architecture: str
) -> None:
    gguf = pytest.importorskip("gguf", reason="what reads the weights back from the file")
    path = quantised(llama_cpp, written(tmp_path / "m.gguf", architecture, "F32"), number)
    kinds = {tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    assert TYPES[number] in kinds
    runtime = ModelRuntime.load_from_gguf(path, "cpu")
    agree(runtime.decode_step(TOKENS), oracle(architecture, read_back(path), TOKENS))
    for theirs in logits_of(llama_cpp, path):
        assert distance(theirs, ours(path)) <= ROUNDED.get(TYPES[number], ROUNDED_TO_BYTES)
    for theirs in logits_of(llama_cpp, quantised(llama_cpp, path, 0)):
        assert distance(theirs, ours(path)) <= EXACT
