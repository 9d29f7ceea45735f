"""Text to tokens and back, for vocabularies of a few words, and conversations as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tallow import InvalidArgument, MissingPackage
from tallow.gguf import open_gguf

pytest.importorskip("tokenizers", reason="what a tokenizer stands on")

from tallow.tokenizer import Tokenizer, render_chat

from .vocabularies import CONTROL, NORMAL, SYMBOLS, USER_DEFINED, byte_level, sentence_piece

VOCABULARIES = "TALLOW_VOCABULARIES"
"""The environment variable that names a folder of llama.cpp's `ggml-vocab-*.gguf` with their .inp and .out files."""


def pieces(metadata: dict[str, Any], text: str, **options: Any) -> list[str]:
    """The tokens of a text, as texts."""
    tokens = Tokenizer(metadata).encode(text, **{"add_special": False} | options)
    return [metadata["tokenizer.ggml.tokens"][token] for token in tokens]


NUMBERS = ("1 2", "12 3", "123 4", "a b", "Ġ ab", "' S")


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["1234", "Ġab", "'", "S", "Ġ", "Ġab", "Ċ"]),
        ("llama-bpe", ["123", "4", "Ġab", "'S", "Ġ", "Ġab", "Ċ"]),
        ("qwen2", ["1", "2", "3", "4", "Ġab", "'S", "Ġ", "Ġab", "Ċ"]),
        ("default", ["123", "4", "Ġab", "'", "S", "Ġ", "Ġab", "Ċ"]),
        (None, ["123", "4", "Ġab", "'", "S", "Ġ", "Ġab", "Ċ"]),
    ],
)
def test_a_pre_tokeniser_parts_words_as_the_model_learned_them(pre: str | None, expected: list[str]) -> None:
    assert pieces(byte_level(pre, *NUMBERS), "1234 ab'S  ab\n") == expected


def test_merges_are_taken_in_their_order() -> None:
    assert pieces(byte_level("gpt-2", "b c", "a b"), "abc") == ["a", "bc"]
    assert pieces(byte_level("gpt-2", "a b", "b c"), "abc") == ["ab", "c"]


def test_a_word_that_is_a_token_needs_no_merges_for_llama() -> None:
    metadata = byte_level("llama-bpe", "b c", "a b", "ab c")
    assert pieces(metadata, "abc") == ["abc"]
    metadata["tokenizer.ggml.pre"] = "qwen2"
    assert pieces(metadata, "abc") == ["a", "bc"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", ["▁", "abc"]),
        ("ab", ["▁ab"]),
        (" ab", ["▁", "▁ab"]),
        ("ü", ["▁", "<0xC3>", "<0xBC>"]),
        ("", []),
    ],
)
def test_sentence_piece_merges_by_scores_and_falls_back_to_bytes(text: str, expected: list[str]) -> None:
    metadata = sentence_piece()
    assert pieces(metadata, text) == expected
    tokenizer = Tokenizer(metadata)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_space_before_the_text_is_the_models_choice() -> None:
    metadata = sentence_piece(add_space_prefix=False)
    assert pieces(metadata, "abc a") == ["abc", "▁a"]
    assert Tokenizer(metadata).decode(Tokenizer(metadata).encode(" a")) == " a"


def test_what_begins_and_ends_a_text_is_added_where_the_model_has_it() -> None:
    assert pieces(sentence_piece(), "a", add_special=True) == ["<s>", "▁a"]
    assert pieces(sentence_piece(add_bos_token=False, add_eos_token=True), "a", add_special=True) == ["▁a", "</s>"]
    last = len(SYMBOLS)
    assert pieces(byte_level(bos_token_id=last), "a", add_special=True) == ["a"]
    assert pieces(byte_level("llama-bpe", bos_token_id=last), "a", add_special=True) == ["<|im_end|>", "a"]
    metadata = byte_level(bos_token_id=last, add_bos_token=True)
    assert pieces(metadata, "<|im_end|>a", add_special=True, parse_special=True) == ["<|im_end|>", "a"]
    assert Tokenizer(byte_level(eos_token_id=0)).ends == {0, last, last + 1}


def test_the_names_of_control_tokens_are_text_unless_they_are_asked_for() -> None:
    metadata = byte_level()
    assert "".join(pieces(metadata, "<|im_end|>a")) == "<|im_end|>a"
    assert len(pieces(metadata, "<|im_end|>a")) == len("<|im_end|>a")
    assert pieces(metadata, "<|im_end|>a[user]", parse_special=True) == ["<|im_end|>", "a", "[user]"]
    assert pieces(metadata, "a[user]") == ["a", "[user]"], "what the model's user defined is never text"
    tokenizer = Tokenizer(metadata)
    tokens = tokenizer.encode("a<|im_end|>", parse_special=True)
    assert tokenizer.decode(tokens) == "a"
    assert tokenizer.decode(tokens, skip_special=False) == "a<|im_end|>"


def test_a_stream_gives_a_character_with_its_last_byte() -> None:
    tokenizer = Tokenizer(byte_level())
    tokens = tokenizer.encode("a ü<|im_end|>", parse_special=True)
    stream = tokenizer.stream()
    assert [stream.push(token) for token in tokens] == ["a", " ", "", "ü", ""]
    assert stream.flush() == ""


def test_bytes_that_become_no_character_are_given_as_replacement_characters() -> None:
    tokenizer = Tokenizer(sentence_piece())
    stream = tokenizer.stream()
    # The space that the tokenizer put in front is not given, whenever it comes.
    assert [stream.push(3 + byte) for byte in b" \xf0\x9f\x98A"] == ["", "", "", "", "\ufffdA"]
    assert [stream.push(3 + byte) for byte in b"\x80 \xe2\x82"] == ["\ufffd", " ", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def all_bytes() -> dict[str, Any]:
    """The metadata of a vocabulary of byte-level BPE with every byte, control tokens and what the user defined."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), "ðŁ", "ĺĢa", "<|im_end|>", "[üser]", "no symbol"]
    kinds = np.array([NORMAL] * 258 + [CONTROL, USER_DEFINED, NORMAL], np.int32)
    return byte_level(tokens=tokens, token_type=kinds)


def libraries_decoder(metadata: dict[str, Any]) -> Callable[[list[str]], str]:
    """What the tokenizers library makes of tokens whose bytes are UTF-8."""
    from tokenizers import decoders

    if metadata["tokenizer.ggml.model"] == "gpt2":
        return decoders.ByteLevel().decode
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return decoders.Sequence(parts).decode


STREAMED = {"byte-level": all_bytes(), "sentence-piece": sentence_piece()}


@pytest.mark.parametrize("name", STREAMED)
@given(data=st.data())
def test_a_stream_gives_what_decode_gives_and_holds_three_bytes_at_most(name: str, data: st.DataObject) -> None:
    tokenizer = Tokenizer(STREAMED[name])
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    stream, text = tokenizer.stream(), ""
    for count, token in enumerate(tokens, 1):
        text += stream.push(token)
        assert tokenizer.decode(tokens[:count]).startswith(text)
        # So what a push does depends on nothing but its token, however many came before.
        assert len(stream._decoder.getstate()[0]) <= 3
    assert text + stream.flush() == tokenizer.decode(tokens)


@pytest.mark.parametrize("name", STREAMED)
@given(prompt=st.text(st.characters(exclude_categories=["Cs"]), max_size=9), data=st.data())
def test_a_stream_behind_a_prompt_gives_what_decode_adds(name: str, prompt: str, data: st.DataObject) -> None:
    tokenizer = Tokenizer(STREAMED[name])
    before = tokenizer.encode(prompt)
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=9))
    stream = tokenizer.stream(before)
    text = "".join(map(stream.push, tokens)) + stream.flush()
    assert tokenizer.decode(before) + text == tokenizer.decode([*before, *tokens])


@pytest.mark.parametrize("name", STREAMED)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_tokens_of_a_text_are_decoded_as_the_tokenizers_library_does(name: str, text: str) -> None:
    metadata = STREAMED[name]
    tokenizer = Tokenizer(metadata)
    tokens = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(tokens) == text
    assert libraries_decoder(metadata)([metadata["tokenizer.ggml.tokens"][token] for token in tokens]) == text


def test_what_the_user_of_a_model_defined_is_decoded_as_it_is() -> None:
    tokenizer = Tokenizer(all_bytes())
    assert tokenizer.decode(tokenizer.encode("[üser]")) == "[üser]"


def test_tokens_of_the_same_text_are_both_decoded() -> None:
    assert Tokenizer(byte_level(tokens=["a", "a"], token_type=None)).decode([0, 1]) == "aa"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "key 'tokenizer.ggml.model' is missing"),
        ({"tokenizer.ggml.model": 1}, "key 'tokenizer.ggml.model' must be of type str, not 1"),
        (byte_level(model="bert"), "key 'tokenizer.ggml.model' is 'bert'; known are gpt2 and llama"),
        (byte_level("falcon"), "key 'tokenizer.ggml.pre' is 'falcon'; known are default, gpt-2"),
        (byte_level(merges=None), "key 'tokenizer.ggml.merges' is missing"),
        (byte_level(merges=["a z1"]), "key 'tokenizer.ggml.merges' do not fit the tokens"),
        (byte_level(merges=["", "a"]), "key 'tokenizer.ggml.merges' do not fit the tokens"),
        (byte_level(tokens=[]), "key 'tokenizer.ggml.tokens' is empty"),
        (byte_level(tokens=[1]), "key 'tokenizer.ggml.tokens' holds what is no text"),
        (byte_level(token_type=np.zeros(3)), "key 'tokenizer.ggml.token_type' has 3 numbers for 101 tokens"),
        (byte_level(eos_token_id=9999), "key 'tokenizer.ggml.eos_token_id' is 9999, where there are 101 tokens"),
        (sentence_piece(scores=None), "key 'tokenizer.ggml.scores' is missing"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused_by_key(metadata: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^Tokenizer: metadata: {reason}.*; get the file again"):
        Tokenizer(metadata)


def test_what_is_no_text_and_no_token_is_refused() -> None:
    tokenizer = Tokenizer(byte_level())
    with pytest.raises(InvalidArgument, match="text must be of type str"):
        tokenizer.encode(b"a")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="UTF-8"):
        tokenizer.encode("\ud800")
    with pytest.raises(InvalidArgument, match="there is no token -1; the model has 101"):
        tokenizer.decode([-1])
    with pytest.raises(InvalidArgument, match="there is no token 101"):
        tokenizer.stream().push(101)
    with pytest.raises(InvalidArgument, match="metadata must be"):
        Tokenizer(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "call"), [("tokenizers", lambda: Tokenizer(byte_level())), ("jinja2", lambda: render_chat("", []))]
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match=rf"{name} is not installed; run pip install {name}"):
        call()


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama-bpe", "llama-spm", "qwen2", "gpt-2", "phi-3"])
def test_vocabularies_of_models_give_the_tokens_that_llama_cpp_expects(name: str) -> None:
    folder = os.environ.get(VOCABULARIES)
    if folder is None:
        pytest.skip(f"{VOCABULARIES} names no folder of llama.cpp's ggml-vocab files")
    path = Path(folder) / f"ggml-vocab-{name}.gguf"
    with open_gguf(path) as file:
        tokenizer = Tokenizer(file.metadata)
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    assert len(texts) == len(lines) == 47
    for text, line in zip(texts, lines, strict=True):
        tokens = tokenizer.encode(text, add_special=False)
        assert tokens == [int(token) for token in line.split()]
        assert tokenizer.decode(tokens) == text
        stream = tokenizer.stream()
        assert "".join(map(stream.push, tokens)) + stream.flush() == text
