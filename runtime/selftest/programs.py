"""Programs of several calls: graphs, fused functions, gradients and kernels of users, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ...dtype import Array
from ..doctor.support import support
from ..gradient.variable import Var
from ..graph.fusion import fuse
from ..graph.graph import Graph
from ..tensor import Tensor
from .trial import different

if TYPE_CHECKING:
    from ...device import Device

_ROWS: Final = 37
_COLUMNS: Final = 129


class Program(NamedTuple):
    """A program of a few calls."""

    name: str
    run: Callable[[Device], Array]
    needs: str | None = None
    """The device method that a backend may lack."""
    reference: Callable[[Device], Array] | None = None
    """The program without that method; None for the program itself."""


def fault(program: Program, device: Device, trusted: Device) -> str | None:
    """Return how the result of a program differs from that of NumPy, or the error; None if it agrees."""
    expected = (program.reference or program.run)(trusted)
    try:
        result = program.run(device)
    except Exception as error:  # whatever it is, this program fails, and the others are tried
        return f"{type(error).__name__}: {error}"
    return different(result, expected)


def programs(backend: str) -> list[Program]:
    """The programs that a backend can run."""
    cells = {cell.method for cell in support() if cell.backend == backend and cell.status == "supported"}
    return [program for program in _PROGRAMS if program.needs is None or program.needs in cells]


def _numbers(device: Device, seed: int, *shape: int) -> Tensor:
    values = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return Tensor(values, device=device)


def _fused(device: Device) -> Array:
    function = fuse(lambda x, y: (x * y + 0.5).silu() - y.tanh())
    x, y = (_numbers(device, seed, _ROWS, _COLUMNS) for seed in (1, 2))
    result: Array = function(x, y.t().contiguous().t()).numpy()
    return result


def _step(device: Device) -> Array:
    """A step of gradient descent of a small network."""
    x, target = _numbers(device, 1, _ROWS, _COLUMNS), _numbers(device, 2, _ROWS, 8)
    weights = [Var(_numbers(device, 3, 16, _COLUMNS)), Var(_numbers(device, 4, 8, 16))]
    hidden = x.linear(weights[0]).relu()
    loss = (hidden.linear(weights[1]) - target).sqr().mean()
    gradients = loss.backward()
    return np.concatenate([gradients[weight].numpy().reshape(-1) for weight in weights])


def _eager(device: Device) -> Array:
    results = [_layers(_numbers(device, seed, _ROWS, _COLUMNS)).numpy() for seed in (1, 2)]
    return np.stack(results)


def _layers(x: Tensor) -> Tensor:
    return (x.softmax(-1) @ x.t()).relu() + x.sum(-1, keepdim=True)


def _replayed(device: Device) -> Array:
    x = _numbers(device, 1, _ROWS, _COLUMNS)
    _layers(x)  # so that kernels are compiled and libraries are open before the capture
    results = []
    with Graph(device) as graph:
        with graph.capture():
            y = _layers(x)
        for seed in (1, 2):
            x.copy_(_numbers(device, seed, _ROWS, _COLUMNS))
            graph.replay()
            results.append(y.numpy())
    return np.stack(results)


_SOURCE: Final = """
extern "C" __global__ void scale(float* y, const float* x, float a, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


def _scaled(device: Device) -> Array:
    from ..custom.user_kernel import Kernel

    x = _numbers(device, 1, 1337)
    y = x.zeros_like()
    kernel = Kernel.compile("scale", _SOURCE, device, signature="float* y, const float* x, float a, unsigned n")
    kernel.launch(6, 256, y, x, 2.5, 1337)
    result: Array = y.numpy()
    return result


_PROGRAMS: Final = (
    Program("a fused function", _fused),
    Program("a training step", _step),
    Program("a graph that is replayed", _replayed, "graph", _eager),
    Program("a kernel of a user's", _scaled, "compile", lambda device: (_numbers(device, 1, 1337) * 2.5).numpy()),
)
