"""Every float of 8 or 16 bits that a spec may describe: its numbers and its rounding in C++, NumPy and libraries."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conformance.oracle import formats as oracle
from tallow import DType
from tallow.cpu_backend import library
from tallow.runtime.backends.array_backend.ops import cast
from tallow.runtime.base.float_format import FloatFormat

from .conftest import HEADERS, KERNELS, REPOSITORY, absent

SPECIALS = {"": "ieee", "fn": "fn", "fnuz": "fnuz"}


def all_formats() -> Iterator[FloatFormat]:
    """Those whose normal numbers f32 has."""
    for bits in (8, 16):
        for exponent in range(2, min(bits - 1, 9)):
            for specials in SPECIALS:
                bias = 2 ** (exponent - 1) - (specials != "fnuz")
                each = FloatFormat(exponent, bits - 1 - exponent, bias, specials)
                if bias <= 127 and each.max <= float(np.finfo(np.float32).max):
                    yield each


FORMATS = {f"e{it.exponent}m{it.fraction}{it.specials}": it for it in all_formats()}
TRAITS = "template <> struct tallow::Traits<{name}> : FloatTraits<float> {{}};"
SOURCE = """
using {name} = SmallFloat<{it.exponent}, {it.fraction}, {it.bias}, Specials::{specials}>;
{traits}
extern "C" void values_{name}(uint64_t count, float* values) {{
    for (uint64_t i = 0; i < count; ++i)
        values[i] = to_float({name}{{static_cast<{name}::Bits>(i)}});
}}
extern "C" void codes_{name}(uint64_t count, {name}* codes, const float* floats, const double* doubles) {{
    for (uint64_t i = 0; i < count; ++i)
        codes[i] = floats ? convert<{name}>(floats[i]) : convert<{name}>(doubles[i]);
}}
extern "C" void pairs_{name}(uint64_t count, uint32_t* pairs, const float* floats) {{
    if constexpr (sizeof({name}) == 2)
        for (uint64_t i = 0; i < count; ++i)
            pairs[i] = round_pair<{name}>(floats[2 * i], floats[2 * i + 1]);
}}
"""


@dataclass(frozen=True)
class Float:
    """A dtype of a format."""

    format: FloatFormat


@pytest.fixture(scope="module", params=["vectors", "hip"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The conversions of all formats, as kernels of spans have them and as those of the HIP runtime for the CPU do."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("no g++")
    folder = tmp_path_factory.mktemp("small_floats")
    own = {dtype.format for dtype in DType if dtype.is_float}
    texts = [
        SOURCE.format(
            name=name, it=it, specials=SPECIALS[it.specials], traits=TRAITS.format(name=name) * (it not in own)
        )
        for name, it in FORMATS.items()
    ]
    (folder / "floats.cpp").write_text(
        '#include "types.hpp"\nusing namespace tallow;\n' + "".join(texts), encoding="utf-8"
    )
    flags = (
        ["-DTALLOW_VECTOR"]
        if request.param == "vectors"
        else [f"-I{REPOSITORY / 'tests/hip_host/include'}", "-DTALLOW_TARGET_gfx1100"]
    )
    headers = [f"-I{HEADERS}", f"-I{KERNELS}"]
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", *flags, *headers, "floats.cpp", "-o", "floats.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "floats.so"))


def numbers_of(values: np.ndarray) -> np.ndarray:
    """Numbers between all finite values, their neighbours, and numbers of every exponent, as f32."""
    finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
    between = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)[:: max(len(finite) // 2000, 1)]
    with np.errstate(over="ignore"):
        beyond = np.float32([finite[-1], finite[-1] * 1.001, finite[-1] * 1.5, np.inf, np.nan, 0, 1e-45, 1e-38, 3e38])
    every = np.random.default_rng(5).integers(0, 2**32, 2000, np.uint64).astype(np.uint32).view(np.float32)
    near = [np.nextafter(between, np.float32(side), dtype=np.float32) for side in (np.inf, -np.inf)]
    return np.concatenate([values, between, *near, beyond, -beyond, every])


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a format that the oracle knows."""
    result: str = request.param
    it = FORMATS[result]
    known = oracle.FloatFormat(np.dtype(f"u{it.bits // 8}"), it.exponent, it.fraction, it.specials)
    monkeypatch.setitem(oracle.FLOATS, result, known)
    oracle._units.cache_clear()
    return result


def values_of(name: str) -> np.ndarray:
    codes = np.arange(2 ** FORMATS[name].bits).astype(oracle.FLOATS[name].raw)
    return oracle.decode_bits(name, codes)


def check_codes(name: str, actual: np.ndarray, numbers: np.ndarray) -> None:
    """Compare codes with those of the oracle; any NaN is as good as any other."""
    with np.errstate(all="ignore"):
        expected = oracle.encode_bits(name, numbers.astype(oracle.EXTENDED))
    values = values_of(name)
    is_nan = np.isnan(values[actual]) & np.isnan(values[expected])
    wrong = (actual != expected) & ~is_nan
    assert not wrong.any(), (name, numbers[wrong][:4], actual[wrong][:4], expected[wrong][:4])


def test_kernels_have_the_numbers_and_round_once(compiled: ctypes.CDLL, name: str) -> None:
    it, unsigned = FORMATS[name], oracle.FLOATS[name].raw
    values = np.empty(2**it.bits, np.float32)
    pointer = ctypes.c_void_p
    compiled[f"values_{name}"](ctypes.c_uint64(len(values)), pointer(values.ctypes.data))
    expected = values_of(name)
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(np.signbit(values), np.signbit(expected))
    numbers = numbers_of(values)
    with np.errstate(invalid="ignore"):
        wide = np.concatenate([numbers.astype(np.float64) * (1 + side * 2.0**-40) for side in (-1, 0, 1)])
    for inputs in (numbers, wide):
        codes = np.empty(len(inputs), unsigned)
        pointers = [inputs.ctypes.data if inputs.dtype == dtype else None for dtype in (np.float32, np.float64)]
        compiled[f"codes_{name}"](ctypes.c_uint64(len(inputs)), pointer(codes.ctypes.data), *map(pointer, pointers))
        check_codes(name, codes, inputs)
    if it.bits == 16:
        pairs = np.empty(len(numbers) // 2 * 2, np.uint16)
        compiled[f"pairs_{name}"](
            ctypes.c_uint64(len(pairs) // 2), pointer(pairs.ctypes.data), pointer(numbers.ctypes.data)
        )
        check_codes(name, pairs, numbers[: len(pairs)])


def test_numpy_and_array_libraries_do_too(name: str) -> None:
    it = FORMATS[name]
    expected = values_of(name)
    assert np.array_equal(it.values(), expected, equal_nan=True)
    assert (it.max, it.smallest_normal) == (oracle.FLOATS[name].largest, oracle.FLOATS[name].smallest_normal)
    numbers = numbers_of(it.values())
    check_codes(name, it.codes(numbers), numbers)
    own = np.dtype("u1") if it.bits == 8 else np.dtype("i2")
    words = SimpleNamespace(**{word: getattr(library, word) for word in dir(library) if not word.startswith("_")})
    dtype: Any = Float(it)
    words.DTYPES = {**library.DTYPES, dtype: own}
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        codes = cast._codes(words, numbers, dtype)
    check_codes(name, codes.view(oracle.FLOATS[name].raw), numbers)


@pytest.mark.parametrize("name", [name for name in FORMATS if hasattr(ml_dtypes, f"float8_{name}")])
def test_ml_dtypes_agrees(name: str) -> None:
    dtype = getattr(ml_dtypes, f"float8_{name}")
    with np.errstate(all="ignore"):
        values = np.arange(256).astype(np.uint8).view(dtype).astype(np.float32)
        assert np.array_equal(FORMATS[name].values(), values, equal_nan=True)
        numbers = numbers_of(values)
        most = FORMATS[name].max if FORMATS[name].specials else np.inf
        expected = np.clip(numbers, -most, most).astype(dtype).astype(np.float32)
    assert np.array_equal(FORMATS[name].values()[FORMATS[name].codes(numbers)], expected, equal_nan=True)
