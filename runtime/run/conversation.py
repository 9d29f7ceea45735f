"""Text and conversations by a model that has read some tokens already: only what is new is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final

from ..base.error import InvalidArgument
from ..models import ModelRuntime, Sampler
from ..tokenizer import Tokenizer

# An answer has at least this part of the context, where `max_tokens` asks for that many.
_PART_FOR_ANSWER: Final = 4


class Writer:
    """Generates the text that follows tokens; the model reads only those that it has not read already.

    `is_stopped` may be set while text is written, which then ends. `ending` says why the last text has ended, where the
    model did not end it; `tokens_read`, `tokens_written`, `seconds_to_first` and `speed` measure it.
    """

    def __init__(self, runtime: ModelRuntime, tokenizer: Tokenizer, sampler: Sampler) -> None:
        self.runtime = runtime
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._known: list[int] = []
        self.is_stopped = False
        self.ending = ""
        self.tokens_read = self.tokens_written = 0
        self.seconds_to_first = 0.0
        self.speed = 0.0
        """Tokens a second after the first one; 0 where there was none."""

    def write(self, tokens: Sequence[int], max_tokens: int) -> Iterator[str]:
        """The text that follows tokens, part by part: all of a conversation so far, or a prompt.

        `InvalidArgument` where the cache cannot hold the tokens.
        """
        cache = self.runtime.cache
        known = _shared(self._known, tokens) if len(tokens) <= cache.max_seq_len else 0
        cache.truncate(known)
        self._known = [*tokens]
        self.is_stopped, self.ending = False, ""
        self.tokens_read, self.tokens_written = len(tokens) - known, 0
        capacity = cache.max_seq_len - len(tokens) + 1
        stream, ends = self._tokenizer.stream(tokens), self._tokenizer.ends
        begin = last = perf_counter()
        try:
            for token in self.runtime.generate(tokens[known:], max_tokens, self._sampler, ends, tokens[:known]):
                last = perf_counter()
                self.tokens_written += 1
                if self.tokens_written == 1:
                    self.seconds_to_first, begin = last - begin, last
                self._known.append(token)
                yield stream.push(token)
                if self.is_stopped:
                    self.ending = "stopped"
                    break
            else:
                if self.tokens_written == min(max_tokens, capacity):
                    self.ending = self._limit(capacity <= max_tokens)
            yield stream.flush()
        finally:
            others = self.tokens_written - 1
            self.speed = others / (last - begin) if others > 0 and last > begin else 0.0
            # The last token was not read.
            del self._known[cache.length :]

    def _limit(self, is_full: bool) -> str:
        if not is_full:
            return "cut at --max-tokens"
        most, context = self.runtime.cache.max_seq_len, self.runtime.config.context
        more = f"; --max-seq-len gives up to {context}" if most < context else ""
        return f"cut, as the context of {most} tokens is full{more}"


class Conversation:
    """Messages and answers, by the chat template of the model's file."""

    def __init__(self, writer: Writer, tokenizer: Tokenizer, system: str | None = None) -> None:
        self._writer = writer
        self._tokenizer = tokenizer
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._messages: list[dict[str, str]] = []
        self.dropped = 0
        """How many messages with their answers, the oldest ones, did not fit the context of the last answer."""

    def answer(self, message: str, max_tokens: int) -> Iterator[str]:
        """The answer to a message, part by part; the conversation has it as far as it was written.

        `InvalidArgument` for a message that the template refuses, or that does not fit by itself: the conversation is
        then what it was before.
        """
        before = [*self._messages]
        self._messages.append({"role": "user", "content": message})
        parts: list[str] = []
        try:
            for part in self._writer.write(self._tokens(max_tokens), max_tokens):
                parts.append(part)
                yield part
        except InvalidArgument:
            self._messages = before
            raise
        finally:
            if len(self._messages) % 2:
                self._messages.append({"role": "assistant", "content": "".join(parts)})

    def _tokens(self, max_tokens: int) -> list[int]:
        """Return the tokens of as much of the conversation as fits the context together with an answer."""
        most = self._writer.runtime.cache.max_seq_len
        capacity = most - min(max_tokens, most // _PART_FOR_ANSWER)
        self.dropped = 0
        while True:
            text = self._tokenizer.chat([*self._system, *self._messages])
            tokens = self._tokenizer.encode(text, parse_special=True)
            if len(tokens) <= capacity or len(self._messages) == 1:
                return tokens
            # A message with its answer.
            del self._messages[:2]
            self.dropped += 2


def _shared(known: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens both begin with; one of `tokens` is left to be read."""
    most = min(len(known), len(tokens) - 1)
    return next((index for index in range(most) if known[index] != tokens[index]), max(most, 0))
