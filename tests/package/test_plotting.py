"""matplotlib and pandas take tensors: as data, errors, weights, colours, edges and limits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Device, Tensor

X = np.linspace(0, 1, 12, dtype=np.float32)
Y = np.sin(6 * X)
PLANE = np.outer(X, Y)

PLOTS: dict[str, Callable[[Any, Any, Any, Any], object]] = {
    "plot": lambda axes, x, y, z: axes.plot(x, y),
    "plot of rows": lambda axes, x, y, z: axes.plot(z),
    "plot of bf16": lambda axes, x, y, z: axes.plot(x, y.to_dtype("bf16")),
    "plot of a variable": lambda axes, x, y, z: axes.plot(x, tl.Var(y)),
    "plot of a mask": lambda axes, x, y, z: axes.plot(x, y > 0),
    "plot beside an array": lambda axes, x, y, z: axes.plot(X, y),
    "step": lambda axes, x, y, z: axes.step(x, y),
    "semilogy": lambda axes, x, y, z: axes.semilogy(x, y.abs() + 1),
    "scatter": lambda axes, x, y, z: axes.scatter(x, y, c=y, s=y.abs() * 20),
    "stem": lambda axes, x, y, z: axes.stem(x, y),
    "contour": lambda axes, x, y, z: axes.contour(z),
    "contourf": lambda axes, x, y, z: axes.contourf(x, x, z),
    "pcolormesh": lambda axes, x, y, z: axes.pcolormesh(z),
    "quiver": lambda axes, x, y, z: axes.quiver(x, y, y, x),
    "hist": lambda axes, x, y, z: axes.hist(y),
    "hist of rows": lambda axes, x, y, z: axes.hist(z),
    "hist by weights and edges": lambda axes, x, y, z: axes.hist(x, bins=x, weights=y.abs()),
    "hist2d": lambda axes, x, y, z: axes.hist2d(x, y, bins=5),
    "imshow": lambda axes, x, y, z: axes.imshow(z),
    "bar": lambda axes, x, y, z: axes.bar(x, y),
    "barh": lambda axes, x, y, z: axes.barh(x, y),
    "fill_between": lambda axes, x, y, z: axes.fill_between(x, y, y + 1, where=y > 0),
    "errorbar": lambda axes, x, y, z: axes.errorbar(x, y, yerr=y.abs(), xerr=0.1),
    "boxplot": lambda axes, x, y, z: axes.boxplot(z),
    "lines": lambda axes, x, y, z: (axes.axhline(y.mean()), axes.vlines(x, 0, y)),
    "text": lambda axes, x, y, z: axes.text(x[0], y[0], "here"),
    "limits": lambda axes, x, y, z: (axes.set_xlim(x.min(), x.max()), axes.set_xticks(x)),
}


@pytest.fixture
def axes() -> Iterator[Any]:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is in the extra docs alone")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield axes
    pyplot.close(figure)


@pytest.mark.parametrize("name", PLOTS)
def test_plots(device: Device, axes: Any, name: str) -> None:
    PLOTS[name](axes, *(Tensor.from_numpy(array, device) for array in (X, Y, PLANE)))
    axes.figure.canvas.draw()


def test_tables(device: Device) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is in no extra")
    x, y = (Tensor.from_numpy(array, device) for array in (X, Y))
    np.testing.assert_array_equal(pandas.Series(y).to_numpy(), Y)
    table = pandas.DataFrame({"x": x, "y": y})
    table["z"] = x
    np.testing.assert_array_equal(table.to_numpy(), np.stack([X, Y, X], 1))


def test_no_private_name_is_one_that_arrays_have() -> None:
    """What looks at arrays takes a tensor that has their private attributes, such as _mask, for one of them."""
    private = {name for kind in (np.ndarray, np.ma.MaskedArray) for name in dir(kind) if name[0] == "_" != name[1]}
    assert len(private) > 5
    assert [name for name in private if hasattr(tl.ones(1), name)] == []
