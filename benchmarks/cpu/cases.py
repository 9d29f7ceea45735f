"""The ops that are measured, by family, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import tallow as tl

_TORCH_NAMES = {"f32": "float32", "bf16": "bfloat16"}
DTYPES = tuple(_TORCH_NAMES)
_HEAD_SIZE, _TOKENS = 64, 256
_VALUE = 1.5
_LARGEST, _ROWS, _COLUMNS = 8, 4, 256
_EPSILON = 1e-5
# Images of fewer elements are smaller than their windows.
_MIN_OF_IMAGES = 16
_MIN_OF_FEW_COLUMNS = 23
Call = Callable[[], Any]


class Case(NamedTuple):
    """One call on tallow, PyTorch and NumPy; None for a library without it."""

    name: str
    tallow: Call
    torch: Call | None
    numpy: Call | None
    family: str = ""
    # Of results of f32 or wider dtypes, relative to the largest element.
    tolerance: float = 1e-5

    @property
    def calls(self) -> dict[str, Call]:
        """The calls that there are, by library."""
        calls = {"tallow": self.tallow, "torch": self.torch, "numpy": self.numpy}
        return {library: call for library, call in calls.items() if call is not None}


class Data:
    """Two square matrices of 2**exponent elements: a and b of NumPy, x and y of tallow, u and v of PyTorch.

    NumPy's have f32, the others the dtype; without PyTorch, its operands are None.
    """

    def __init__(self, exponent: int, dtype: str) -> None:
        self.torch: Any = import_module("torch") if find_spec("torch") else None
        self.functions: Any = self.torch and self.torch.nn.functional
        self.exponent, self.side = exponent, 1 << exponent // 2
        self.dtype, self.kind = tl.DType(dtype), getattr(self.torch, _TORCH_NAMES[dtype], None)
        self.is_f32 = dtype == "f32"
        self.generator = np.random.default_rng(0)
        self.a, self.b = self.normal(self.side, self.side), self.normal(self.side, self.side)
        (self.x, self.u), (self.y, self.v) = self.share(self.a), self.share(self.b)

    def normal(self, *shape: int) -> Any:
        """Normal random numbers in f32."""
        return self.generator.standard_normal(shape, np.float32)

    def share(self, array: Any) -> tuple[tl.Tensor, Any]:
        """A copy for tallow and one for PyTorch, in the dtype that is measured."""
        copy = tl.Tensor(array).to_dtype(self.dtype).copy()
        return copy, self.torch and self.torch.from_numpy(array).to(self.kind, copy=True)

    def share_as_it_is(self, array: Any) -> tuple[tl.Tensor, Any]:
        """The array for tallow and for PyTorch, in its own dtype."""
        return tl.Tensor(array), self.torch and self.torch.from_numpy(array)

    def case(self, name: str, tallow: Call, torch: Call, numpy: Call | None = None) -> Case:
        """A case of the libraries that are there and have the dtype."""
        return Case(name, tallow, torch if self.torch else None, numpy if self.is_f32 else None)


def cases(exponent: int, dtype: str) -> Iterator[Case]:
    """The cases of one size and dtype; operands that only some need are created and freed with their family."""
    data = Data(exponent, dtype)
    for family in _FAMILIES:
        yield from (case._replace(family=family.__name__.strip("_")) for case in family(data))


def _elementwise(data: Data) -> Iterator[Case]:
    torch, nn, case = data.torch, data.functions, data.case
    a, b, x, y, u, v = data.a, data.b, data.x, data.y, data.u, data.v
    yield case("add", lambda: x + y, lambda: u + v, lambda: a + b)
    yield case("add, one transposed", lambda: x + y.t(), lambda: u + v.t(), lambda: a + b.T)
    yield case("add a row", lambda: x + y[:1], lambda: u + v[:1], lambda: a + b[:1])
    (sums, usums), asums = data.share(a), a.copy()
    yield case("add in place", lambda: sums.add_(y), lambda: usums.add_(v), lambda: np.add(asums, b, out=asums))
    yield case("affine", lambda: x.affine(2.0, 1.0), lambda: u * 2 + 1, lambda: a * np.float32(2) + np.float32(1))
    yield case("maximum", lambda: x.maximum(y), lambda: torch.maximum(u, v), lambda: np.maximum(a, b))
    bases = np.abs(a) + np.float32(0.5)
    base, ubase = data.share(bases)
    yield case("pow", lambda: base.pow(y), lambda: ubase.pow(v), lambda: np.power(bases, b))
    yield case("exp", lambda: x.exp(), lambda: u.exp(), lambda: np.exp(a))
    yield case("log of abs", lambda: x.abs().log(), lambda: u.abs().log(), lambda: np.log(np.abs(a)))
    yield case("sin", lambda: x.sin(), lambda: u.sin(), lambda: np.sin(a))
    yield case("tanh", lambda: x.tanh(), lambda: u.tanh(), lambda: np.tanh(a))
    yield case("gelu", lambda: x.gelu(), lambda: nn.gelu(u, approximate="tanh"))
    yield case("gelu_erf", lambda: x.gelu_erf(), lambda: nn.gelu(u))
    yield case("silu", lambda: x.silu(), lambda: nn.silu(u))
    yield case("lt", lambda: x.lt(y), lambda: u < v, lambda: a < b)
    mask, umask = x.lt(y), torch and u < v
    yield case("where", lambda: mask.where(x, y), lambda: torch.where(umask, u, v), lambda: np.where(a < b, a, b))


def _casts(data: Data) -> Iterator[Case]:
    case, a, x, u = data.case, data.a, data.x, data.u
    yield case("cast to f16", lambda: x.to_dtype(tl.DType.F16), lambda: u.half(), lambda: a.astype(np.float16))
    if not data.is_f32:
        yield case("cast to f32", lambda: x.to_dtype(tl.DType.F32), lambda: u.float())
    integers = data.generator.integers(-1000, 1000, a.shape)
    i, ui = data.share_as_it_is(integers)
    yield case("cast from i64", lambda: i.to_dtype(data.dtype), lambda: ui.to(data.kind), lambda: integers.astype("f4"))


def _memory(data: Data) -> Iterator[Case]:
    torch, case, dtype, kind = data.torch, data.case, data.dtype, data.kind
    a, b, x, y, u, v = data.a, data.b, data.x, data.y, data.u, data.v
    shape = a.shape
    (own, uown), aown = data.share(a), a.copy()
    yield case("fill", lambda: own.fill_(_VALUE), lambda: uown.fill_(_VALUE), lambda: aown.fill(_VALUE))
    yield case(
        "full",
        lambda: tl.Tensor.full(shape, _VALUE, dtype=dtype),
        lambda: torch.full(shape, _VALUE, dtype=kind),
        lambda: np.full(shape, _VALUE, np.float32),
    )
    yield case("copy of a transposed", lambda: x.t().contiguous(), lambda: u.t().contiguous(), lambda: a.T.copy())
    yield case("cat", lambda: tl.cat([x, y], 1), lambda: torch.cat([u, v], 1), lambda: np.concatenate([a, b], 1))


def _random(data: Data) -> Iterator[Case]:
    if data.is_f32:
        torch, case, generator, shape = data.torch, data.case, data.generator, data.a.shape
        yield case(
            "rand",
            lambda: tl.Tensor.rand(shape),
            lambda: torch.rand(shape),
            lambda: generator.random(shape, np.float32),
        )
        yield case(
            "randn",
            lambda: tl.Tensor.randn(shape),
            lambda: torch.randn(shape),
            lambda: generator.standard_normal(shape, np.float32),
        )


def _reductions(data: Data) -> Iterator[Case]:
    case, a, x, u = data.case, data.a, data.x, data.u
    yield case("sum", lambda: x.sum(), lambda: u.sum(), lambda: a.sum())
    yield case("sum of rows", lambda: x.sum(1), lambda: u.sum(1), lambda: a.sum(1))
    yield case("sum of columns", lambda: x.sum(0), lambda: u.sum(0), lambda: a.sum(0))
    # Their products are exact: PyTorch rounds those of bf16 one by one.
    factors = np.sign(a)
    f, uf = data.share(factors)
    yield case("prod of rows", lambda: f.prod(1), lambda: uf.prod(1), lambda: factors.prod(1))
    yield case("var of rows", lambda: x.var(1), lambda: u.var(1), lambda: a.var(1, ddof=1))
    yield case("max of rows", lambda: x.max(1), lambda: u.amax(1), lambda: a.max(1))
    yield case("argmax of rows", lambda: x.argmax(1), lambda: u.argmax(1), lambda: a.argmax(1))


def _ordering(data: Data) -> Iterator[Case]:
    torch, case, a, x, u = data.torch, data.case, data.a, data.x, data.u
    yield case("cumsum of rows", lambda: x.cumsum(1), lambda: u.cumsum(1), lambda: a.cumsum(1))
    yield case(
        "sort of rows", lambda: x.sort(1)[0], lambda: torch.sort(u, dim=1, stable=True)[0], lambda: np.sort(a, 1)
    )
    yield case(
        "argsort of rows",
        lambda: x.argsort(1),
        lambda: torch.argsort(u, dim=1, stable=True),
        lambda: np.argsort(a, 1, kind="stable"),
    )
    # Of equal elements PyTorch may take others.
    yield case("topk of rows", lambda: x.topk(_LARGEST, 1)[0], lambda: torch.topk(u, _LARGEST, 1)[0])


def _indexing(data: Data) -> Iterator[Case]:
    case, generator, side = data.case, data.generator, data.side
    a, b, x, y, u, v = data.a, data.b, data.x, data.y, data.u, data.v
    rows = np.sort(generator.integers(0, side, side))
    at, uat = data.share_as_it_is(rows)
    yield case("index_select", lambda: x.index_select(at, 0), lambda: u[uat], lambda: a[rows])
    yield case("index_add", lambda: x.index_add(at, y, 0), lambda: u.index_add(0, uat, v))
    positions = generator.integers(0, side, (side, side))
    among, uamong = data.share_as_it_is(positions)
    yield case(
        "gather", lambda: x.gather(among, 1), lambda: u.gather(1, uamong), lambda: np.take_along_axis(a, positions, 1)
    )
    # Each position once: which of several writes wins, PyTorch leaves open.
    orders = generator.permuted(np.broadcast_to(np.arange(side), (side, side)), axis=1)
    to, uto = data.share_as_it_is(orders)
    yield case(
        "scatter",
        lambda: x.scatter(to, y, 1),
        lambda: u.scatter(1, uto, v),
        lambda: np.put_along_axis(a.copy(), orders, b, 1),
    )
    yield case("scatter_add", lambda: x.scatter_add(among, y, 1), lambda: u.scatter_add(1, uamong, v))


def _network(data: Data) -> Iterator[Case]:
    torch, nn, case, side, x, u = data.torch, data.functions, data.case, data.side, data.x, data.u
    yield case("softmax", lambda: x.softmax(1), lambda: u.softmax(1))
    yield case("log_softmax", lambda: x.log_softmax(1), lambda: u.log_softmax(1))
    ones, uones = data.share(np.ones(side, np.float32))
    yield case("layer_norm", lambda: x.layer_norm(ones, ones), lambda: nn.layer_norm(u, (side,), uones, uones))
    yield case("rms_norm", lambda: x.rms_norm(ones, _EPSILON), lambda: nn.rms_norm(u, (side,), uones, _EPSILON))
    classes, uclasses = data.share_as_it_is(data.generator.integers(0, side, side))
    yield case(
        "cross_entropy",
        lambda: x.cross_entropy(classes, reduction="none"),
        lambda: nn.cross_entropy(u, uclasses, reduction="none"),
    )
    heads = _heads(data)
    q, uq = x.reshape(heads), torch and u.reshape(heads)
    angles = data.normal(heads[2], _HEAD_SIZE // 2)
    (cos, ucos), (sin, usin) = data.share_as_it_is(np.cos(angles)), data.share_as_it_is(np.sin(angles))

    def rotate() -> Any:
        left, right = uq.chunk(2, -1)
        return torch.cat((left * ucos - right * usin, left * usin + right * ucos), -1).to(data.kind)

    yield case("rope", lambda: q.rope(cos, sin), rotate)


def _heads(data: Data) -> tuple[int, int, int, int]:
    """As many heads as the matrix has elements for."""
    tokens = min(data.side**2 // _HEAD_SIZE, _TOKENS)
    return 1, data.side**2 // (tokens * _HEAD_SIZE), tokens, _HEAD_SIZE


def _products(data: Data) -> Iterator[Case]:
    torch, nn, case = data.torch, data.functions, data.case
    a, b, x, y, u, v = data.a, data.b, data.x, data.y, data.u, data.v
    if data.exponent < _MIN_OF_FEW_COLUMNS:
        yield case("matmul", lambda: x @ y, lambda: u @ v, lambda: a @ b)
    else:
        few = np.ascontiguousarray(b[:, :_COLUMNS])
        columns, ucolumns = data.share(few)
        yield case(f"matmul by {_COLUMNS} columns", lambda: x @ columns, lambda: u @ ucolumns, lambda: a @ few)
    biases = data.normal(data.side)
    bias, ubias = data.share(biases)
    yield case(
        f"linear of {_ROWS} rows",
        lambda: x[:_ROWS].linear(y, bias),
        lambda: nn.linear(u[:_ROWS], v, ubias),
        lambda: a[:_ROWS] @ b.T + biases,
    )
    heads = _heads(data)
    q, k, uq, uk = x.reshape(heads), y.reshape(heads), torch and u.reshape(heads), torch and v.reshape(heads)
    value, uvalue = data.share(data.normal(*heads))
    yield case(
        "attention",
        lambda: q.scaled_dot_product_attention(k, value, causal=True),
        lambda: nn.scaled_dot_product_attention(uq, uk, uvalue, is_causal=True),
    )


def _images(data: Data) -> Iterator[Case]:
    if data.exponent < _MIN_OF_IMAGES:
        return
    torch, nn, case, side = data.torch, data.functions, data.case, data.side
    batch, channels, height, width = image = side // 64, 16, 64, side // 16
    length = height * width
    p, up = data.x.reshape(image), torch and data.u.reshape(image)
    s, us = data.x.reshape(batch, channels, length), torch and data.u.reshape(batch, channels, length)
    yield case("max_pool2d", lambda: p.max_pool2d(2), lambda: nn.max_pool2d(up, 2))
    yield case("avg_pool2d", lambda: p.avg_pool2d(2), lambda: nn.avg_pool2d(up, 2))
    yield case("upsample_nearest1d", lambda: s.upsample_nearest1d(2 * length), lambda: nn.interpolate(us, 2 * length))
    wide = 2 * height, 2 * width
    yield case("upsample_nearest2d", lambda: p.upsample_nearest2d(*wide), lambda: nn.interpolate(up, wide))
    yield case(
        "upsample_bilinear2d",
        lambda: p.upsample_bilinear2d(*wide, False),
        lambda: nn.interpolate(up, wide, mode="bilinear"),
    )
    line, uline = data.share(data.normal(channels, channels, 3) / 7)
    yield case("conv1d", lambda: s.conv1d(line, padding=1), lambda: nn.conv1d(us, uline, padding=1))
    kernel, ukernel = data.share(data.normal(channels, channels, 3, 3) / 12)
    yield case("conv2d", lambda: p.conv2d(kernel, padding=1), lambda: nn.conv2d(up, ukernel, padding=1))
    yield case(
        "conv_transpose2d",
        lambda: p.conv_transpose2d(kernel, padding=1, output_padding=1, stride=2),
        lambda: nn.conv_transpose2d(up, ukernel, padding=1, output_padding=1, stride=2),
    )


_FAMILIES = (
    _elementwise,
    _casts,
    _memory,
    _random,
    _reductions,
    _ordering,
    _indexing,
    _network,
    _products,
    _images,
)
