"""The metadata of small vocabularies, for tests of tokenizers and of chat templates."""

from __future__ import annotations

from typing import Any

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SYMBOLS = [chr(byte) for byte in range(33, 127)] + ["Ġ", "Ċ", "Ã", "¼"]
"""The symbols of byte-level BPE for ASCII, of a space, of a line end, and of the two bytes of 'ü'."""


def byte_level(pre: str | None = "gpt-2", *merges: str, **more: Any) -> dict[str, Any]:
    """The metadata of a vocabulary of bytes and of what the merges make of them, with two tokens for control."""
    result = ["".join(merge.split(" ")) for merge in merges]
    tokens = [*SYMBOLS, *result, "<|im_end|>", "<|endoftext|>", "[user]"]
    kinds = np.array([NORMAL] * (len(tokens) - 3) + [CONTROL, CONTROL, USER_DEFINED], np.int32)
    values = {"model": "gpt2", "tokens": tokens, "token_type": kinds, "merges": list(merges), "pre": pre, **more}
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def sentence_piece(**more: Any) -> dict[str, Any]:
    """The metadata of a vocabulary of a few words, with scores, and of the 256 bytes."""
    pieces = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab"]
    scores = [-9.0, -9, -9, -9, -2, -1, -3, -4, -5]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    values = {
        "model": "llama",
        "tokens": tokens,
        "scores": np.array([0.0] * 259 + scores, np.float32),
        "token_type": np.array(kinds, np.int32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}
