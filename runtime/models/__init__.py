"""Models that run: the weights of a GGUF file, a cache of keys and values, and text token by token."""

from .cache import KVCache
from .config import ModelConfig
from .model import ModelRuntime
from .plan import ExecutionPlan, LoadingStats
from .sampling import Sampler
from .scratch import ScratchBufferManager

__all__ = ["ExecutionPlan", "KVCache", "LoadingStats", "ModelConfig", "ModelRuntime", "Sampler", "ScratchBufferManager"]
