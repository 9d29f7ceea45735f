"""Optimisers: what changes variables by their gradients, and schedules of learning rates."""

from .optimizers import SGD, Adam, AdamW, Group, Optimizer
from .scaling import LossScaler, clip_by_norm
from .schedules import constant_rate, cosine_rate, step_rate, warm_up

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Group",
    "LossScaler",
    "Optimizer",
    "clip_by_norm",
    "constant_rate",
    "cosine_rate",
    "step_rate",
    "warm_up",
]
