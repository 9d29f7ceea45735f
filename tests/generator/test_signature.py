"""Signatures and calls of checks: what is parsed prints as it was written, and nothing is lost without a word."""

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opgen.signature import Call, Parameter, Signature

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
TYPES = st.sampled_from(
    [
        "Layout",
        "Storage",
        "int",
        "float",
        "bool",
        "float | None",
        "tuple[int, ...]",
        "tuple[int, int]",
        "Sequence[float]",
    ]
)
SIGNATURES = st.builds(
    Signature,
    NAMES,
    st.lists(st.builds(Parameter, NAMES, TYPES), max_size=8, unique_by=lambda parameter: parameter.name).map(tuple),
    st.sampled_from(["None", "Storage", "tuple[Storage, Shape]", "int"]),
)


@given(SIGNATURES)
def test_a_signature_survives_printing_and_parsing(signature: Signature) -> None:
    assert Signature.parse(str(signature)) == signature
    assert signature.arguments == tuple(parameter.name for parameter in signature.parameters)


@pytest.mark.parametrize(
    "text",
    [
        "affine(x: int=1) -> None",
        "affine(*, x: int) -> None",
        "affine(*x: int) -> None",
        "affine(x: int, /) -> None",
        "affine(**x: int) -> None",
        "affine(x:int) -> None",
        "affine(x: int)->None",
        "affine(x: int) -> None  # a comment",
        "affine(x: 'Layout') -> None ",
        "affine(x) -> None",
        "affine(x: int)",
        "affine",
        "affine(x: int -> None",
        "",
        "affine() -> None: pass\ndef other() -> None",
        "class(x: int) -> None",
    ],
)
def test_what_would_be_lost_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"signature|lacks its type"):
        Signature.parse(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("dim_in_range(layout, dim)", ("layout", "dim")),
        ("upsample_sizes(layout, 3, (size,))", ("layout", "size")),
        ("anything()", ()),
    ],
)
def test_a_call_knows_what_it_reads(text: str, names: tuple[str, ...]) -> None:
    assert Call.parse(text).names == names


@pytest.mark.parametrize("text", ["layout", "a.b(c)", "f(x=1)", "f(", "f(x); g(y)", ""])
def test_what_is_no_plain_call_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a call"):
        Call.parse(text)
