"""Calls of programs and networks, whose operands have shapes of their own, in tallow, PyTorch and NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tallow as tl
import torch
from torch import nn
from torch.nn import functional

from .cases import Call, Case

_TOLERANCE = 1e-4
_FEW, _MANY, _LARGE = (3,), (64,), (1 << 12,)


def calls() -> Iterator[Case]:
    """Each call in f32, or in the dtype of its name."""
    for family in (_joined, _rearranged, _reduced, _images, _recurrent, _small_algebra, _others):
        is_by_numpy = family is _small_algebra
        for name, ours, theirs in family():
            peers = (None, theirs) if is_by_numpy else (theirs, None)
            yield Case(name, ours, *peers, family=family.__name__.strip("_"), tolerance=_TOLERANCE)


def _normal(*shape: int) -> tuple[tl.Tensor, torch.Tensor]:
    array = np.random.default_rng(0).standard_normal(shape, np.float32)
    return tl.Tensor(array).copy(), torch.from_numpy(array)


def _joined() -> Iterator[tuple[str, Call, Call]]:
    for count in (2, 16, 32, 64, 300):
        for shape in (_FEW, _MANY, _LARGE):
            ours, theirs = zip(*[_normal(*shape) for _ in range(count)], strict=True)
            x, u = list(ours), list(theirs)
            yield f"cat of {count} x {shape[0]}", lambda x=x: tl.cat(x), lambda u=u: torch.cat(u)
            yield f"stack of {count} x {shape[0]}", lambda x=x: tl.stack(x), lambda u=u: torch.stack(u)
    x, u = map(list, zip(*[_normal(32, 8) for _ in range(16)], strict=True))
    yield "cat of 16 x (32, 8) along 1", lambda: tl.cat(x, 1), lambda: torch.cat(u, 1)
    yield "stack of 16 x (32, 8) along 2", lambda: tl.stack(x, 2), lambda: torch.stack(u, 2)


def _rearranged() -> Iterator[tuple[str, Call, Call]]:
    pairs, flat = [(1, 1), (2, 2)], (2, 2, 1, 1)
    for shape in ((16, 16), (64, 256), (8, 16, 32, 32), (32, 64, 56, 56)):
        x, u = _normal(*shape)
        name = "x".join(map(str, shape))
        yield f"roll {name}", lambda x=x: x.roll(3, -1), lambda u=u: u.roll(3, -1)
        yield f"roll 2 dims {name}", lambda x=x: x.roll((2, 3), (-2, -1)), lambda u=u: u.roll((2, 3), (-2, -1))
        yield f"flip {name}", lambda x=x: x.flip(-1), lambda u=u: u.flip(-1)
        yield f"flip rows {name}", lambda x=x: x.flip(0), lambda u=u: u.flip(0)
        yield f"flip 2 dims {name}", lambda x=x: x.flip(-2, -1), lambda u=u: u.flip(-2, -1)
        yield (
            f"pad_with_zeros {name}",
            lambda x=x: x.pad_with_zeros(-1, 1, 1),
            lambda u=u: functional.pad(u, (1, 1)),
        )
        yield f"pad {name}", lambda x=x: x.pad(pairs), lambda u=u: functional.pad(u, flat)
        if len(shape) == 4:
            for mode in ("reflect", "replicate", "circular"):
                yield (
                    f"pad {mode} {name}",
                    lambda x=x, mode=mode: x.pad(pairs, mode),
                    lambda u=u, mode=mode: functional.pad(u, flat, mode),
                )
    for count, classes in ((8, 10), (128, 10), (1024, 100)):
        labels = np.random.default_rng(0).integers(0, classes, count)
        i, ui = tl.Tensor(labels).copy(), torch.from_numpy(labels)
        yield (
            f"one_hot of {count} in {classes}",
            lambda i=i, classes=classes: i.one_hot(classes),
            lambda ui=ui, classes=classes: functional.one_hot(ui, classes),
        )


def _reduced() -> Iterator[tuple[str, Call, Call]]:
    for shape, dims in (
        ((32, 512, 7, 7), (0, 2, 3)),
        ((8, 64, 56, 56), (0, 2, 3)),
        ((8, 16, 8, 16), (1, 3)),
        ((8, 16, 8, 16), (0, 2)),
        ((64, 64, 64), (0, 2)),
        ((4, 32, 16, 32), (1, 2)),
    ):
        x, u = _normal(*shape)
        name = "x".join(map(str, shape))
        yield f"sum {name} over {dims}", lambda x=x, d=dims: x.sum(d), lambda u=u, d=dims: u.sum(d)
        yield f"max {name} over {dims}", lambda x=x, d=dims: x.max(d), lambda u=u, d=dims: u.amax(d)
    x, u = _normal(32, 512, 7, 7)
    yield "mean of 49", lambda: x.mean((2, 3)), lambda: u.mean((2, 3))
    rows, urows = _normal(100_000, 3)
    yield "sum of rows of 3", lambda: rows.sum(1), lambda: urows.sum(1)
    yield "argmin of rows of 3", lambda: rows.argmin(1), lambda: urows.argmin(1)
    few, ufew = _normal(64, 256)
    yield "argmin", lambda: few.argmin(1), lambda: ufew.argmin(1)
    yield "argmin of all", lambda: few.flatten().argmin(0), lambda: ufew.flatten().argmin(0)


def _images() -> Iterator[tuple[str, Call, Call]]:
    for batch in (1, 8):
        x, u = _normal(batch, 64, 56, 56)
        for name, weight, options in (
            ("1x1 with stride 2", (128, 64, 1, 1), {"stride": 2}),
            ("3x3", (64, 64, 3, 3), {"padding": 1}),
            ("depthwise 3x3", (64, 1, 3, 3), {"padding": 1, "groups": 64}),
            ("depthwise 5x5 with stride 2", (64, 1, 5, 5), {"padding": 2, "groups": 64, "stride": 2}),
            ("3x3 in 4 groups", (64, 16, 3, 3), {"padding": 1, "groups": 4}),
        ):
            w, v = _normal(*weight)
            yield (
                f"conv2d {name}, b{batch}",
                lambda x=x, w=w, o=options: x.conv2d(w, **o),
                lambda u=u, v=v, o=options: functional.conv2d(u, v, **o),
            )
        (ones, uones), (zeros, uzeros) = _normal(64), _normal(64)
        mean, umean = _normal(64)
        var, uvar = tl.ones((64,)), torch.ones(64)
        yield (
            f"batch_norm eval, b{batch}",
            lambda x=x, a=ones, b=zeros, m=mean, v=var: x.batch_norm(m, v, a, b),
            lambda u=u, a=uones, b=uzeros, m=umean, v=uvar: functional.batch_norm(u, m, v, a, b),
        )
        yield (
            f"batch_norm training, b{batch}",
            lambda x=x, a=ones, b=zeros: x.batch_norm(None, None, a, b, training=True),
            lambda u=u, a=uones, b=uzeros: functional.batch_norm(u, None, None, a, b, training=True),
        )
        p, up = tl.Var(x), u.clone().requires_grad_()
        yield (
            f"max_pool2d and backward, b{batch}",
            lambda p=p: p.max_pool2d(2).sum().backward()[p],
            lambda up=up: torch.autograd.grad(functional.max_pool2d(up, 2).sum(), up)[0],
        )
    for length in (1, 2, 4):
        (x, u), (w, v) = _normal(1, 64, length), _normal(64, 64, 3)
        yield (
            f"conv1d of length {length}",
            lambda x=x, w=w: x.conv1d(w, padding=1),
            lambda u=u, v=v: functional.conv1d(u, v, padding=1),
        )
    for rows in (1, 4, 8):
        (x, u), (w, v) = _normal(rows, 512), _normal(512, 512)
        yield (
            f"linear of {rows} rows",
            lambda x=x, w=w: x.linear(w),
            lambda u=u, v=v: functional.linear(u, v),
        )


def _recurrent() -> Iterator[tuple[str, Call, Call]]:
    layer = nn.LSTM(64, 128)
    x, u = _normal(20, 4, 64)
    weights = [tl.Tensor(each.detach().numpy()) for each in layer.parameters()]
    w, r, b, c = weights
    state, ustate = _normal(4, 128)
    yield (
        "LSTM by hand",
        lambda: _by_hand(tl, x, state, w, r, b + c),
        lambda: _by_hand(
            torch,
            u,
            ustate,
            *[each.detach() for each in list(layer.parameters())[:2]],
            sum(each.detach() for each in list(layer.parameters())[2:]),
        ),
    )


def _by_hand(library: Any, x: Any, state: Any, w: Any, r: Any, b: Any) -> Any:
    h = c = state
    w, r = w.t(), r.t()
    outputs = []
    for step in range(x.shape[0]):
        i, f, g, o = (x[step] @ w + h @ r + b).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return library.stack(outputs)


def _small_algebra() -> Iterator[tuple[str, Call, Call]]:
    generator = np.random.default_rng(0)
    for n in (4, 64):
        for dtype in (np.float32, np.float64):
            a = (generator.standard_normal((n, n)) / n + np.eye(n)).astype(dtype)
            s = (a @ a.T).astype(dtype)
            b = generator.standard_normal((n, 2)).astype(dtype)
            x, y, z = (tl.Tensor(each).copy() for each in (a, b, s))
            name = f"{n}x{n} {np.dtype(dtype).name}"
            yield f"solve {name}", lambda x=x, y=y: tl.linalg.solve(x, y), lambda a=a, b=b: np.linalg.solve(a, b)
            yield f"inv {name}", lambda x=x: tl.linalg.inv(x), lambda a=a: np.linalg.inv(a)
            yield f"det {name}", lambda x=x: tl.linalg.det(x), lambda a=a: np.linalg.det(a)
            yield f"cholesky {name}", lambda z=z: tl.linalg.cholesky(z), lambda s=s: np.linalg.cholesky(s)
            yield f"qr {name}", lambda x=x: abs(tl.linalg.qr(x)[1]), lambda a=a: abs(np.linalg.qr(a)[1])
            yield f"eigh {name}", lambda z=z: tl.linalg.eigh(z)[0], lambda s=s: np.linalg.eigh(s)[0]
            yield f"svd {name}", lambda x=x: tl.linalg.svd(x)[1], lambda a=a: np.linalg.svd(a)[1]
    for shape in ((64,), (16, 64), (64, 64), (256, 256)):
        a = generator.standard_normal(shape).astype(np.float32)
        x = tl.Tensor(a).copy()
        c = (a + 1j * a[..., ::-1]).astype(np.complex64)
        y = tl.Tensor(c).copy()
        name = "x".join(map(str, shape))
        yield f"rfft {name}", lambda x=x: tl.fft.rfft(x), lambda a=a: np.fft.rfft(a)
        yield f"fft {name}", lambda y=y: tl.fft.fft(y), lambda c=c: np.fft.fft(c)
        if len(shape) == 2:
            yield f"fft2 {name}", lambda y=y: tl.fft.fftn(y), lambda c=c: np.fft.fftn(c)


def _others() -> Iterator[tuple[str, Call, Call]]:
    for count in (16, 1024):
        x, u = _normal(count)
        yield f"pow(2) of {count}", lambda x=x: x.pow(2), lambda u=u: u.pow(2)
    x, u = _normal(8)
    yield (
        "Hessian",
        lambda: tl.hessian(lambda x: (x * x * x).sum())(x),
        lambda: torch.func.hessian(lambda x: (x * x * x).sum())(u),
    )
