"""How tensors are printed: `repr` is Python that makes the tensor again, but for digits that are left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tallow
from tallow import Device, DType, InvalidArgument, Tensor, Var

from .arrays import numbers


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    tallow.set_print_options()
    yield
    tallow.set_print_options()


def text(tensor: Tensor) -> str:
    """The text of a tensor without its device."""
    return repr(tensor).replace(f"{tensor.device.display})", ")")


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        (6.0, "f32", "6."),
        (-123.4, "f32", "-123.4"),
        (0.69314718, "f32", "0.6931"),
        (-1.234e-5, "f32", "-1.234e-5"),
        (-1.23456e11, "f32", "-1.2346e11"),
        (-0.0, "f32", "-0."),
        (float("nan"), "bf16", "nan"),
        (2 - 1.5j, "complex64", "2.-1.5j"),
        (True, "bool", "True"),
        ([], "u32", "[]"),
        ([6.0], "f32", "[6.]"),
        ([0.5, 0.25, 3.0], "f32", "[0.50, 0.25, 3.00]"),
        ([1.0, 2000.0], "f32", "[1., 2000.]"),
        ([0.1234567, 1.0, -1.2, float("nan")], "f64", "[0.1235, 1.0000, -1.2000, nan]"),
        ([1.0, float("-inf"), float("inf")], "f32", "[1., -inf, inf]"),
        ([1e-7, float("nan"), -1.5], "f32", "[1.0e-7, nan, -1.5e0]"),
        ([1.5, 448.0], "f8e4m3", "[1.5, 448.0]"),
        ([7, 2**64 - 1], "u64", "[7, 18446744073709551615]"),
        ([[True], [False]], "bool", "[[ True],\n        [False]]"),
        ([[1.0, -2.5, 3.0]] * 2, "f16", "[[ 1.0, -2.5,  3.0],\n        [ 1.0, -2.5,  3.0]]"),
        ([1 + 2j, 3.5 - 1j], "complex128", "[1.0+2.j, 3.5-1.j]"),
        ([[[1], [20]], [[3], [4]]], "u8", "[[[ 1],\n         [20]],\n        [[ 3],\n         [ 4]]]"),
    ],
)
def test_elements(device: Device, data: object, dtype: str, expected: str) -> None:
    assert text(Tensor(data, dtype, device)) == f"Tensor({expected}, dtype={dtype})"


def made_of(tensor: Tensor) -> tuple[Any, dict[str, Any]]:
    """The elements and the facts of the text of a tensor, as Python reads it."""
    names = {dtype.value: dtype for dtype in DType} | {"nan": float("nan"), "inf": float("inf")}
    shown = text(tensor).replace(f"{tensor.device.display})", ")")
    result: tuple[Any, dict[str, Any]] = eval(
        shown,
        {"__builtins__": {}, "True": True, "False": False, **names},
        {"Tensor": lambda data, **facts: (data, facts)},
    )
    return result


@pytest.mark.parametrize("dtype", list(DType))
def test_the_text_says_shape_dtype_and_elements(device: Device, dtype: DType) -> None:
    for shape in ((), (1,), (1, 1), (0,), (2, 0), (0, 3), (40,), (2, 3, 2), (3, 1, 2, 1)):
        array = numbers(shape, dtype)
        tensor = Tensor.from_numpy(array, device)
        data, facts = made_of(tensor)
        assert facts.pop("dtype") is dtype
        if 0 in shape[1:] or shape == (0, 3):
            assert facts == {"shape": shape}
        else:
            assert (np.shape(data), facts) == (shape, {})
            assert Tensor(data, dtype, device).equal(tensor)


def test_rows_are_wrapped_within_the_width_of_a_line() -> None:
    for tensor, width in itertools.product((Tensor.full(50, 42.0), Tensor.arange(200).reshape(2, 100)), (30, 80)):
        tallow.set_print_options(line_width=width)
        assert max(map(len, text(tensor).splitlines())) <= width
    row = "42., " * 13 + "42."
    tallow.set_print_options()
    assert text(Tensor.full(30, 42.0)) == f"Tensor([{row},\n        {row},\n        42., 42.], dtype=f32)"


def test_large_tensors_are_shown_by_their_edges_and_shape() -> None:
    vector = Tensor.arange(1001)
    assert text(vector) == "Tensor([0, 1, 2, ..., 998, 999, 1000], shape=(1001,), dtype=i64)"
    assert "..." not in text(vector[:1000])
    row = "[42., 42., 42., ..., 42., 42., 42.]"
    three = f"{row},\n        {row},\n        {row}"
    tensor = Tensor.full((200, 100), 42.0)
    assert text(tensor) == f"Tensor([{three},\n        ...\n        {three}], shape=(200, 100), dtype=f32)"
    assert text(vector[:1000].reshape(500, 2).broadcast_as(2, 500, 2)) == (
        "Tensor([[[  0,   1],\n         [  2,   3],\n         [  4,   5],\n         ...\n"
        "         [994, 995],\n         [996, 997],\n         [998, 999]],\n"
        "        [[  0,   1],\n         [  2,   3],\n         [  4,   5],\n         ...\n"
        "         [994, 995],\n         [996, 997],\n         [998, 999]]], shape=(2, 500, 2), dtype=i64)"
    )
    # Only elements that are shown decide the format.
    numbers = np.ones(2000, np.float32)
    numbers[1000] = 1.5e30
    assert text(Tensor(numbers)).startswith("Tensor([1., 1., 1., ..., 1., 1., 1.]")


def test_options_apply_to_repr_and_to_print() -> None:
    tensor = Tensor([1.23456, 2.0, 3.0])
    tallow.set_print_options(precision=2, threshold=2, edge_items=1)
    assert text(tensor) == "Tensor([1.23, ..., 3.00], shape=(3,), dtype=f32)"
    tallow.set_print_options(sci_mode=True, line_width=30)
    assert text(tensor) == "Tensor([1.2346e0, 2.0000e0,\n        3.0000e0], dtype=f32)"
    tallow.set_print_options(sci_mode=False)
    assert text(Tensor([1e-6, 1.0])) == "Tensor([0., 1.], dtype=f32)"
    tallow.set_print_options(precision=8)
    assert text(Tensor(1 / 3)) == "Tensor(0.33333334, dtype=f32)"
    assert str(tensor) == repr(tensor) == f"{tensor}"
    with pytest.raises(InvalidArgument, match="edge_items is 1 or more"):
        tallow.set_print_options(edge_items=0)
    with pytest.raises(InvalidArgument, match="precision must be an integer"):
        tallow.set_print_options(precision=1.5)  # type: ignore[arg-type]


def test_a_variable_and_what_depends_on_it_say_so(device: Device) -> None:
    w = Var(Tensor([1.0, 2.5], device=device))
    assert text(w) == "Var([1.0, 2.5], dtype=f32)"
    assert text((w * 2).sum()) == "Tensor(7., dtype=f32, is_recorded=True)"
    assert text((w * 2).sum().detach()) == "Tensor(7., dtype=f32)"
    assert "\n" not in str((w * 2).sum())


def test_the_device_is_shown_unless_it_is_the_cpu(device: Device) -> None:
    shown = repr(Tensor(1.0, device=device))
    assert shown.endswith("dtype=f32)" if device.backend == "cpu" else f", device={device.label})")


def test_a_notebook_shows_what_repr_does_in_columns(device: Device) -> None:
    tensor = Tensor([[1.0, 2.5]], device=device)
    html = tensor._repr_html_()
    assert html.startswith("<pre ")
    assert "font-family: monospace" in html
    assert f">{tensor}</pre>" in html


def test_a_format_is_one_of_the_only_element(device: Device) -> None:
    loss = Tensor(0.12345, device=device)
    assert f"{loss:.2f} {loss:8.1e}|{Tensor([[7]], device=device):>3d}" == "0.12  1.2e-01|  7"
    assert f"{Var(loss) * 2:.4f}" == "0.2469"
    assert f"{loss}" == repr(loss)
    with pytest.raises(InvalidArgument, match=r"^format: .*shape \(2,\) does not have one element"):
        f"{Tensor([1.0, 2.0], device=device):.2f}"
    with pytest.raises(InvalidArgument, match=r"^format: .*'d' .*float"):
        f"{loss:d}"
