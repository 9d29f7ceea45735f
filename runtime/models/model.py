"""A model that runs: prompts to logits, and tokens to those that follow them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Self

from ...device import Device
from ...dtype import DType
from ..backends.backend import BackendReplay
from ..base.error import InvalidArgument, UnsupportedDevice
from ..core import argument
from ..distributed import Group
from ..files.gguf import open_gguf
from ..graph.graph import Graph
from ..quantized import QTensor
from ..tensor import Tensor
from .cache import KVCache
from .config import ModelConfig
from .plan import ExecutionPlan
from .sampling import Sampler
from .scratch import ScratchBufferManager

_OPERATION: Final = "ModelRuntime"
_LONGEST: Final = 4096


class ModelRuntime:
    """A model with the tokens that it has read: `prefill` reads a prompt, `decode_step` what follows.

    On a GPU the first step of one token is also captured in a graph, and from then on a step is a replay that allocates
    nothing. The CPU replays the calls of the second step. Not for several threads at once.

    >>> from tallow import models
    >>> sizes = {"layers": 1, "width": 8, "hidden": 16, "heads": 2, "key_heads": 1, "head_dim": 4, "context": 32}
    >>> config = models.ModelConfig("llama", **sizes, epsilon=1e-5)
    >>> shapes = {"token_embd": (10, 8), "output_norm": (8,), "blk.0.attn_norm": (8,), "blk.0.attn_q": (8, 8)}
    >>> shapes |= {"blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8), "blk.0.ffn_norm": (8,)}
    >>> shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8), "blk.0.ffn_down": (8, 16)}
    >>> weights = {f"{name}.weight": tl.randn(shape) for name, shape in shapes.items()}
    >>> model = models.ModelRuntime.new_with_config(config, weights, "cpu")
    >>> len(list(model.generate([1, 2, 3], 5)))
    5
    """

    cache: KVCache

    def __init__(self, plan: ExecutionPlan, max_seq_len: int | None = None) -> None:
        config = plan.config
        self.plan = plan
        self.config = config
        self.recreate_kv_cache(min(config.context, _LONGEST) if max_seq_len is None else max_seq_len)
        self.scratch = ScratchBufferManager(plan.device)
        """Memory that every step reuses."""
        self._token = self.scratch.get("token", (1,), DType.U32)

    @classmethod
    def load_from_gguf(
        cls,
        path: str | os.PathLike[str],
        device: Device | str | None = None,
        max_seq_len: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        *,
        activations: str | None = None,
        group: Group | None = None,
    ) -> Self:
        """The model of a file, with all of its weights on a device. The errors are those of `open_gguf` and the plan.

        `max_seq_len`, by default the model's context and 4096 at most, is how many tokens it can read.
        `progress(done, total)` is called with the number of layers. `activations` and
        `group` are those of the plan.
        """
        with open_gguf(path, device) as file:
            plan = ExecutionPlan.from_gguf(file, activations=activations, group=group)
            plan.preload_all(progress)
            return cls(plan, max_seq_len)

    @classmethod
    def new_with_config(
        cls,
        config: ModelConfig,
        tensors: Mapping[str, Tensor | QTensor],
        device: Device | str | None = None,
        max_seq_len: int | None = None,
    ) -> Self:
        """Make a runtime from a config and tensors by their names in GGUF files."""
        return cls(ExecutionPlan(config, tensors, device), max_seq_len)

    @classmethod
    def from_execution_plan(cls, plan: ExecutionPlan, max_seq_len: int | None = None) -> Self:
        """Make a runtime from a plan."""
        return cls(plan, max_seq_len)

    def recreate_kv_cache(self, max_seq_len: int | None = None) -> None:
        """Drop all tokens, and allocate memory for `max_seq_len` of them, by default for as many as before."""
        length = self.cache.max_seq_len if max_seq_len is None else max_seq_len
        part = self.plan.part
        self.cache = KVCache(self.plan.device, part.layers, part.key_heads, part.head_dim, length)
        self._rotations = self.plan.rotations(length)
        # A graph uses the memory of the cache that it was captured with.
        self._is_first_step_done = False
        self._graph: Graph | BackendReplay | None = None
        self._logits: Tensor | None = None

    def weight_buffer_count(self) -> int:
        """Return the number of buffers that hold the loaded weights."""
        return len(self.plan.held_bytes())

    def total_weight_memory(self) -> int:
        """Return the size in bytes of all weights that are loaded."""
        return sum(self.plan.held_bytes())

    def reset_state(self) -> None:
        """Forget all tokens; the cache keeps its memory."""
        self.cache.reset()

    def prefill(self, tokens: Sequence[int], piece: int | None = None) -> Tensor:
        """Read a prompt in pieces: the logits (vocabulary,) of what follows its last token.

        `piece` is how many tokens are read at once, by default 256 on the CPU and 512 on a GPU: what a layer makes of
        them is in memory together. `InvalidArgument` where there are no tokens, a token that the model lacks, or more
        than fit.
        """
        checked = self._checked("ModelRuntime.prefill", tokens)
        if piece is None:
            piece = self.plan.device.inner.prompt_piece
        if argument.integer("ModelRuntime.prefill", "piece", piece) < 1:
            raise InvalidArgument("ModelRuntime.prefill", f"piece is {piece}, and must be 1 or more")
        self._require_room(len(checked))
        for begin in range(0, len(checked), piece):
            x = self._read(self.plan.embed(self._tokens(checked[begin : begin + piece])))
        return self.plan.apply_lm_head(x[-1:])[0]

    def decode_step(self, tokens: Sequence[int] | Tensor) -> Tensor:
        """Read tokens, or hidden states (n, width): the logits (n, vocabulary) of what follows each.

        Of one token the logits are in memory that the next such step may write to.
        """
        if isinstance(tokens, Tensor):
            if tokens.rank != 2 or tokens.shape[1] != self.config.width:
                reason = f"hidden states have the shape (n, {self.config.width}), not {tokens.shape}"
                raise InvalidArgument("ModelRuntime.decode_step", reason)
            return self.plan.apply_lm_head(self._read(tokens))
        checked = self._checked("ModelRuntime.decode_step", tokens)
        self.cache.require_room(len(checked))
        if len(checked) > 1:
            return self.plan.apply_lm_head(self._read(self.plan.embed(self._tokens(checked))))
        return self._step(checked[0])

    def generate(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        sampler: Sampler | None = None,
        ends: Collection[int] = (),
        before: Sequence[int] = (),
    ) -> Iterator[int]:
        """Read a prompt, then yield token after token: at most `max_tokens`, up to one of `ends` or as many as fit.

        `before` are the tokens that were read already, of which the sampler penalises repetitions too.
        `InvalidArgument` at the first token for a `max_tokens` below 0, and where `prefill` refuses the prompt.
        """
        most = argument.integer("ModelRuntime.generate", "max_tokens", max_tokens)
        if most < 0:
            raise InvalidArgument("ModelRuntime.generate", f"max_tokens is {most}, and must be 0 or more")
        sampler = Sampler() if sampler is None else sampler
        prompt = self._checked("ModelRuntime.generate", tokens)
        seen = [*before, *prompt]
        logits = self.prefill(prompt)
        # The last token is returned without being read.
        free = self.cache.max_seq_len - self.cache.length + 1
        most = min(most, free)
        for number in range(most):
            token = sampler.sample(logits.numpy(), seen)
            if token in ends:
                return
            yield token
            seen.append(token)
            if number + 1 < most:
                logits = self.decode_step([token])[0]

    def _read(self, x: Tensor) -> Tensor:
        return self.plan.forward(x, self.cache, self._rotations)

    def _step(self, token: int) -> Tensor:
        """Read one token: the first one eagerly, the others by a graph or a replay of the same."""
        self._token.fill_(token)
        if self._graph is not None and self._logits is not None:
            self.cache.length += 1
            self._graph.replay()
            return self._logits
        # What ranks exchange is no part of a replay.
        replay = self.plan.device.inner.replay() if self.plan.group.size == 1 else None
        if replay is not None and self._is_first_step_done:
            with replay:
                self._logits = self._logits_of_token()
            self._graph = replay if replay.complete else None
            return self._logits
        # This loads what is not there yet, weights and kernels: a capture may not.
        logits = self._logits_of_token()
        if not self._is_first_step_done:
            self._is_first_step_done = True
            self._capture()
        return logits

    def _capture(self) -> None:
        """Capture the last step; the device may still run it."""
        try:
            graph = Graph(self.plan.device)
        except UnsupportedDevice:
            return
        length = self.cache.length
        # A capture does nothing, so that the token is counted once.
        self.cache.length -= 1
        try:
            with graph.capture():
                self._logits = self._logits_of_token()
        finally:
            self.cache.length = length
        self._graph = graph

    def _logits_of_token(self) -> Tensor:
        return self.plan.apply_lm_head(self._read(self.plan.embed(self._token)))

    def _require_room(self, count: int) -> None:
        """Raise InvalidArgument for a prompt of more tokens than fit."""
        most, used, context = self.cache.max_seq_len, self.cache.length, self.config.context
        if used + count > most:
            others = f" after {used} others" if used else ""
            fix = (
                f", or give max_seq_len up to {context}" if most < context else ", or take a model of a longer context"
            )
            reason = f"the prompt has {count} tokens{others}, and the cache holds {most}; shorten it{fix}"
            raise InvalidArgument("ModelRuntime.prefill", reason)

    def _checked(self, operation: str, tokens: Sequence[int]) -> tuple[int, ...]:
        checked = argument.integers(operation, "tokens", tokens)
        if not checked:
            raise InvalidArgument(operation, "tokens is empty; give one or more")
        for token in checked:
            if not 0 <= token < self.plan.vocabulary:
                reason = f"tokens: there is no token {token}; the model has {self.plan.vocabulary}"
                raise InvalidArgument(operation, reason)
        return checked

    def _tokens(self, tokens: Sequence[int]) -> Tensor:
        return Tensor([*tokens], dtype=DType.U32, device=self.plan.device)

    def __repr__(self) -> str:
        return f"<ModelRuntime of {self.config.architecture}, {self.cache!r}>"
