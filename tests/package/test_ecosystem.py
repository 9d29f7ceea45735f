"""SciPy, scikit-learn and einops compute on tensors what they compute on NumPy's arrays, on the tensors' device."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from tallow import Device, Tensor

from .ecosystem import AREAS, BEYOND_THE_STANDARD, FEW, cases

PAGE = Path(__file__).parents[2] / "docs/ecosystem.md"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "area" in metafunc.fixturenames:
        options = metafunc.config.option
        metafunc.parametrize(("area", "name"), cases(few=options.device != "cpu" and not options.full))


@pytest.fixture(autouse=True)
def dispatch() -> Iterator[None]:
    with warnings.catch_warnings(), config_context(array_api_dispatch=True):
        warnings.simplefilter("ignore")
        yield


def parts(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [part for item in result for part in parts(item)]
    return [result]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, device: Device) -> list[Tensor]:
    """The tensors of the device that have more than one element and went to the host."""
    results: list[Tensor] = []

    def watched(method: Any) -> Any:
        def call(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            if tensor.size > 1 and tensor.device == device:
                results.append(tensor)
            return method(tensor, *arguments, **options)

        return call

    for name in ("__array__", "__dlpack__", "numpy", "tolist"):
        monkeypatch.setattr(Tensor, name, watched(getattr(Tensor, name)))
    return results


def test_results_are_those_of_numpy(device: Device, copied: list[Tensor], area: str, name: str) -> None:
    call = AREAS[area][name]
    expected = parts(call(np.array))
    actual = parts(call(lambda array: Tensor.from_numpy(array, device=device)))
    if copied:
        assert plain(name) in columns()[area][1], "the page says that it stays on the device"
    assert any(isinstance(part, Tensor) for part in actual) or not any(
        isinstance(part, np.ndarray) for part in expected
    )
    for own, part in zip(actual, expected, strict=True):
        if isinstance(own, Tensor):
            assert own.device == device
            own = own.numpy()
        # Some functions of SciPy compute in the default dtype of the namespace, which is f32.
        tolerance = 1e-4 if np.asarray(own).dtype == np.float32 else 1e-6
        np.testing.assert_allclose(own, part, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", BEYOND_THE_STANDARD)
def test_what_goes_beyond_the_standard_still_does(name: str) -> None:
    call, message = BEYOND_THE_STANDARD[name]
    with pytest.raises((TypeError, ValueError, RuntimeError), match=re.escape(message)):
        call(Tensor.from_numpy)


def test_the_page_names_what_is_tested() -> None:
    result = columns()
    for area, named in AREAS.items():
        on_device, through_host = result[area]
        assert not on_device & through_host
        assert on_device | through_host == set(map(plain, named)), area
    assert set(result) - set(AREAS) == set(BEYOND_THE_STANDARD)
    assert set(FEW) <= {name for named in AREAS.values() for name in named}


def test_the_example_of_the_page(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    exec(code[1].replace('"rocm"', repr(f"{device.backend}")), {})
    assert capsys.readouterr().out == f"(1000, 4) {device}\n"


@cache
def columns() -> dict[str, list[set[str]]]:
    """What the columns of the tables have behind the first one, by that."""
    rows = [row.split("|")[1:] for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    return {
        first.strip(" `"): [set(re.findall(r"`(\w+)`", cell)) for cell in remaining[:2]] for first, *remaining in rows
    }


def plain(name: str) -> str:
    """The name of a call without what is particular to it."""
    return re.split(r"[ (]", name)[0]
