"""The weights of a model, loaded as they are needed, and what is done with them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, Self, TypeGuard

import numpy as np

from ...device import Device
from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.error import InvalidArgument, ShapeMismatch
from ..core import layer_check
from ..core.shape import Shape
from ..distributed import Group, all_gather
from ..files.gguf import GgufFile, GgufTensor
from ..files.gguf.file import concatenated_blocks
from ..quantized import QMatMul, QTensor
from ..tensor import Tensor
from ..tensor.base import device_of
from .cache import KVCache
from .config import ModelConfig
from .decoders import MODULES
from .parts import Source, config_of_part, part_of
from .steps import Joined, LayerContext, Weight, linear

_OPERATION: Final = "ExecutionPlan"
_LAYER: Final = "blk.{}.{}"
# The frequencies of rotations, which follow from the keys: older files have them too.
_WITHOUT_EFFECT: Final = re.compile(r"blk\.\d+\.attn_rot_embd(\.weight)?")
_COMPUTE: Final = DType.F32


class LoadingStats(NamedTuple):
    """Progress of loading.

    >>> from tallow import models
    >>> models.LoadingStats(tensors=2, nbytes=1024, seconds=0.5).nbytes
    1024
    """

    tensors: int
    """How many tensors."""
    nbytes: int
    """Their bytes in the file."""
    seconds: float
    """How long it took."""


class ExecutionPlan:
    """The layers of a model: each is loaded when it is first used, or all by `preload_all`.

    `tensors` are those of a GGUF file by name, or tensors on the device. Matrices stay in the blocks that they are in.
    With `activations="q8_1"` products with quants are those of `QMatMul(..., activations="q8_1")`.

    The ranks of a `group` divide heads, hidden units and vocabulary: each loads its part of the matrices alone, and the
    products that need all parts are summed.

    Before any tensor is loaded, InvalidArgument names one that is missing or that no step uses, and ShapeMismatch one
    that has not the shape that the architecture has for the sizes of the config.

    >>> from tallow import models
    >>> sizes = {"layers": 1, "width": 8, "hidden": 16, "heads": 2, "key_heads": 1, "head_dim": 4, "context": 32}
    >>> config = models.ModelConfig("llama", **sizes, epsilon=1e-5)
    >>> shapes = {"token_embd": (10, 8), "output_norm": (8,), "blk.0.attn_norm": (8,), "blk.0.attn_q": (8, 8)}
    >>> shapes |= {"blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8), "blk.0.ffn_norm": (8,)}
    >>> shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8), "blk.0.ffn_down": (8, 16)}
    >>> weights = {f"{name}.weight": tl.randn(shape) for name, shape in shapes.items()}
    >>> plan = models.ExecutionPlan(config, weights, "cpu")
    >>> plan.vocabulary
    10
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, GgufTensor | Tensor | QTensor],
        device: Device | str | None = None,
        *,
        activations: str | None = None,
        group: Group | None = None,
    ) -> None:
        layer_check.known_activations(_OPERATION, activations)
        self.config = config
        self.group = group or Group.alone()
        self.part = config_of_part(config, self.group)
        """The sizes of what this rank computes."""
        self.device = device_of(device)
        self._tensors = tensors
        self._architecture: Any = importlib.import_module(f".decoders.{MODULES[config.architecture]}", __package__)
        self._activations = activations
        self._layers: dict[int, Mapping[Any, Weight | Joined | None]] = {}
        self._around: dict[str, Weight] = {}
        self._vectors: dict[str, Tensor] = {}
        self._stats = LoadingStats(0, 0, 0.0)
        names = dict(self._architecture.TENSORS)
        if names["head"] not in tensors:
            names["head"] = names["embedding"]
        self._names: Mapping[str, str] = names
        self.vocabulary = self._checked_vocabulary()
        """How many tokens there are."""
        self.unused = self._unused_tensors()
        """The tensors, and of a file also the keys, that have no effect. The file's own description is not among them:
        keys that begin with general, split, tokenizer or quantize."""

    @classmethod
    def from_gguf(
        cls,
        file: GgufFile,
        *,
        activations: str | None = None,
        group: Group | None = None,
    ) -> Self:
        """Make the plan of a file, on its device; the file must stay open until all layers are loaded."""
        config, unused = ModelConfig.of(file.metadata)
        plan = cls(config, file, file.device, activations=activations, group=group)
        plan.unused = (*unused, *plan.unused)
        return plan

    @property
    def loading_stats(self) -> LoadingStats:
        """Progress of loading."""
        return self._stats

    def held_bytes(self) -> list[int]:
        """Return the sizes in bytes of the buffers of weights that are loaded."""
        parts = [part for layer in self._layers.values() for part in layer.values() if part is not None]
        weights = [weight for part in parts for weight in (part.matrices if isinstance(part, Joined) else (part,))]
        # The embedding may be the head too.
        every = {id(weight): weight for weight in (*weights, *self._around.values(), *self._vectors.values())}
        return [
            weight.nbytes if isinstance(weight, Tensor) else weight.qtensor.storage_size_in_bytes
            for weight in every.values()
        ]

    def preload_all(self, progress: Callable[[int, int], object] | None = None) -> None:
        """Load all weights; `progress(done, total)` is called with the number of layers."""
        total = self.config.layers + 1
        for layer in range(self.config.layers):
            self._weights(layer)
            if progress is not None:
                progress(layer + 1, total)
        for name in ("embedding", "head"):
            self._tensor(name)
        self._vector("norm")
        self._optional_vector("head_bias")
        # The runtime reads it later, when the file may be closed.
        self._optional_vector("frequencies")
        if progress is not None:
            progress(total, total)

    def rotations(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of the rotary angles of the first positions, (rows, head_dim / 2) each."""
        config = self.config
        frequencies = config.rope_base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
        divisors = self._optional_vector("frequencies")
        with np.errstate(all="ignore"):
            if divisors is not None:
                frequencies = frequencies / divisors.numpy().astype(np.float64)
            angles = np.arange(rows)[:, None] / config.rope_scale * frequencies
        if not np.isfinite(angles).all():
            reason = "the base, the scale or the divisors of the rotations make angles that are not finite"
            raise InvalidArgument(_OPERATION, f"{reason}; get the file again")
        tables = (np.cos(angles), np.sin(angles))
        cos, sin = (Tensor(table.astype(np.float32), device=self.device) for table in tables)
        return cos, sin

    def embed(self, tokens: Tensor) -> Tensor:
        """Look up the embeddings (n, width) of tokens (n,)."""
        embedding = self._tensor("embedding")
        return embedding[tokens] if isinstance(embedding, Tensor) else embedding.qtensor.embedding(tokens)

    def forward_layer(self, x: Tensor, context: LayerContext) -> Tensor:
        """Run one layer on hidden states (n, width)."""
        x, added = self._layer(x, None, context)
        return x + added

    def forward(self, x: Tensor, cache: KVCache, rotations: tuple[Tensor, Tensor]) -> Tensor:
        """Run all layers on hidden states (n, width) of the tokens that follow those in a cache, and append to it."""
        count = x.shape[0]
        positions = cache.positions(count)
        lengths = cache.position + count
        added = None
        for layer in range(self.config.layers):
            context = LayerContext(self.part, cache, layer, cache.position, positions, lengths, *rotations, self.group)
            x, added = self._layer(x, added, context)
        cache.advance(count)
        return x if added is None else x + added

    def _layer(self, x: Tensor, added: Tensor | None, context: LayerContext) -> tuple[Tensor, Tensor]:
        results: tuple[Tensor, Tensor] = self._architecture.layer(context, self._weights(context.layer), x, added)
        return results

    def apply_lm_head(self, x: Tensor) -> Tensor:
        """Return the logits (n, vocabulary) of hidden states (n, width)."""
        normed = x.rms_norm(self._vector("norm"), self.config.epsilon)
        logits = linear(None, normed, self._tensor("head"), self._optional_vector("head_bias"))
        if logits.shape[1] == self.vocabulary:
            return logits
        parts = all_gather(logits, group=self.group).reshape(self.group.size, *logits.shape)
        return parts.transpose(0, 1).reshape(x.shape[0], self.vocabulary)

    def _weights(self, layer: int) -> Mapping[Any, Weight | Joined | None]:
        weights = self._layers.get(layer)
        if weights is None:
            names = {name: _LAYER.format(layer, tensor) for name, tensor in self._architecture.LAYER.items()}
            parts = {name: self._part(name, tensor) for name, tensor in names.items() if tensor in self._tensors}
            fused = {group: self._joined([parts.pop(name) for name in group]) for group in self._architecture.JOINED}
            missing = dict.fromkeys(name for name, tensor in names.items() if tensor not in self._tensors)
            single = {**missing, **{name: self._load(tensor) for name, tensor in parts.items()}}
            weights = self._layers[layer] = {**fused, **single}
        return weights

    def _part(self, name: str, tensor: str) -> Source:
        """This rank's part of a tensor, which steps call `name`."""
        full, dim = self._tensors[tensor], self._architecture.DIVIDED.get(name)
        is_of_head = name in ("head", "head_bias")
        is_whole = dim is None or self.group.size == 1 or (is_of_head and self.vocabulary % self.group.size)
        return full if is_whole else part_of(full, dim, self.group)

    def _joined(self, tensors: Sequence[Source]) -> Joined:
        """Weights by which the same is multiplied, in one matrix where the file has them in one format."""
        rows = tuple(tensor.shape[0] for tensor in tensors)
        matrices = [tensor for tensor in tensors if _is_matrix(tensor)]
        if len(matrices) < len(tensors) or len({(it.dtype, it.shape[1]) for it in matrices}) > 1:
            return Joined(tuple(map(self._load, tensors)), rows)
        begin = perf_counter()
        matrix = self._matrix(concatenated_blocks(matrices))
        self._note(len(matrices), sum(it.nbytes for it in matrices), begin)
        return Joined((matrix,), rows)

    def _tensor(self, name: str) -> Weight:
        weight = self._around.get(name)
        if weight is None:
            part = self._part(name, self._names[name])
            same = name == "head" and part is self._tensors[self._names["embedding"]]
            weight = self._around[name] = self._tensor("embedding") if same else self._load(part)
        return weight

    def _vector(self, name: str) -> Tensor:
        vector = self._vectors.get(name)
        if vector is None:
            loaded = self._load(self._part(name, self._names[name]))
            assert isinstance(loaded, Tensor), "matrices alone stay quantized, and its shape was checked"
            vector = self._vectors[name] = loaded
        return vector

    def _optional_vector(self, name: str) -> Tensor | None:
        """A vector that a file may lack."""
        return self._vector(name) if self._names.get(name) in self._tensors else None

    def _load(self, tensor: Source) -> Weight:
        begin = perf_counter()
        if isinstance(tensor, GgufTensor):
            loaded = tensor.blocks() if _is_matrix(tensor) else tensor.load()
            self._note(1, tensor.nbytes, begin)
        else:
            loaded = tensor
        if isinstance(loaded, Tensor):
            return loaded.to_dtype(_COMPUTE)
        if loaded.rank != 2:
            return loaded.dequantize()
        return self._matrix(loaded)

    def _matrix(self, blocks: QTensor) -> QMatMul:
        # Floats have no quants.
        activations = self._activations if blocks.dtype.block_size > 1 else None
        return QMatMul(blocks, activations=activations)

    def _note(self, count: int, nbytes: int, begin: float) -> None:
        tensors, before, seconds = self._stats
        self._stats = LoadingStats(tensors + count, before + nbytes, seconds + perf_counter() - begin)

    def _checked_vocabulary(self) -> int:
        """How many tokens there are, once all tensors are there and have the shapes of the architecture."""
        names, architecture = self._names, self._architecture
        self._require(names["embedding"])
        embedding = self._tensors[names["embedding"]].shape
        vocabulary = embedding[0] if embedding else 1
        shapes = architecture.shapes(self.config, vocabulary)
        for name, tensor in names.items():
            if tensor in self._tensors or name == "norm":
                self._require(tensor, shapes[name])
        # A file may say that it has any number of layers: the first one that it lacks ends this.
        for layer in range(self.config.layers):
            for name, tensor in architecture.LAYER.items():
                full_name = _LAYER.format(layer, tensor)
                if name not in architecture.OPTIONAL or full_name in self._tensors:
                    self._require(full_name, shapes[name])
        return vocabulary

    def _unused_tensors(self) -> tuple[str, ...]:
        """Return the tensors that have no effect; InvalidArgument names one that no step uses and may have one."""
        used = set(self._names.values())
        for layer in range(self.config.layers):
            used.update(_LAYER.format(layer, tensor) for tensor in self._architecture.LAYER.values())
        unused = [name for name in self._tensors if name not in used]
        for name in unused:
            if not _WITHOUT_EFFECT.fullmatch(name):
                what = f"tensor '{name}' is used by no step of architecture '{self.config.architecture}'"
                raise InvalidArgument(_OPERATION, f"{what} with {self.config.layers} layers; use another model")
        return tuple(unused)

    def _require(self, name: str, shape: tuple[int, ...] | None = None) -> None:
        """Raise an error for a tensor that is missing or has another shape than `shape`, if that is not None."""
        what = f"tensor '{name}' of architecture '{self.config.architecture}'"
        if name not in self._tensors:
            raise InvalidArgument(_OPERATION, f"{what} is missing; get the file again")
        actual = Shape(self._tensors[name].shape)
        if shape is not None and actual != shape:
            reason = f"{what} must have shape {Shape(shape)} in a model of these sizes; get the file again"
            raise ShapeMismatch(_OPERATION, (actual,), reason)

    def __repr__(self) -> str:
        return f"<ExecutionPlan of {self.config.architecture}, {self.config.layers} layers, on {self.device.label}>"


def _is_matrix(tensor: Source) -> TypeGuard[GgufTensor]:
    """Whether products take a tensor of a file as it is there: what has f32 is a tensor like others."""
    return isinstance(tensor, GgufTensor) and len(tensor.shape) == 2 and tensor.dtype is not GgmlDType.F32
