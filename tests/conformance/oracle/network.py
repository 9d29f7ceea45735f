"""The layers of networks besides products and convolutions.

Each function gives the extended result and how much a result may be off besides its units in the last place, since
differences and sums are rounded to the compute dtype on their way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from .formats import EXTENDED, FLOATS, Array, compute_name, decode, encode


def epsilon(name: str) -> np.longdouble:
    """The relative error of one step in the compute dtype of `name`."""
    return EXTENDED(2) ** -FLOATS[compute_name(name)].precision


def softmax(name: str, x: Array, dim: int) -> tuple[Array, Array]:
    """e**(x - m) / sum(e**(x - m)). An error of x - m becomes a relative one."""
    with np.errstate(all="ignore"):
        below = _below_highest(name, x, dim)
        powers = np.exp(below)
        result = powers / powers.sum(axis=dim, keepdims=True)
        finite = np.where(np.isfinite(below), np.abs(below), 0)
        relative = 2 * finite + _weighted(powers, finite, dim) + np.log2(EXTENDED(max(x.shape[dim], 2))) + 4
        return result, np.nan_to_num(epsilon(name) * relative * result) + 4 * _smallest(name)


def log_softmax(name: str, x: Array, dim: int) -> tuple[Array, Array]:
    """x - m - log(sum(e**(x - m)))."""
    with np.errstate(all="ignore"):
        below = _below_highest(name, x, dim)
        powers = np.exp(below)
        result = below - np.log(powers.sum(axis=dim, keepdims=True))
        finite = np.where(np.isfinite(below), np.abs(below), 0)
        off = 2 * finite + _weighted(powers, finite, dim) + np.log2(EXTENDED(max(x.shape[dim], 2))) + 4
        return result, np.nan_to_num(epsilon(name) * off)


def _below_highest(name: str, x: Array, dim: int) -> Array:
    value = decode(name, x)
    return value - value.max(axis=dim, keepdims=True, initial=-np.inf)


def _weighted(powers: Array, terms: Array, dim: int) -> Array:
    """The mean of terms by their share in the sum of powers."""
    total = np.nan_to_num(powers).sum(axis=dim, keepdims=True)
    return np.nan_to_num((np.nan_to_num(powers) * terms).sum(axis=dim, keepdims=True) / total)


def _smallest(name: str) -> np.longdouble:
    """The smallest normal number of the compute dtype: exponentials below may be 0."""
    return EXTENDED(2) ** FLOATS[compute_name(name)].min_exponent


def softmax_gradient(name: str, y: Array, gradient: Array, dim: int, *, is_log: bool) -> tuple[Array, Array]:
    """The gradient g times the derivatives of softmax at a result y, y_i * (1 if i is j - y_j), or of its logarithm."""
    with np.errstate(all="ignore"):
        output, incoming = decode(name, y), decode(name, gradient)
        terms = incoming if is_log else incoming * output
        total = terms.sum(axis=dim, keepdims=True)
        off = (np.log2(EXTENDED(max(y.shape[dim], 2))) + 4) * np.abs(terms).sum(axis=dim, keepdims=True)
        share = np.exp(output) if is_log else output
        result = incoming - share * total if is_log else share * (incoming - total)
        # An error of a logarithm becomes a relative one of what it is of.
        own = (
            np.abs(share * total) * (np.abs(output) + 4) + np.abs(incoming) if is_log else 2 * np.abs(share * incoming)
        )
        slack = np.nan_to_num(epsilon(name) * (np.abs(share) * (off + np.abs(total)) + own), posinf=0, neginf=0)
        return result, slack + 4 * _smallest(name)


def add(name: str, x: Array, residual: Array | None) -> Array:
    """The sum of both, rounded to the dtype once: an extended sum of f64 would be rounded twice."""
    if residual is None:
        return x
    return x + residual if name == "f64" else encode(name, decode(name, x) + decode(name, residual))


def norm(
    name: str, x: Array, weight: Array | None, bias: Array | None, eps: float, *, is_centered: bool
) -> tuple[Array, Array]:
    """(x - mean) / sqrt(mean((x - mean)**2) + eps) * weight + bias, with a mean of 0 where it is not centred."""
    value = decode(name, x)
    with np.errstate(all="ignore"):
        count = EXTENDED(max(x.shape[-1], 1))
        magnitude = np.abs(value).sum(axis=-1, keepdims=True) / count
        mean = value.sum(axis=-1, keepdims=True) / count if is_centered else EXTENDED(0)
        variance = ((value - mean) ** 2).sum(axis=-1, keepdims=True) / count
        factor = 1 / np.sqrt(variance + EXTENDED(np.float64(eps)))
        factor = factor * (1 if weight is None else decode(name, weight))
        scaled = (value - mean) * factor
        result = scaled + (0 if bias is None else decode(name, bias))
        terms = np.log2(count) + 8
        off = np.abs(scaled) * terms + np.abs(factor) * (np.abs(value) + magnitude * terms) + np.abs(result)
        return result, np.nan_to_num(epsilon(name) * off)


def norm_gradient(
    name: str,
    x: Array,
    gradient: Array,
    weight: Array | None,
    eps: float,
    *,
    residual: Array | None,
    is_centered: bool,
) -> list[tuple[Array, Array]]:
    """The gradients of x, of the weight and of the bias: the gradient times the derivatives of what `norm` computes.

    A residual is added to that of x.

    The derivative of a normalised element i by element j is ((1 if i is j) - 1 / count - n_i * n_j / count) / root.
    """
    value, incoming = decode(name, x), decode(name, gradient)
    count, lines = EXTENDED(max(x.shape[-1], 1)), EXTENDED(max(x.size // max(x.shape[-1], 1), 2))
    with np.errstate(all="ignore"):
        mean = value.sum(axis=-1, keepdims=True) / count if is_centered else EXTENDED(0)
        root = np.sqrt(((value - mean) ** 2).sum(axis=-1, keepdims=True) / count + EXTENDED(np.float64(eps)))
        normal = (value - mean) / root
        part = incoming * (1 if weight is None else decode(name, weight))
        direct = part.sum(axis=-1, keepdims=True) / count if is_centered else EXTENDED(0)
        along = (part * normal).sum(axis=-1, keepdims=True) / count
        # What the mean and the root are off makes normalised elements off, and these what is made of them.
        terms = np.log2(count) + 8
        magnitude = np.abs(value).sum(axis=-1, keepdims=True) / count
        off = terms * (np.abs(normal) + (np.abs(value) + magnitude) / root)
        size, along_size = ((np.abs(each).sum(axis=-1, keepdims=True) / count) for each in (part, part * normal))
        along_off = (np.abs(part) * off).sum(axis=-1, keepdims=True) / count + terms * along_size
        of_x = (part - direct - normal * along) / root
        x_off = np.abs(part) * terms + size * terms + np.abs(along) * off + np.abs(normal) * along_off
        other = EXTENDED(0) if residual is None else decode(name, residual)
        axes = tuple(range(x.ndim - 1))
        results = [
            (of_x + other, x_off / root + np.abs(other)),
            (
                (incoming * normal).sum(axis=axes),
                (np.abs(incoming) * (off + 8 * np.log2(lines) * np.abs(normal))).sum(axis=axes),
            ),
            (incoming.sum(axis=axes), (8 * np.log2(lines) * np.abs(incoming)).sum(axis=axes)),
        ]
        return [(result, np.nan_to_num(epsilon(name) * slack, posinf=0)) for result, slack in results]


class Targets(NamedTuple):
    """A target for each row along a dim, which of them count, and the weights of classes."""

    indexes: Array
    counts: Array
    dim: int
    weight: Array | None

    @property
    def places(self) -> Array:
        """The targets in the shape of the scores, 0 where they do not count."""
        return np.expand_dims(np.where(self.counts, self.indexes, 0).astype(np.int64), self.dim)

    def weights(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weights in the shape of the scores."""
        weight = np.ones(shape[self.dim], EXTENDED) if self.weight is None else decode(name, self.weight)
        return np.broadcast_to(weight.reshape(-1, *[1] * (len(shape) - 1 - self.dim)), shape)

    def chosen(self, values: Array) -> Array:
        """The values at the targets."""
        return np.take_along_axis(values, self.places, self.dim).squeeze(self.dim)


def counted(name: str, x: Array, targets: Targets) -> Array:
    """The weight of each target, 0 where one does not count."""
    return np.where(targets.counts, targets.chosen(targets.weights(name, x.shape)), 0)


def cross_entropy(name: str, x: Array, targets: Targets, smoothing: float = 0.0) -> tuple[Array, Array]:
    """Minus log_softmax at each target, of which its mean has the share `smoothing`, each with its weight."""
    return _loss(name, *log_softmax(name, x, targets.dim), targets, smoothing)


def nll_loss(name: str, x: Array, targets: Targets) -> tuple[Array, Array]:
    """Minus the logarithm at each target, with its weight."""
    value = decode(name, x)
    return _loss(name, value, np.zeros(x.shape, EXTENDED), targets, 0.0)


def _loss(name: str, logarithms: Array, errors: Array, targets: Targets, smoothing: float) -> tuple[Array, Array]:
    weights = targets.weights(name, logarithms.shape)
    with np.errstate(all="ignore"):
        terms = weights * logarithms
        off = np.abs(weights) * errors + 4 * epsilon(name) * np.abs(terms) * (targets.weight is not None)
        losses, slack = targets.chosen(terms), targets.chosen(off)
        if smoothing:
            losses = (1 - smoothing) * losses + smoothing * terms.mean(targets.dim)
            # Weighted sums of what is below the largest score, and its logarithm times their weights, may cancel.
            sizes = np.abs(weights) * (np.abs(logarithms) + np.abs(logarithms).min(targets.dim, keepdims=True))
            slack = slack + np.nan_to_num((off + 4 * epsilon(name) * sizes).mean(targets.dim))
    return np.where(targets.counts, 0 - losses, 0), np.where(targets.counts, np.nan_to_num(slack), 0)


def cross_entropy_gradient(
    name: str, x: Array, gradient: Array, targets: Targets, smoothing: float = 0.0
) -> tuple[Array, Array]:
    """The share of each element in softmax times the weight of the row, less the element's weight in the targets."""
    is_target, weights = _is_target(x, targets), targets.weights(name, x.shape)
    at_target = np.expand_dims(targets.chosen(weights), targets.dim)
    with np.errstate(all="ignore"):
        logarithms, off = log_softmax(name, x, targets.dim)
        share = np.exp(logarithms)
        of_target, of_all = (1 - smoothing) * at_target, smoothing * weights.mean(targets.dim, keepdims=True)
        parts = of_target * np.where(is_target, np.expm1(logarithms), share), of_all * share
        own = smoothing * weights / x.shape[targets.dim]
        result = parts[0] + parts[1] - own
        relative = (of_target + of_all) * share + of_target * is_target + own
        slack = (of_target + of_all) * share * off + 4 * epsilon(name) * relative
    return _of_rows(name, targets, gradient, result, slack)


def nll_loss_gradient(name: str, x: Array, gradient: Array, targets: Targets) -> tuple[Array, Array]:
    """Minus the weight of each target, and 0 elsewhere."""
    result = np.where(_is_target(x, targets), -targets.weights(name, x.shape), EXTENDED(0))
    return _of_rows(name, targets, gradient, result, np.abs(result) * epsilon(name))


def _is_target(x: Array, targets: Targets) -> Array:
    classes = np.arange(x.shape[targets.dim]).reshape(-1, *[1] * (x.ndim - 1 - targets.dim))
    return np.asarray(classes == targets.places)


def _of_rows(name: str, targets: Targets, gradient: Array, result: Array, slack: Array) -> tuple[Array, Array]:
    """A slope times the gradient of each row, 0 in rows that do not count."""
    incoming = np.expand_dims(np.where(targets.counts, gradient, 0).astype(EXTENDED), targets.dim)
    is_counted = np.expand_dims(targets.counts, targets.dim)
    with np.errstate(all="ignore"):
        off = np.nan_to_num(slack * np.abs(incoming))
        return np.where(is_counted, result * incoming, 0), np.where(is_counted, off, 0) + 4 * _smallest(name)


LOSSES: Final = {
    "cross_entropy": (cross_entropy, cross_entropy_gradient),
    "smoothed_cross_entropy": (cross_entropy, cross_entropy_gradient),
    "nll_loss": (nll_loss, nll_loss_gradient),
}
"""The ops with a number for each row and an index, and their gradients."""


def rope(name: str, x: Array, cos: Array, sin: Array, positions: Array, *, is_interleaved: bool) -> tuple[Array, Array]:
    """Each pair (x, y) as (x cos - y sin, x sin + y cos)."""
    value = decode(name, x)
    result, off = np.zeros(x.shape, EXTENDED), np.zeros(x.shape, EXTENDED)
    size = x.shape[-1]
    for index in np.ndindex(x.shape[:-1]):
        batch = index[0] if positions.size > 1 else 0
        row = int(positions.reshape(-1)[batch]) + index[-1]
        for pair in range(size // 2):
            i, j = (2 * pair, 2 * pair + 1) if is_interleaved else (pair, pair + size // 2)
            u, v = value[(*index, i)], value[(*index, j)]
            c, s = EXTENDED(cos[row, pair]), EXTENDED(sin[row, pair])
            result[(*index, i)], off[(*index, i)] = u * c - v * s, abs(u * c) + abs(v * s)
            result[(*index, j)], off[(*index, j)] = u * s + v * c, abs(u * s) + abs(v * c)
    return result, 2 * epsilon(name) * off
