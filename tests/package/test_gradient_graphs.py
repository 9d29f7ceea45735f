"""Random graphs of ten ops, whose gradients are compared with differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import tallow as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from tallow import Tensor, Var

STEPS: Final = 10
SHAPE: Final = (3, 3)
STEP: Final = 1e-4
ONE: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in ("sin", "cos", "tanh", "sigmoid", "silu", "gelu", "gelu_erf", "erf", "softplus", "mish", "neg")
    },
    "exp": lambda x: x.tanh().exp(),
    "log": lambda x: (x.sqr() + 1).log(),
    "sqrt": lambda x: (x.sqr() + 1).sqrt(),
    "recip": lambda x: (x.sqr() + 1).recip(),
    "rsqrt": lambda x: (x.sqr() + 1).rsqrt(),
    "powf": lambda x: (x.sqr() + 1).powf(0.7),
    "log1p": lambda x: x.sqr().log1p(),
    "expm1": lambda x: x.tanh().expm1(),
    "affine": lambda x: x.affine(0.5, 0.25),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(0),
    "transposed": lambda x: x.t(),
    "flipped": lambda x: x.flip(0),
    "sums": lambda x: x.sum(0, keepdim=True) * 0.5 + x,
    "means": lambda x: x - x.mean(1, keepdim=True),
    "variances": lambda x: x / (x.var(1, keepdim=True) + 1).sqrt(),
    "cumsum": lambda x: x.cumsum(1) * 0.5,
    "shifted": lambda x: tl.cat([x.narrow(0, 1, 2), x.narrow(0, 0, 1)], 0),
}
TWO: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y * 0.5,
    "div": lambda x, y: x / (y.sqr() + 1),
    "pow": lambda x, y: (x.sqr() + 1).pow(y.tanh()),
    "atan2": lambda x, y: x.atan2(y.sqr() + 1),
    "silu_mul": lambda x, y: x.silu_mul(y),
    "gelu_mul": lambda x, y: x.gelu_mul(y),
    "matmul": lambda x, y: x.matmul(y).tanh(),
    "rows": lambda x, y: x * y.narrow(0, 0, 1),
}

# The op of each step, and which of the earlier tensors it takes.
graphs = st.lists(
    st.tuples(st.sampled_from([*ONE, *TWO]), st.integers(0, STEPS + 1), st.integers(0, STEPS + 1)),
    min_size=STEPS,
    max_size=STEPS,
)


def computed(graph: list[tuple[str, int, int]], x: Tensor, y: Tensor) -> Tensor:
    """The sum of the last results, so that most steps count."""
    result = [x, y]
    for name, first, second in graph:
        # Rather the last ones.
        one, other = result[-1 - first % len(result)], result[-1 - second % len(result)]
        result.append(ONE[name](one) if name in ONE else TWO[name](one, other))
    return (result[-1] + result[-2] * 0.5 + result[-3] * 0.25).sum()


@given(graph=graphs, seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_gradients_of_random_graphs_are_differences(graph: list[tuple[str, int, int]], seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, along_x, along_y = (generator.uniform(-1.5, 1.5, SHAPE) for _ in range(4))

    def value(step: float) -> float:
        return float(computed(graph, Tensor(x + step * along_x), Tensor(y + step * along_y)).item())

    of_x, of_y = Var(Tensor(x)), Var(Tensor(y))
    grads = computed(graph, of_x, of_y).backward()
    actual = sum(
        float((grad.numpy() * along).sum())
        for grad, along in ((grads.get(of_x), along_x), (grads.get(of_y), along_y))
        if grad is not None
    )
    # Of differences, two are extrapolated.
    full, half = ((value(size) - value(-size)) / (2 * size) for size in (STEP, STEP / 2))
    np.testing.assert_allclose(actual, (4 * half - full) / 3, rtol=1e-6, atol=1e-6)
