"""The models of the tokenizers library that mean what the metadata of a file say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .vocabulary import CONTROL, USER_DEFINED, Vocabulary

if TYPE_CHECKING:
    import tokenizers

_ENDINGS: Final = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT_2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA: Final = (rf"{_ENDINGS}|\p{{N}}{{1,3}}|{_REST}",)

WORDS: Final = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT_2,),
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "qwen2": (rf"{_ENDINGS}|\p{{N}}|{_REST}",),
}
"""The expressions that part text into words, one after another, by the names of pre-tokenisers."""
_WHOLE_WORDS: Final = {name for name, words in WORDS.items() if words is _LLAMA}
"""The pre-tokenisers of models that take a word that is a token as it is, whatever its merges say."""

_SPACE: Final = "▁"
_BYTE: Final = re.compile("<0x([0-9A-Fa-f]{2})>")
"""A token of SentencePiece that stands for a byte."""
_PLAIN: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS: Final = [byte for byte in range(256) if byte not in _PLAIN]
_SYMBOLS: Final = {chr(byte): byte for byte in _PLAIN} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
"""The bytes by the characters that stand for them in tokens of byte-level BPE."""


def begins_with_bos(vocabulary: Vocabulary) -> bool:
    """Whether a text begins with the token for that, where the file does not say."""
    return vocabulary.model == "llama" or vocabulary.optional("pre", str) in _WHOLE_WORDS


def adds_space(vocabulary: Vocabulary) -> bool:
    """Whether a space is put in front of each text."""
    return vocabulary.model == "llama" and vocabulary.optional("add_space_prefix", bool) is not False


def bytes_of(vocabulary: Vocabulary) -> list[bytes]:
    """The UTF-8 bytes of each token."""
    if vocabulary.model == "llama":
        return [
            bytes.fromhex(byte[1]) if (byte := _BYTE.fullmatch(token)) else token.replace(_SPACE, " ").encode()
            for token in vocabulary.tokens
        ]
    # These stand in a text as they are.
    literal = {number for kind in (CONTROL, USER_DEFINED) for number in vocabulary.numbers_of_kind(kind)}
    return [
        token.encode() if number in literal else _bytes_of_symbols(token)
        for number, token in enumerate(vocabulary.tokens)
    ]


def _bytes_of_symbols(token: str) -> bytes:
    try:
        return bytes([_SYMBOLS[symbol] for symbol in token])
    except KeyError:
        return token.encode()


def build(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """A tokenizer. Raises InvalidArgument, which names the key, for a model that is not known."""
    import tokenizers

    match vocabulary.model:
        case "gpt2":
            tokenizer = _byte_level(vocabulary)
        case "llama":
            tokenizer = _sentence_piece(vocabulary)
        case other:
            raise vocabulary.refused("model", f"is '{other}'; known are gpt2 and llama")
    added = [(CONTROL, True), (USER_DEFINED, False)]
    for kind, special in added:
        tokens = [tokenizers.AddedToken(text, special=special, normalized=False) for text in vocabulary.of_kind(kind)]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(tokens)
    return tokenizer


def _byte_level(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """Bytes that are merged in an order, within words."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    name = vocabulary.optional("pre", str) or "default"
    words = WORDS.get(name)
    if words is None:
        raise vocabulary.refused("pre", f"is '{name}'; known are {', '.join(WORDS)}")
    merges = []
    for merge in vocabulary.texts("merges"):
        # The first part may begin with a space, but not be empty.
        at = merge.find(" ", 1)
        merges.append((merge[:at], merge[at + 1 :]))
    try:
        model = models.BPE(vocabulary.ids, merges, ignore_merges=name in _WHOLE_WORDS)
    except Exception as error:  # the library has no class of its own
        raise vocabulary.refused("merges", f"do not fit the tokens ({error})") from None
    tokenizer = Tokenizer(model)
    parts = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in words]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*parts, as_bytes])
    return tokenizer


def _sentence_piece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """Characters that are merged by the scores of what they make; a character that is no token is its bytes."""
    from tokenizers import Tokenizer, models, normalizers

    if not vocabulary.scores:
        raise vocabulary.refused("scores", "is missing")
    unknown = vocabulary.token("unknown")
    unknown_text = None if unknown is None else vocabulary.tokens[unknown]
    model = models.BPE(vocabulary.ids, _merges(vocabulary), unk_token=unknown_text, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Replace(" ", _SPACE)]
    prefix = [normalizers.Prepend(_SPACE)] if adds_space(vocabulary) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, *spaces])
    return tokenizer


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every pair of tokens that merges to a token, the best score first."""
    ids = vocabulary.ids
    lengths = {len(token) for token in ids} - {0}
    # Of a token only the parts are looked up that are as long as tokens: one alone may have a million characters.
    splits = {length: [at for at in lengths if length - at in lengths] for length in lengths | {0}}
    merges = []
    for token, number in ids.items():
        for at in splits[len(token)]:
            left, right = ids.get(token[:at]), ids.get(token[at:])
            if left is not None and right is not None:
                merges.append((-vocabulary.scores[number], left, right))
    merges.sort()
    return [(vocabulary.tokens[left], vocabulary.tokens[right]) for _, left, right in merges]
