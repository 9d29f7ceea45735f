"""Text to tokens and back."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..base.error import InvalidArgument, MissingPackage, describe
from ..core import argument
from ..helpers.installed import installed
from .chat import render_chat
from .vocabulary import CONTROL, Vocabulary

if TYPE_CHECKING:
    import tokenizers

_OPERATION: Final = "Tokenizer"
# By their names what ends an answer, where the file has no key for it.
_ENDS: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_lock>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
)
# The names that chat templates have for tokens, by their keys.
_SPECIAL: Final = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "seperator": "sep_token",
    "padding": "pad_token",
    "mask": "mask_token",
}


class Tokenizer:
    """The tokenizer of a model, of the metadata of its GGUF file.

    Byte-level BPE, with the pre-tokenisers default, gpt-2, llama-bpe and qwen2, and SentencePiece, with bytes for what
    is no token. It uses the tokenizers library: `MissingPackage` where that is not installed. `InvalidArgument`
    names the key that is missing or of another model.

    >>> from tallow.tokenizer import Tokenizer
    >>> tokens, merges = ["H", "i", "Hi"], ["H i"]
    >>> metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
    >>> tokenizer = Tokenizer(metadata)
    >>> tokenizer.encode("Hi"), tokenizer.decode([0, 1])
    ([2], 'Hi')
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        if not installed("tokenizers"):
            raise MissingPackage(_OPERATION, "tokenizers")
        from .model import adds_space, begins_with_bos, build, bytes_of

        if not isinstance(metadata, Mapping):
            raise InvalidArgument(_OPERATION, f"metadata must be those of a GGUF file, not {describe(metadata)}")
        vocabulary = Vocabulary(_OPERATION, metadata)
        self._tokenizer: tokenizers.Tokenizer = build(vocabulary)
        self._lock = threading.Lock()
        self._tokens = vocabulary.tokens
        self.bos = vocabulary.token("bos")
        """The token at the beginning of a text; None where there is no such token."""
        self.eos = vocabulary.token("eos")
        """The token at the end of a text; None where there is no such token."""
        special = {name: vocabulary.token(key) for key, name in _SPECIAL.items()}
        # Templates write these two without asking whether they are there.
        self._special = {"bos_token": "", "eos_token": ""}
        self._special |= {name: self._tokens[number] for name, number in special.items() if number is not None}
        named = [vocabulary.ids[name] for name in _ENDS if name in vocabulary.ids]
        keyed = [self.eos, vocabulary.token("eot"), vocabulary.token("eom")]
        self.ends: frozenset[int] = frozenset(number for number in (*keyed, *named) if number is not None)
        """The tokens after which a model says nothing more."""
        adds_bos = vocabulary.optional("add_bos_token", bool)
        self._first = self.bos if adds_bos or (adds_bos is None and begins_with_bos(vocabulary)) else None
        self._last = self.eos if vocabulary.optional("add_eos_token", bool) else None
        template = metadata.get("tokenizer.chat_template")
        self.chat_template: str | None = template if isinstance(template, str) else None
        """How a model writes a conversation; None where its file does not say."""
        self._bytes = bytes_of(vocabulary)
        self._controls = frozenset(vocabulary.numbers_of_kind(CONTROL))
        self._drops_space = adds_space(vocabulary)

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self._tokens)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The tokens of a text, between those that the model begins and ends a text with unless `add_special` is False.

        One of these that the text has itself, as a chat template may write it, is not added again.
        With `parse_special` the names of control tokens, as `<|im_end|>`, are these tokens, as in a prompt that a chat
        template wrote; else they are text like any other. Never use it for text of unknown origin.
        """
        if not isinstance(text, str):
            raise argument.wrong_type("Tokenizer.encode", "text", text, "str")
        with self._lock:
            self._tokenizer.encode_special_tokens = not parse_special
            try:
                tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
            except (TypeError, UnicodeEncodeError):  # a lone surrogate
                raise InvalidArgument("Tokenizer.encode", "text has characters that UTF-8 lacks; remove them") from None
        if add_special and self._first is not None and tokens[:1] != [self._first]:
            tokens.insert(0, self._first)
        if add_special and self._last is not None and tokens[-1:] != [self._last]:
            tokens.append(self._last)
        return tokens

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of tokens, without control tokens unless `skip_special` is False.

        Bytes that are no UTF-8 become U+FFFD, one for each part that no character begins with.
        """
        checked = self._checked("Tokenizer.decode", tokens)
        return self._without_space(self._bytes_of(checked, skip_special).decode("utf-8", "replace"))

    def stream(self, prompt: Iterable[int] = ()) -> TextStream:
        """Return a stream that decodes tokens one by one, after those of a prompt that was shown already."""
        return TextStream(self, prompt)

    def chat(self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt of a conversation, as the chat template of the file says; see `render_chat`."""
        if self.chat_template is None:
            raise InvalidArgument("Tokenizer.chat", "the file has no chat template; write the prompt, then encode it")
        return render_chat(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            **self._special,
        )

    def _bytes_of(self, tokens: Iterable[int], skip_special: bool) -> bytes:
        dropped = self._controls if skip_special else ()
        return b"".join([self._bytes[token] for token in tokens if token not in dropped])

    def _without_space(self, text: str) -> str:
        """A text without the space that the tokenizer put in front of it."""
        return text[1:] if self._drops_space and text[:1] == " " else text

    def _checked(self, operation: str, tokens: Iterable[int]) -> list[int]:
        checked = argument.integers(operation, "tokens", tokens)
        for token in checked:
            if not 0 <= token < len(self._tokens):
                raise InvalidArgument(
                    operation, f"tokens: there is no token {token}; the model has {len(self._tokens)}"
                )
        return [*checked]

    def __repr__(self) -> str:
        return f"<Tokenizer of {len(self)} tokens>"


class TextStream:
    """Text of tokens that come one by one: what `push` and at last `flush` give is what `decode` makes of all of them.

    After a prompt it is what `decode` makes of both without the text of the prompt, so its first space is not lost. A
    character whose bytes are several tokens comes with the last one. At most three bytes wait for it.

    >>> from tallow.tokenizer import Tokenizer
    >>> tokens, merges = ["H", "i", "Hi"], ["H i"]
    >>> metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
    >>> stream = Tokenizer(metadata).stream()
    >>> stream.push(0), stream.push(1), stream.flush()
    ('H', 'i', '')
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._has_begun = False
        before = tokenizer._checked("Tokenizer.stream", prompt)
        self._text(self._decoder.decode(tokenizer._bytes_of(before, skip_special=True)))

    def push(self, token: int) -> str:
        """The text that a token completes; empty where there is none. Bytes that are no UTF-8 become U+FFFD."""
        checked = self._tokenizer._checked("TextStream.push", (token,))
        return self._text(self._decoder.decode(self._tokenizer._bytes_of(checked, skip_special=True)))

    def flush(self) -> str:
        """The text that remains after the last token: U+FFFD where a character lacks bytes, otherwise nothing.

        What is pushed afterwards continues the text.
        """
        return self._text(self._decoder.decode(b"", final=True))

    def _text(self, text: str) -> str:
        if self._has_begun or not text:
            return text
        self._has_begun = True
        return self._tokenizer._without_space(text)
