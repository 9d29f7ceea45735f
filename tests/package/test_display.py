"""How tensors are printed; the expected texts of the pretty printer are those of Candle's tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tallow
from tallow import Device, DType, InvalidArgument, Tensor


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    tallow.set_print_options()
    yield
    tallow.set_print_options()


def text(tensor: Tensor) -> str:
    """The pretty form without the device."""
    return str(tensor).replace(f"{tensor.device.display}]", "]")


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        (1234, DType.U32, "[1234]\nTensor[[], u32]"),
        (-123.4, DType.F32, "[-123.4000]\nTensor[[], f32]"),
        (-1.234e-5, DType.F32, "[-1.2340e-5]\nTensor[[], f32]"),
        (-1.234e11, DType.F32, "[-1.2340e11]\nTensor[[], f32]"),
        (0.0, DType.F32, "[0.]\nTensor[[], f32]"),
        ([], DType.U32, "[]\nTensor[[0], u32]"),
        (
            [0.1234567, 1.0, -1.2, 4.1, float("nan")],
            DType.F64,
            "[ 0.1235,  1.0000, -1.2000,  4.1000,     NaN]\nTensor[[5], f64]",
        ),
        ([1.0, float("-inf"), float("inf")], DType.F32, "[  1., -inf,  inf]\nTensor[[3], f32]"),
        ([1e-7, float("nan"), -1.0], DType.F32, "[1.0000e-7,       NaN, -1.0000e0]\nTensor[[3], f32]"),
        ([[1.5, -2.0]], DType.BF16, "[[ 1.5000, -2.0000]]\nTensor[[1, 2], bf16]"),
        ([[1.5, -2.0]], DType.F8E4M3, "[[ 1.5000, -2.0000]]\nTensor[[1, 2], f8e4m3]"),
        (
            [[[1, 20], [3, 4]], [[5, 6], [7, -8]]],
            DType.I16,
            "[[[ 1, 20],\n  [ 3,  4]],\n [[ 5,  6],\n  [ 7, -8]]]\nTensor[[2, 2, 2], i16]",
        ),
    ],
)
def test_pretty(device: Device, data: object, dtype: DType, expected: str) -> None:
    assert text(Tensor(data, dtype, device)) == expected


def test_long_rows_are_wrapped(device: Device) -> None:
    row = "42., " * 15 + "42."
    assert text(Tensor.full(50, 42.0, device=device)) == (f"[{row},\n {row},\n {row},\n 42., 42.]\nTensor[[50], f32]")


def test_large_tensors_are_shown_by_their_edges(device: Device) -> None:
    row = "[42., 42., 42., ..., 42., 42., 42.]"
    assert text(Tensor.full(11000, 42.0, device=device)) == f"{row}\nTensor[[11000], f32]"
    tensor = Tensor.full((200, 100), 42.0, device=device)
    three = f"{row},\n {row},\n {row}"
    assert text(tensor) == f"[{three},\n ...\n {three}]\nTensor[[200, 100], f32]"
    three = f"{row},\n    {row},\n    {row}"
    block = f"[[[{three},\n    ...\n    {three}]]]"
    assert text(tensor.reshape(2, 1, 1, 100, 100)) == f"[{block},\n {block}]\nTensor[[2, 1, 1, 100, 100], f32]"


def test_only_what_is_shown_decides_the_format(device: Device) -> None:
    numbers = np.ones(2000, np.float32)
    numbers[1000] = 1.5e30
    assert text(Tensor(numbers, device=device)).startswith("[1., 1., 1., ..., 1., 1., 1.]")


def test_options(device: Device) -> None:
    tensor = Tensor([1.23456, 2.0, 3.0], device=device)
    tallow.set_print_options(precision=2, threshold=2, edge_items=1)
    assert text(tensor) == "[1.23, ..., 3.00]\nTensor[[3], f32]"
    tallow.set_print_options(sci_mode=True, line_width=20)
    assert text(tensor) == "[1.2346e0, 2.0000e0,\n 3.0000e0]\nTensor[[3], f32]"
    tallow.set_print_options(sci_mode=False)
    assert text(Tensor([1e-6, 1.0], device=device)) == "[0.0000, 1.0000]\nTensor[[2], f32]"
    with pytest.raises(InvalidArgument, match="edge_items is 1 or more"):
        tallow.set_print_options(edge_items=0)
    with pytest.raises(InvalidArgument, match="precision must be an integer"):
        tallow.set_print_options(precision=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        (3.5, DType.F32, "3.5; f32"),
        (1e20, DType.F64, "1e+20; f64"),
        ([1e15, 1.5e-7, 1e-4], DType.F64, "1000000000000000., 1.5e-7, 0.0001; f64"),
        (0.1, DType.F32, "0.1; f32"),
        (float("nan"), DType.F32, "NaN; f32"),
        ([1, 2, 255], DType.U8, "1, 2, 255; u8"),
        ([7, 2**64 - 1], DType.U64, "7, 18446744073709551615; u64"),
        ([[True], [False]], DType.BOOL, "[ True],\n       [False]; bool"),
        ([1.0, -0.5], DType.BF16, "1., -0.5; bf16"),
        ([0] * 9, DType.I64, "0, 0, 0, 0, 0, 0, 0, 0, 0; i64"),
        (range(40), DType.I64, "{}, 18, 19, 20,\n       {}, 37, 38,\n       39; i64"),
        ([[1.0, -2.5, 3.0]] * 2, DType.F16, "[  1., -2.5,   3.],\n       [  1., -2.5,   3.]; f16"),
        ([[[1], [20]], [[3], [4]]], DType.U8, "[[ 1],\n        [20]],\n       [[ 3],\n        [ 4]]; u8"),
        ([], DType.F32, "dims 0; f32"),
        ([[], []], DType.F32, "dims 2, 0; f32"),
    ],
)
def test_debug(device: Device, data: object, dtype: DType, expected: str) -> None:
    expected = expected.format(", ".join(map(str, range(18))), ", ".join(map(str, range(21, 37))))
    assert repr(Tensor(data, dtype, device)) == f"Tensor[{expected}{device.display}]"


def test_debug_shows_large_tensors_by_their_edges_and_dims(device: Device) -> None:
    facts = f"i64{device.display}]"
    vector = Tensor.arange(1001, device=device)
    assert repr(vector) == f"Tensor[0, 1, 2, ..., 998, 999, 1000; dims 1001; {facts}"
    assert "..." not in repr(vector[:1000])
    assert repr(vector[:1000].reshape(500, 2).broadcast_as(2, 500, 2)) == (
        "Tensor[[[  0,   1],\n        [  2,   3],\n        [  4,   5],\n        ...\n"
        "        [994, 995],\n        [996, 997],\n        [998, 999]],\n"
        "       [[  0,   1],\n        [  2,   3],\n        [  4,   5],\n        ...\n"
        f"        [994, 995],\n        [996, 997],\n        [998, 999]]; dims 2, 500, 2; {facts}"
    )
    tallow.set_print_options(threshold=3, edge_items=1)
    assert repr(vector[:4]) == f"Tensor[0, ..., 3; dims 4; {facts}"


def test_a_notebook_shows_what_str_does(device: Device) -> None:
    tensor = Tensor([[1.0, 2.5]], device=device)
    assert tensor._repr_html_() == f"<pre>{tensor}</pre>"


def test_a_format_is_one_of_the_only_element(device: Device) -> None:
    loss = Tensor(0.12345, device=device)
    assert f"{loss:.2f} {loss:8.1e}|{Tensor([[7]], device=device):>3d}" == "0.12  1.2e-01|  7"
    assert f"{loss}" == str(loss)
    with pytest.raises(InvalidArgument, match=r"^format: .*shape \(2,\) does not have one element"):
        f"{Tensor([1.0, 2.0], device=device):.2f}"
    with pytest.raises(InvalidArgument, match=r"^format: .*'d' .*float"):
        f"{loss:d}"
