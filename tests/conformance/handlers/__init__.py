"""For every method, the function that calls a supported cell of it and compares the result with the oracle."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench
from . import (
    attention,
    collectives,
    convolution,
    custom,
    device,
    elementwise,
    exact,
    fft,
    gradients,
    indexing,
    lifecycle,
    linalg,
    movement,
    network,
    normalization,
    optim,
    pooling,
    quantized,
    recurrent,
    reduction,
    rows,
    sampling,
    scans,
    sorting,
)

HANDLERS: dict[str, Callable[[Bench], None]] = {
    **lifecycle.HANDLERS,
    **elementwise.HANDLERS,
    **gradients.HANDLERS,
    **reduction.HANDLERS,
    **attention.HANDLERS,
    **collectives.HANDLERS,
    **indexing.HANDLERS,
    **convolution.HANDLERS,
    **network.HANDLERS,
    **normalization.HANDLERS,
    **recurrent.HANDLERS,
    **rows.HANDLERS,
    **quantized.HANDLERS,
    **pooling.HANDLERS,
    **sampling.HANDLERS,
    **scans.HANDLERS,
    **sorting.HANDLERS,
    **fft.HANDLERS,
    **linalg.HANDLERS,
    **movement.HANDLERS,
    **optim.HANDLERS,
    **custom.HANDLERS,
    **exact.HANDLERS,
    **device.HANDLERS,
}
