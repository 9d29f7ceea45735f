"""Row formulas written by hand as opgen emits them, and the same in NumPy, to test kernels that take any formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from tallow.dtype import Array, DType
from tallow.runtime.backends.gpu_backend.execute.kernels import compose
from tallow.runtime.backends.gpu_backend.ops import row_formula, row_launches
from tallow.runtime.base.row_facts import RowFacts

_FUNCTOR: Final = """
struct {name} {{
    static constexpr uint32_t operands = {operands};
    static constexpr uint32_t results = {results};
    static constexpr uint32_t parameters = {parameters};
    static constexpr uint32_t passes = {passes};
    static constexpr uint32_t known = {known};
    static constexpr uint32_t in_registers = {in_registers};
    static constexpr uint32_t rescaled = {rescaled};
    template <uint32_t Pass> struct Reduced;
    template <uint32_t Pass, typename T, typename Number>
    static TALLOW_INLINE void contribute([[maybe_unused]] const RowOf<T, {name}>& row,
                                         [[maybe_unused]] const compute_type<T> (&elements)[operands],
                                         [[maybe_unused]] compute_type<T> position,
                                         Number (&numbers)[Reduced<Pass>::count]);
    template <uint32_t Pass, typename T> static TALLOW_INLINE void finish([[maybe_unused]] RowOf<T, {name}>& row);
    template <typename T>
    static TALLOW_INLINE void compute([[maybe_unused]] const RowOf<T, {name}>& row,
                                      const compute_type<T> (&elements)[operands],
                                      [[maybe_unused]] compute_type<T> position,
                                      compute_type<T> (&outputs)[results]) {{
        using Value [[maybe_unused]] = compute_type<T>;
        {compute}
    }}
}};
{joins}
template <uint32_t Pass, typename T, typename Number>
TALLOW_INLINE void {name}::contribute([[maybe_unused]] const RowOf<T, {name}>& row,
                                      [[maybe_unused]] const compute_type<T> (&elements)[operands],
                                      [[maybe_unused]] compute_type<T> position,
                                      Number (&numbers)[Reduced<Pass>::count]) {{
    {contribute}
}}
template <uint32_t Pass, typename T> TALLOW_INLINE void {name}::finish([[maybe_unused]] RowOf<T, {name}>& row) {{
    {finish}
}}
"""


class Pass(NamedTuple):
    """A pass: the first of its known numbers, its joins, and statements."""

    first: int
    joins: tuple[str, ...]
    contribute: str
    finish: str = ""


class Functor(NamedTuple):
    """A row formula. Operands are of the shape "r l" of rows and their length, or lack one of the dims."""

    name: str
    operands: tuple[str, ...]
    passes: tuple[Pass, ...]
    compute: str
    oracle: Callable[..., Any]
    known: int = 0
    results: int = 1
    parameters: tuple[float, ...] = ()
    rescaled: int = 0
    """A bit for each pass of sums that follow the maximum of the pass before."""

    @property
    def in_registers(self) -> int:
        """A bit for each operand that has other elements in each row."""
        return sum(1 << k for k, shape in enumerate(self.operands) if shape == "rl")

    def text(self) -> str:
        """The functor's C++."""
        by_pass = [f"if constexpr (Pass == {k}) {{ {step.contribute} }}" for k, step in enumerate(self.passes)]
        finish = [f"if constexpr (Pass == {k}) {{ {step.finish} }}" for k, step in enumerate(self.passes)]
        return _FUNCTOR.format(
            name=self.name,
            operands=len(self.operands),
            results=self.results,
            parameters=len(self.parameters),
            passes=len(self.passes),
            known=self.known,
            in_registers=self.in_registers,
            rescaled=self.rescaled,
            compute=self.compute,
            joins="\n".join(
                f"template <> struct {self.name}::Reduced<{k}> : RowJoins<{step.first}, {', '.join(step.joins)}> {{}};"
                for k, step in enumerate(self.passes)
            ),
            contribute="using Value [[maybe_unused]] = compute_type<T>;\n    " + "\n    ".join(by_pass),
            finish="using Value [[maybe_unused]] = compute_type<T>;\n    " + "\n    ".join(finish),
        )

    def kernels(self, dtype: DType) -> list[str]:
        """The lines of the kernels of a dtype."""
        return [
            f"TALLOW_KERNEL({self.name}_{dtype.value}_{kernel.name},"
            f" {'AlongColumns' if kernel.is_of_columns else 'AlongRows'}, {kernel.call.format(self.name)})"
            for kernel in row_launches.row_kernels(dtype)
        ]

    @property
    def facts(self) -> RowFacts:
        """Return the facts that its launches depend on."""
        passes = tuple((len(step.joins), 0) for step in self.passes)
        return RowFacts(self.results, passes, self.rescaled, (None,) * len(self.operands))

    def composed(self) -> row_formula.RowFormula:
        """The formula with kernels of every dtype in a family of their own."""
        lines = [line for dtype in (DType.BF16, DType.F16, DType.F32, DType.F64) for line in self.kernels(dtype)]
        family = f"row_{self.name}"
        text = "\n".join(["namespace tallow {", self.text(), *lines, "} // namespace tallow", ""])
        compose("row", family, text)
        return row_formula.RowFormula(family, self.name, self.facts)


def _softmin(x: Array, temperature: float) -> Array:
    z = -x / temperature
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def _relu_squares(x: Array) -> Array:
    squares = np.where(x <= 0, 0, x) ** 2
    with np.errstate(invalid="ignore"):
        return squares / squares.sum(-1, keepdims=True)


def _entropy(x: Array) -> Array:
    shares = np.abs(x) / np.abs(x).sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares == 0, 0, shares * np.log(shares))
    return np.broadcast_to(-terms.sum(-1, keepdims=True), x.shape)


def _positions(x: Array, scale: Array) -> Array:
    return x * scale + (np.arange(x.shape[-1]) + 1) / x.shape[-1]


def _norm_gradient(x: Array, g: Array, residual: Array, weight: Array, eps: float) -> tuple[Array, ...]:
    scale = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    normal, own = (x - x.mean(-1, keepdims=True)) * scale, g * weight
    along = (own * normal).mean(-1, keepdims=True)
    return scale * (own - own.mean(-1, keepdims=True) - normal * along) + residual, g * normal, normal


def _ranges(x: Array) -> tuple[Array, Array]:
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return x - low + 0 * high, np.broadcast_to(high - low, x.shape)


_FIRST_MEAN: Final = Pass(0, ("JoinSums",), "numbers[0] = elements[0];", "row.known[0] /= row.count;")
_VARIANCE: Final = """const Value step = elements[0] - row.known[0];
        numbers[0] = step * step;"""
_SCALE: Final = "row.known[1] = rsqrt(row.known[1] / row.count + row.parameters[0]);"

SOFTMIN: Final = Functor(
    "cold_softmin",
    ("rl",),
    (
        Pass(0, ("JoinHighest",), "numbers[0] = -elements[0] / row.parameters[0];"),
        Pass(
            1,
            ("JoinSums",),
            "numbers[0] = exp(-elements[0] / row.parameters[0] - row.known[0]);",
            "row.known[2] = Value{1} / row.known[1];",
        ),
    ),
    "outputs[0] = exp(-elements[0] / row.parameters[0] - row.known[0]) * row.known[2];",
    _softmin,
    known=3,
    parameters=(0.75,),
    rescaled=0b10,
)
SOFTMAX_GRADIENT: Final = Functor(
    "softmax_slope",
    ("rl", "rl"),
    (Pass(0, ("JoinSums",), "numbers[0] = elements[0] * elements[1];"),),
    "outputs[0] = elements[0] * (elements[1] - row.known[0]);",
    lambda y, g: y * (g - (y * g).sum(-1, keepdims=True)),
    known=1,
)
LAYER_NORM: Final = Functor(
    "layered",
    ("rl", "l", "l"),
    (_FIRST_MEAN, Pass(1, ("JoinSums",), _VARIANCE, _SCALE)),
    "outputs[0] = fma(elements[0] - row.known[0], row.known[1] * elements[1], elements[2] + Value{0});",
    _layer_norm,
    known=2,
    parameters=(1e-5,),
)
RELU_SQUARES: Final = Functor(
    "relu_squares",
    ("rl",),
    (
        Pass(
            0,
            ("JoinSums",),
            "numbers[0] = relu(elements[0]) * relu(elements[0]);",
            "row.known[0] = Value{1} / row.known[0];",
        ),
    ),
    "outputs[0] = relu(elements[0]) * relu(elements[0]) * row.known[0];",
    _relu_squares,
    known=1,
)
LESS_HIGHEST: Final = Functor(
    "less_highest",
    ("rl",),
    (Pass(0, ("JoinHighest",), "numbers[0] = elements[0];"),),
    "outputs[0] = elements[0] - row.known[0];",
    lambda x: x - x.max(-1, keepdims=True),
    known=1,
)
ENTROPY: Final = Functor(
    "entropy",
    ("rl",),
    (
        Pass(
            0,
            ("JoinSums", "JoinSums"),
            """const Value x = abs(elements[0]);
        numbers[0] = x;
        numbers[1] = x == 0 ? x : x * log(x);""",
            "row.known[2] = log(row.known[0]) - row.known[1] / row.known[0];",
        ),
    ),
    "outputs[0] = row.known[2];",
    _entropy,
    known=3,
)
POSITIONS: Final = Functor(
    "positions",
    ("rl", "r"),
    (),
    "outputs[0] = fma(elements[0], elements[1], (position + Value{1}) / row.count);",
    _positions,
)
RANGES: Final = Functor(
    "ranges",
    ("rl",),
    (Pass(0, ("JoinLowest", "JoinHighest"), "numbers[0] = numbers[1] = elements[0];"),),
    """outputs[0] = elements[0] - row.known[0] + 0 * row.known[1];
        outputs[1] = row.known[1] - row.known[0];""",
    _ranges,
    known=2,
    results=2,
)
NORM_GRADIENT: Final = Functor(
    "norm_slope",
    ("rl", "rl", "rl", "l"),
    (
        _FIRST_MEAN,
        Pass(1, ("JoinSums",), _VARIANCE, _SCALE),
        Pass(
            2,
            ("JoinSums", "JoinSums"),
            """numbers[0] = elements[1] * elements[3];
        numbers[1] = elements[1] * elements[3] * ((elements[0] - row.known[0]) * row.known[1]);""",
            "row.known[2] /= row.count; row.known[3] /= row.count;",
        ),
    ),
    """const Value normal = (elements[0] - row.known[0]) * row.known[1];
        outputs[0] = fma(row.known[1], elements[1] * elements[3] - row.known[2] - normal * row.known[3], elements[2]);
        outputs[1] = elements[1] * normal;
        outputs[2] = normal;""",
    _norm_gradient,
    known=4,
    results=3,
    parameters=(1e-5,),
)
FUNCTORS: Final = (
    SOFTMIN,
    SOFTMAX_GRADIENT,
    LAYER_NORM,
    RELU_SQUARES,
    LESS_HIGHEST,
    ENTROPY,
    POSITIONS,
    RANGES,
    NORM_GRADIENT,
)
