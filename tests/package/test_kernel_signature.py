"""The signatures of users' kernels: what C writes in several ways means one type, and what it does not know is told."""

from __future__ import annotations

import pytest
from tallow import DType, InvalidArgument
from tallow.runtime.custom.kernel_signature import Parameter, parameters

U8, U32, I16, I32, I64 = DType.U8, DType.U32, DType.I16, DType.I32, DType.I64


def one(text: str) -> Parameter:
    (parameter,) = parameters("compile", text)
    return parameter


@pytest.mark.parametrize(
    ("texts", "code", "dtype"),
    [
        ("float; f32; float32; const float a", "f", DType.F32),
        ("double; f64; float64", "d", DType.F64),
        ("f16; float16; half; __half x; tallow::f16", "e", DType.F16),
        ("bf16; bfloat16; __nv_bfloat16; __hip_bfloat16; hip_bfloat16; const tallow::bf16 x", "H", DType.BF16),
        ("f8e4m3; float8_e4m3fn; __nv_fp8_e4m3", "B", DType.F8E4M3),
        ("f8e5m2; float8_e5m2; __nv_fp8_e5m2", "B", DType.F8E5M2),
        ("int; signed; signed int; int signed n; i32; int32; int32_t; const int n; int const", "i", I32),
        ("unsigned; unsigned int; unsigned n; unsigned int n; u32; uint32; uint32_t; std::uint32_t n", "I", U32),
        ("short; short int; signed short int; i16; int16; int16_t", "h", I16),
        ("unsigned short; short unsigned int; uint16_t; uint16", "H", DType.U16),
        ("long long; long long int; signed long long; i64; int64; int64_t n; ptrdiff_t", "q", I64),
        ("unsigned long long; long long unsigned int n; uint64_t; uint64; size_t n", "Q", DType.U64),
        ("unsigned char; uint8_t; uint8; u8", "B", U8),
        ("char; signed char; int8_t; int8; i8", "b", DType.I8),
        ("bool; bool flag; _Bool", "?", DType.BOOL),
    ],
)
def test_types_by_all_their_names(texts: str, code: str, dtype: DType | None) -> None:
    for text in texts.split(";"):
        parameter = one(text)
        assert (parameter.code, parameter.is_pointer) == (code, False), text
        assert parameter.type is not None
        assert parameter.type.dtype is dtype, text


def test_long_is_as_wide_as_here() -> None:
    for text in ("long", "long int", "signed long"):
        assert one(text).code == one("int64_t" if one("long").size == 8 else "int").code
    assert one("unsigned long").size == one("long").size


@pytest.mark.parametrize(
    "text", ["float*", "float *y", "float* __restrict__ y", "const float*const y", "float const * restrict", "f32*y"]
)
def test_pointers(text: str) -> None:
    parameter = one(text)
    assert parameter.is_pointer
    assert parameter.text == text
    assert [dtype for dtype in DType if parameter.points_to(dtype)] == [DType.F32]


@pytest.mark.parametrize(
    ("text", "takes", "dtypes"),
    [
        ("void*", "elements of any dtype", list(DType)),
        ("const void* p", "elements of any dtype", list(DType)),
        ("unsigned short*", "u16", [DType.U16]),
        ("bool*", "bool", [DType.BOOL]),
        ("uint64_t*", "u64", [DType.U64]),
        ("bf16*", "bf16", [DType.BF16]),
    ],
)
def test_what_a_pointer_takes(text: str, takes: str, dtypes: list[DType]) -> None:
    parameter = one(text)
    assert parameter.takes == takes
    assert [dtype for dtype in DType if parameter.points_to(dtype)] == dtypes


def test_lists() -> None:
    actual = parameters("compile", " float* y, const float*,float a ,unsigned n ")
    assert [parameter.text for parameter in actual] == ["float* y", "const float*", "float a", "unsigned n"]
    assert [parameter.size for parameter in actual] == [8, 8, 4, 4]
    assert parameters("compile", "") == parameters("compile", " void ") == ()


@pytest.mark.parametrize(
    "text",
    [
        *("Point p", "float**", "float y[]", "float&", "flaot*", "void x", "int, void", "float,", "int a b"),
        *("float* a b", "*", "..."),
    ],
)
def test_what_is_no_parameter_is_told(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^compile: signature: .* is no parameter that tallow knows; write"):
        parameters("compile", text)
