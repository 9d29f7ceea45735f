"""One promotion rule for every public function of several tensors: what the dtypes of two operands give together.

The calls are those of the signatures, with the arguments that fit of `hostile`; whatever f32 tensors these have are the
operands. Indexes, masks and conditions are no operands.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tallow
from tallow import DType, DTypeMismatch, InvalidArgument, Tensor, UnsupportedDType

from . import hostile, matrix
from .oracle.formats import NUMPY

SENTENCE = re.compile(r"\S+: operands of \w+( and \w+)+ do not go together; convert them with to_dtype first")
ORDER = {kind: place for place, kind in enumerate(("bool", "unsigned", "signed", "float", "complex"))}
# What writes in place: computed in the common dtype, or set to what is converted, as tangents are to that of primals.
COMPUTED_IN_PLACE = r"Tensor\.(__i\w+__|(add|sub|mul|div|floor_divide|remainder|scatter_add)_)"
SET_IN_PLACE = r"Tensor\.(copy_|slice_set|index_copy_|scatter_|__setitem__)|jvp"
# These take any two dtypes: comparisons of integers are by value, and truth values are made of every number.
OF_ANY = (
    r"(Tensor|xp)\.(eq|ne|lt|le|gt|ge|equal|not_equal|less|less_equal|greater|greater_equal|__(eq|ne|lt|le|gt|ge)__)"
)
TRUTH = r"(Tensor|xp)\.(logical_\w+|allclose)"
# These have rules of their own: weights of norms, tables in f32, gradients, what users' ops do, and the linear algebra
# of a matrix and a power.
OWN_RULES = (
    r"Tensor\.(\w+_norm|rope|backward|\w*apply_op\d|inplace_op\d)|(save|write)_\w+|Q?Storage.*|Gradients.*|Var|"
    r"xp\.linalg\.matrix_rank"
)


def common(first: DType, second: DType) -> DType | None:
    """The table, of NumPy's own within a kind and of what semantics say between kinds."""
    if first is second or second.kind == "bool":
        return first
    if first.kind == "bool":
        return second
    kinds = {first.kind, second.kind}
    if kinds <= {"unsigned", "signed"}:
        actual = np.promote_types(first.numpy, second.numpy)
        return DType.from_numpy(actual) if actual.kind in "iu" else None
    if "complex" in kinds:
        if not kinds <= {"float", "complex"}:
            return None
        return DType.COMPLEX128 if {first, second} & {DType.F64, DType.COMPLEX128} else DType.COMPLEX64
    if kinds != {"float"}:
        return first if first.kind == "float" else second
    limits = [ml_dtypes.finfo(dtype.numpy) for dtype in (first, second)]
    for dtype, own, other in zip((first, second), limits, limits[::-1], strict=True):
        if own.nmant >= other.nmant and own.maxexp >= other.maxexp and own.minexp <= other.minexp:
            return dtype
    return DType.F32


def fits(source: DType, target: DType) -> bool:
    return ORDER[source.kind] <= ORDER[target.kind]


def test_the_table(device: tallow.Device) -> None:
    from tallow.promotion import promoted

    for first, second in itertools.product(DType, repeat=2):
        assert promoted(first, second) is common(first, second), (first, second)


def operands_of(device: tallow.Device, example: hostile.Example) -> list[Any]:
    """The f32 tensors of a call's receiver and arguments, in their order."""
    function, arguments, keywords = example.made(device)
    inputs = [getattr(function, "__self__", None), *arguments, *keywords.values()]
    flat = itertools.chain(*map(parts, inputs))
    return [value for value in flat if type(value) is Tensor and value.dtype is DType.F32]


def parts(value: Any) -> Iterable[Any]:
    """What a sequence or a mapping holds, else the value itself."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else [value]


def called(device: tallow.Device, example: hostile.Example, *dtypes: DType, then: DType | None = None) -> Any:
    """The result of a call whose operands have these dtypes, the last one that of all others; what was written to.

    With `then` the operands are converted to that dtype first.
    """
    function, arguments, keywords = example.made(device)
    left = iter([*dtypes, *[dtypes[-1]] * 8])

    def converted(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: converted(part) for name, part in value.items()}
        if isinstance(value, list | tuple) and any(isinstance(part, Tensor) for part in value):
            return type(value)([converted(part) for part in value])
        if not isinstance(value, Tensor) or value.dtype is not DType.F32:
            return value
        output = value.to_dtype(next(left))
        return output if then is None else output.to_dtype(then)

    owner = getattr(function, "__self__", None)
    if type(owner) is Tensor:
        owner = converted(owner)
        function = getattr(owner, function.__name__)
    result = function(*map(converted, arguments), **{name: converted(value) for name, value in keywords.items()})
    if result is NotImplemented:
        raise InvalidOperand
    return owner if result is None else result


class InvalidOperand(Exception):
    """What an operator does not take."""


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, in a form that compares: the dtype and bits of tensors, or the class of an error."""
    try:
        return described(call())
    except (tallow.TallowError, InvalidOperand) as error:
        return type(error)


def described(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.dtype, tuple(result.shape), result.contiguous().numpy().tobytes()
    if isinstance(result, list | tuple):
        return [described(part) for part in result]
    return result


def calls() -> dict[str, hostile.Example]:
    """The calls with two operands or more."""
    results = {}
    for name, call in (hostile.surface() | hostile.array_api_surface()).items():
        if re.fullmatch(OWN_RULES, name):
            continue
        try:
            example = hostile.base_of(call)
            if len(operands_of(tallow.Device.cpu(), example)) > 1:
                results[name] = example
        except (tallow.TallowError, OSError):
            continue
    return results


CALLS = calls()
# Two of each kind, in both orders.
FEW = ("bool", "u8", "u64", "i8", "i64", "bf16", "f16", "f32", "f64", "f8e4m3", "complex64")


def pairs(device: tallow.Device, full: bool, index: int) -> Iterator[tuple[DType, DType]]:
    known = [DType(name) for name in NUMPY if name in matrix.dtypes_of(device.backend) and (full or name in FEW)]
    every = [pair for pair in itertools.product(known, repeat=2) if pair[0] is not pair[1]]
    # Each call has a share of them, so that all pairs are there; the rules are the same on each device.
    parts = 1 if full else 3 if device.is_cpu() else 12
    return iter(every[index % parts :: parts])


def test_calls_are_found() -> None:
    expected = "Tensor.__add__ Tensor.linear Tensor.__matmul__ Tensor.conv2d Tensor.mse_loss xp.concat cat stack where"
    assert {*expected.split(), "Tensor.scatter_add_", "xp.linalg.solve"} <= CALLS.keys()
    assert len(CALLS) > 100, len(CALLS)


@pytest.mark.parametrize("place", range(8))
def test_operands_are_promoted(device: tallow.Device, full: bool, place: int) -> None:
    wrong = []
    for number, (name, example) in list(enumerate(CALLS.items()))[place::8]:
        for first, second in pairs(device, full, number):
            if name == "Tensor.scaled_dot_product_attention" and second.kind in ("bool", "unsigned", "signed"):
                continue  # its mask, which is no summand
            problem = difference(device, name, example, first, second)
            if problem:
                wrong.append(f"{name} of {first.value} and {second.value}: {problem}")
    assert not wrong, "\n".join(wrong)


def difference(device: tallow.Device, name: str, example: hostile.Example, first: DType, second: DType) -> str | None:
    """How the result of a call differs from that of operands that are converted first; None if it does not."""
    dtype = common(first, second)
    actual: Any = None
    try:
        actual = described(called(device, example, first, second))
    except (tallow.TallowError, InvalidOperand) as error:
        actual = type(error)
        message = str(error)
    if re.fullmatch(TRUTH, name) or (re.fullmatch(OF_ANY, name) and dtype is None):
        return None if not isinstance(actual, type) or actual in (DTypeMismatch, UnsupportedDType) else f"{actual}"
    if re.fullmatch(SET_IN_PLACE, name):
        if not fits(second, first):
            return None if actual is DTypeMismatch else f"{actual} instead of a refusal"
        expected = outcome(lambda: called(device, example, first, second, then=first))
        return None if actual == expected else f"{actual}, not {expected}"
    if dtype is None:
        if (actual is InvalidArgument and name == "Tensor.__itruediv__") or name == "Tensor.div_":
            return None  # integers have no room for quotients, whatever the divisor
        return None if actual is DTypeMismatch and SENTENCE.fullmatch(message) else f"{actual} instead of the sentence"
    expected = outcome(lambda: called(device, example, first, second, then=dtype))
    if re.fullmatch(COMPUTED_IN_PLACE, name):
        if isinstance(expected, type):
            return None if isinstance(actual, type) else f"{actual}, not {expected}"
        if not fits(dtype, first):
            return None if isinstance(actual, type) else f"{actual} instead of a refusal"
        expected = outcome(lambda: called(device, example, first, second, then=dtype).to_dtype(first))
    return None if actual == expected else f"{actual}, not {expected}"


def has(device: tallow.Device, *names: str) -> bool:
    return {*names} <= {*matrix.dtypes_of(device.backend)}


def require(device: tallow.Device, *names: str) -> None:
    if not has(device, *names):
        pytest.skip(f"the backend lacks one of {', '.join(names)}")


def test_the_order_of_several_operands_does_not_matter(device: tallow.Device) -> None:
    for dtypes in (
        ("u64", "i64", "f32"),
        ("f8e4m3", "f8e5m2", "f16"),
        ("bool", "i8", "u16"),
        ("i64", "f32", "complex64"),
    ):
        if not has(device, *dtypes):
            continue
        tensors = [Tensor([1, 0], dtype, device) for dtype in dtypes]
        actual = {tallow.cat(list(order)).dtype for order in itertools.permutations(tensors)}
        assert len(actual) == 1
        assert actual == {tallow.einsum("i,i,i->i", *tensors).dtype}
    with pytest.raises(DTypeMismatch, match=SENTENCE):
        tallow.cat([Tensor([1], dtype, device) for dtype in ("u64", "bool", "i8")])


def test_integers_are_rounded_once_to_the_dtype_of_a_float(device: tallow.Device) -> None:
    x = Tensor([2**53 + 1, 2**63 - 1, -3], device=device)
    for name in ("f64", "f32", "bf16"):
        if not has(device, name):
            continue
        y = Tensor([1.0, 1.0, 1.0], name, device)
        for actual, expected in ((x * y, x.to_dtype(name)), (y + x, x.to_dtype(name) + y), (x / y, x.to_dtype(name))):
            assert described(actual) == described(expected)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "batch_norm", "group_norm"])
def test_norms_take_scales_of_f32_for_short_floats(device: tallow.Device, norm: str) -> None:
    require(device, "bf16")

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        others = {"batch_norm": {"training": True}, "group_norm": {"groups": 2}}.get(norm, {})
        result: Tensor = getattr(x, norm)(weight=weight, **others)
        return result

    x = Tensor(np.arange(16.0).reshape(2, 4, 2) % 7, "bf16", device)
    x = x if "_norm" in norm and norm[:5] in ("batch", "group") else x.transpose(1, 2).contiguous()
    weight = Tensor([1.0, 1.001, 0.5, 2.0], device=device)
    assert described(normed(x, weight)) == described(normed(x.float(), weight).to_dtype("bf16"))
    for first, second in (("f32", "bf16"), ("f32", "f64"), ("bf16", "f16"), ("f32", "i64")):
        if has(device, first, second):
            with pytest.raises(DTypeMismatch, match=SENTENCE):
                normed(x.to_dtype(first), weight.to_dtype(second))


def test_masks_of_attention_are_of_bool_or_floats(device: tallow.Device) -> None:
    require(device, "f16", "bf16")
    query, key = Tensor.ones((1, 2, 4), dtype="f16", device=device), Tensor.ones((1, 3, 4), device=device)
    added = Tensor.zeros((2, 3), dtype="f16", device=device)
    for mask in (None, added, added.to_dtype("bf16"), added.eq(0)):
        actual = query.scaled_dot_product_attention(key, key.to_dtype("i64"), mask)
        assert (actual.dtype, actual.tolist()) == (DType.F32, [[[1.0] * 4] * 2])
    with pytest.raises(DTypeMismatch, match=SENTENCE):
        query.scaled_dot_product_attention(key, key, added.to_dtype("i64"))


def test_gradients_flow_to_the_floats(device: tallow.Device) -> None:
    counts, mask = Tensor([2, 3], device=device), Tensor([True, False], device=device)
    x = tallow.Var(Tensor([1.0, 4.0], device=device))
    assert (x * counts + mask * x).sum().backward()[x].tolist() == [3.0, 3.0]
    matrix_of_counts = Tensor([[1, 2], [3, 4]], device=device)
    assert (matrix_of_counts @ x).sum().backward()[x].tolist() == [4.0, 6.0]
    assert mask.where(x, counts).sum().backward()[x].tolist() == [1.0, 0.0]
    assert tallow.cat([counts, x]).sum().backward()[x].tolist() == [1.0, 1.0]
    if has(device, "f16"):
        half = tallow.Var(Tensor([1.0, 4.0], "f16", device))
        assert (half * x).sum().backward()[half].dtype is DType.F16


def test_fused_functions_promote(device: tallow.Device) -> None:
    def mixed(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return tallow.where(z > y, x * y, z) + y / 2

    fused = tallow.fuse(mixed)
    operands = [Tensor([3, 1, 4], dtype, device) for dtype in ("i64", "f32", "bf16") if has(device, dtype)]
    operands = (operands * 2)[:3]
    for order in itertools.permutations(operands):
        for _ in range(2):
            assert described(fused(*order)) == described(mixed(*order))


def test_a_choice_between_two_numbers_has_the_dtype_of_a_new_tensor(device: tallow.Device) -> None:
    x = Tensor([2.0, -2.0], device=device)
    fused = tallow.fuse(lambda x, first, second: tallow.where(x > 0, first, second))
    for first, second in ((1, 0), (1.5, 0), (0, -0.5), (True, False), (1, 0)):
        expected = described(Tensor([first, second], device=device))
        assert described(tallow.where(x > 0, first, second)) == expected
        # A fused function takes truth values for integers.
        assert type(first) is bool or described(fused(x, first, second)) == expected
    w = tallow.Var(x)
    assert (tallow.where(w > 0, 2, 1) * w).sum().backward()[w].tolist() == [2.0, 1.0]
