"""Choosing the next token from the logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtype import Array
from ..base.error import InvalidArgument
from ..core import argument


class Sampler:
    """Draws tokens.

    The repetition penalty divides the logits of tokens that were there, or multiplies negative ones. With temperature 0
    the largest is taken; else it divides the logits, of which the `top_k` largest are left (0: all), then those that
    are the most probable ones of `top_p` in all, then those of at least `min_p` times the largest probability. One seed
    gives the same draws.

    >>> from tallow import models
    >>> models.Sampler().sample([0.1, 2.0, 0.3])
    1
    >>> models.Sampler(temperature=0.8, top_k=1).sample([0.1, 2.0, 0.3])
    1
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.temperature = _within("temperature", temperature, 0, np.inf)
        self.top_k = argument.integer("Sampler", "top_k", top_k)
        if self.top_k < 0:
            raise InvalidArgument("Sampler", f"top_k is {top_k}, and must be 0 or more")
        self.top_p = _within("top_p", top_p, 0, 1)
        self.min_p = _within("min_p", min_p, 0, 1)
        self.repetition_penalty = _within("repetition_penalty", repetition_penalty, 1e-3, 1e3)
        self._random = np.random.default_rng(abs(argument.integer("Sampler", "seed", seed)))

    def sample(self, logits: Array, before: Sequence[int] = ()) -> int:
        """The next token, of logits (vocabulary,) and the tokens before it.

        InvalidArgument where none of them is the largest: for NaN, for an infinity, and for no logits.
        """
        scores = np.asarray(logits, np.float64).copy()
        if scores.ndim != 1 or not np.isfinite(scores.max(initial=-np.inf)):
            reason = "logits must be (vocabulary,) numbers, the largest of them finite"
            raise InvalidArgument(
                "Sampler.sample", f"{reason}; the weights or the hidden states of the model are wrong"
            )
        if self.repetition_penalty != 1 and len(before):
            there = np.unique(np.asarray(before))
            known = scores[there]
            scores[there] = np.where(known > 0, known / self.repetition_penalty, known * self.repetition_penalty)
        if self.temperature == 0:
            return int(scores.argmax())
        order = np.argsort(-scores, kind="stable")
        if 0 < self.top_k < order.size:
            order = order[: self.top_k]
        with np.errstate(over="ignore"):  # by a temperature near 0, to a share of 0
            shares = np.exp((scores[order] - scores[order[0]]) / self.temperature)
        shares /= shares.sum()
        # Those before which less than top_p are taken, so the first one always.
        is_kept = (np.cumsum(shares) - shares < self.top_p) & (shares >= self.min_p * shares[0])
        is_kept[0] = True
        shares = np.where(is_kept, shares, 0)
        return int(self._random.choice(order, p=shares / shares.sum()))


def _within(name: str, value: float, least: float, most: float) -> float:
    number = argument.real("Sampler", name, value)
    if not least <= number <= most:
        raise InvalidArgument("Sampler", f"{name} is {number}, and must be from {least} to {most}")
    return number
