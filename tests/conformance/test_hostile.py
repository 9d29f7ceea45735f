"""Whatever a public call is given, it succeeds or raises one of tallow's errors, and the device goes on working."""

from __future__ import annotations

import inspect
import itertools
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow
from hypothesis import HealthCheck, given, settings
from tallow import (
    BackendUnavailable,
    DeviceMismatch,
    DType,
    Layout,
    MissingFile,
    TallowError,
    UnaryOp,
    UnsupportedDevice,
    UnsupportedDType,
)
from tallow.examples import METHODS

from . import hostile, matrix

SURFACE = hostile.surface()
ARRAY_API = hostile.array_api_surface()
# What the protocols of Python and DLPack ask of these methods, besides errors of tallow.
PROTOCOL = {
    "Tensor.__array__": (TypeError, ValueError),
    "Tensor.__dlpack__": (BufferError,),
    "Tensor.__format__": (ValueError, TypeError),
}
# Devices, and a file.
MAY_BE_MISSING = (
    *(f"{owner}.{backend}" for owner in ("Device", "Tensor") for backend in ("cuda", "metal", "rocm")),
    *("load_safetensors", "open_safetensors", "read_npy", "read_npz"),
)
# The calls of a class, or those of the package itself.
CLASSES: dict[str, list[str]] = {}
for call in SURFACE.values():
    CLASSES.setdefault(call.name.rpartition(".")[0] or "tallow", []).append(call.name)
ROOM = 1 << 30


def test_all_that_is_public_is_found() -> None:
    expected = (
        "cat Tensor Tensor.add Tensor.__getitem__ Storage.matmul Device.parse Shape.dim Layout.narrow ParamsConv2D"
    )
    assert {*expected.split(), "load_safetensors", "set_print_options", "UnaryOp", "Tensor.zeros"} <= SURFACE.keys()


def test_every_parameter_has_arguments_that_fit() -> None:
    assert {call.owner for call in SURFACE.values()} - {None} <= hostile.FITTING.keys()
    lacking = [
        f"{call.name}({parameter})"
        for call in SURFACE.values()
        for parameter in call.parameters
        if not hostile.fitting(call, parameter) and not re.search("Never|Any|object", str(parameter.annotation))
    ]
    assert not lacking


@pytest.mark.parametrize("kind", CLASSES)
def test_arguments_that_fit_do(room: None, device: tallow.Device, kind: str) -> None:
    for name in CLASSES[kind]:
        try:
            hostile.base_of(SURFACE[name]).run(device)
        except (BackendUnavailable, MissingFile) as error:
            assert name in MAY_BE_MISSING, error
        except DeviceMismatch:
            assert re.fullmatch(r"Device\.as_\w+_device", name), name
        except TallowError as error:
            assert is_unsupported(error, device) or may_refuse(name), f"{name}: {error}"


def may_refuse(name: str) -> bool:
    """Whether arguments that fit by themselves may not do."""
    # Nobody makes a kernel without a source, and a sequence of sizes or dims may have no element.
    is_sequence = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in SURFACE[name].parameters)
    # Of a tensor that no variable has to do with there is no gradient, and NumPy alone has no threads.
    is_idle = name == "set_threads" and tallow.Device.cpu().inner.kernels is None
    return name in ("Kernel", "Tensor.backward") or is_sequence or is_idle


def is_unsupported(error: TallowError, device: tallow.Device) -> bool:
    """Whether the matrix says that the backend does not do what a call needs, with the reason that the error gives."""
    is_one = isinstance(error, UnsupportedDType | UnsupportedDevice)
    return is_one and error.reason in matrix.refusals(device.backend)


class Strange:
    """Nothing that tallow knows."""


STRANGE = hostile.Value("Strange()", lambda _: Strange())
# What takes an object of any class: it is the name of an op, a fact to hold, or Python's own affair.
TAKES_ANYTHING = {
    *(
        "Device.__eq__ other",
        "Gradients.__contains__ variable",
        "Layout.check op",
        "Shape.broadcast op",
        "Shape.dim op",
        "Shape.dim name",
    ),
    *("Tensor.__array__ copy", "Tensor.__deepcopy__ memo", "Var.__deepcopy__ memo"),
    *(f"Graph.__exit__ {name}" for name in ("kind", "error", "traceback")),
    *(f"SupportCell {name}" for name in ("method", "op", "backend", "dtype", "status", "via", "reason")),
}
# Where the class or the method says what is meant.
OTHER_WORDS = {
    **{
        f"{kind} value": f"no {kind}"
        for kind in (
            *("UnaryOp", "BinaryOp", "CmpOp", "ReduceOp", "UnaryGradientOp", "BinaryGradientOp", "BinaryGradientsOp"),
            *("DType", "GgmlDType"),
        )
    },
    **dict.fromkeys(
        ("Shape dims", "Shape.broadcast lhs", "Shape.broadcast rhs", "Tensor.from_storage layout"), "a shape"
    ),
    **dict.fromkeys(("cat tensors", "stack tensors"), "the tensors"),
}


@pytest.mark.parametrize("kind", [*CLASSES, "xp"])
def test_an_argument_of_a_strange_class_is_named(room: None, device: tallow.Device, kind: str) -> None:
    calls = ARRAY_API if kind == "xp" else {name: SURFACE[name] for name in CLASSES[kind]}
    for name, call in calls.items():
        base = hostile.base_of(call)
        for parameter in call.parameters:
            case = f"{name} {parameter.name}"
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or case in TAKES_ANYTHING:
                continue
            try:
                result = base.changed({parameter.name: STRANGE}).run(device)
            except TallowError as error:
                # The array API has its own names for what methods call by others.
                is_named = kind == "xp" or OTHER_WORDS.get(case, parameter.name) in str(error)
                assert is_named or is_unsupported(error, device), f"{case}: {error}"
            except PROTOCOL.get(name, ()):
                pass
            else:
                assert result is NotImplemented, case


# Among what protocols of Python and of DLPack call.
CONVERTS_ITSELF = {"Tensor.__array__ copy", "Tensor.__format__ spec"}


def of_other_types(parameter: inspect.Parameter) -> list[hostile.Value]:
    """Values that an annotation does not allow, though they are close to such: 2 for a bool, 0.5 for an integer."""
    words = {*re.findall(r"[A-Za-z_]\w*", str(parameter.annotation))} - {"None", "builtins", "typing", "Union"}
    sequences = words & {"Axes", "Iterable", "Padding", "Sequence", "Shape", "Size", "tuple"}
    if words == {"bool"}:
        return hostile.values("2; 0; 0.5; 'True'; [True]")
    if words == {"float"}:
        return hostile.values("'1'; (1.0,)")
    if words == {"str"}:
        return hostile.values("1; b'cpu'")
    if words - sequences - {"int"}:
        return []
    single = hostile.values("0.5; 1.0; float('nan'); '1'")
    return single + hostile.values("(0.5,); (1.0, 0.5); (float('nan'),)") if sequences else single


@pytest.mark.parametrize("kind", [*CLASSES, "xp"])
def test_an_argument_of_another_type_is_refused(room: None, device: tallow.Device, kind: str) -> None:
    calls = ARRAY_API.values() if kind == "xp" else [SURFACE[name] for name in CLASSES[kind]]
    accepted = []
    for call in calls:
        base = hostile.base_of(call)
        for parameter in call.parameters:
            case = f"{call.name} {parameter.name}"
            if case in TAKES_ANYTHING | CONVERTS_ITSELF:
                continue
            for value in of_other_types(parameter):
                is_variadic = parameter.kind is parameter.VAR_POSITIONAL
                others = base._replace(arguments=(*base.arguments, value)) if is_variadic else None
                example = others or base.changed({parameter.name: value})
                try:
                    result = example.run(device)
                    device.synchronize()
                except TallowError as error:
                    assert str(error)
                else:
                    accepted += [example] if result is not NotImplemented else []
    assert accepted == []


def off_by_one(device: tallow.Device, value: Any) -> Iterator[hostile.Value]:
    """Tensors and sequences that are longer or shorter by one than another."""
    if isinstance(value, tallow.Tensor):
        for dim, step in itertools.product(range(value.rank), (1, -1)):
            shape = [*value.shape]
            shape[dim] = max(shape[dim] + step, 0)
            yield hostile.Value(
                f"{value.dtype} of {shape}", lambda d, shape=shape: hostile.ramp(d, value.dtype, *shape)
            )
    elif isinstance(value, tuple | list) and value and not hasattr(value, "_fields"):
        for other in (type(value)([*value, value[-1]]), type(value)(value[:-1])):
            yield hostile.Value(repr(other), lambda _, other=other: other)


@pytest.mark.parametrize("kind", [*CLASSES, "xp"])
def test_sizes_that_are_off_by_one_meet_errors_of_tallow(room: None, device: tallow.Device, kind: str) -> None:
    calls = ARRAY_API.values() if kind == "xp" else [SURFACE[name] for name in CLASSES[kind]]
    for call in calls:
        base = hostile.base_of(call)
        try:
            _, arguments, keywords = base.made(device)
        except TallowError:
            continue
        for index, value in enumerate(arguments):
            for other in off_by_one(device, value):
                changed = (*base.arguments[:index], other, *base.arguments[index + 1 :])
                check(base._replace(arguments=changed), device)
        for name, value in keywords.items():
            for other in off_by_one(device, value):
                check(base.changed({name: other}), device)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: tallow.Device) -> Iterator[None]:
    """A folder for files, and a limit of memory, beyond which results are too large."""
    monkeypatch.chdir(tmp_path)
    seed = device.get_current_seed()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = (
        int(
            next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData")
            ).split()[1]
        )
        * 1024
    )
    resource.setrlimit(resource.RLIMIT_DATA, (used + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    tallow.set_print_options()
    device.set_seed(seed)


def check(example: hostile.Example, device: tallow.Device) -> None:
    for step in (lambda: example.run(device), device.synchronize):
        try:
            result = step()
            if isinstance(result, Iterator):
                list(itertools.islice(result, 3))
        except TallowError as error:
            assert str(error)
        except PROTOCOL.get(example.call.name, ()):
            pass
    vector = Layout.contiguous((3,))
    actual = device.storage(np.array([1.0, -2.0, 3.0], np.float32)).unary_impl(UnaryOp.NEG, vector)
    assert actual.to_numpy().tolist() == [-1.0, 2.0, -3.0]
    assert tallow.Tensor.zeros(2, dtype=DType.U8, device=device).tolist() == [0, 0]


# Views that repeat an element more often than any memory could hold it, or than 64 bits count.
HUGE = hostile.values("""
    ramp(d, DType.F32, 1).broadcast_as(2**62); ramp(d, DType.U8, 1, 1).broadcast_as(2**56 - 1, 2)
    ramp(d, DType.F64, 1, 1, 1).broadcast_as(2**40, 3, 2**40)
""")


@pytest.mark.parametrize("part", range(4))
def test_more_elements_than_memory_holds_are_viewed_or_refused(room: None, device: tallow.Device, part: int) -> None:
    for call in [call for call in SURFACE.values() if call.owner == "Tensor"][part::4]:
        example = hostile.base_of(call)
        tensors = [
            parameter.name
            for parameter in call.parameters
            if "VAR" not in parameter.kind.name and hostile.TENSORS[0] in hostile.fitting(call, parameter)
        ]
        for huge in HUGE:
            check(example._replace(of=huge), device)
            for parameter in tensors:
                check(example.changed({parameter: huge}), device)


def keeping_sizes() -> Iterator[hostile.Example]:
    """Calls of tensor methods whose results have as many elements as the tensor, which is their only operand."""
    names = [call.name for call in SURFACE.values() if call.owner == "Tensor"]
    of_ops = {f"Tensor.{op.value}" for op in UnaryOp}
    of_methods = {f"Tensor.{name}" for name, method in METHODS.items() if [*method.operands] == ["self"]}
    for name in [name for name in names if name in of_ops | of_methods]:
        # What the ops of users do is theirs.
        if any(map(hostile.is_user_op, SURFACE[name].parameters)):
            continue
        example = hostile.base_of(SURFACE[name])
        try:
            results = example.run(tallow.Device.cpu())
        except UnsupportedDType:
            continue
        of = example.of and example.of.make(tallow.Device.cpu())
        first = results[0] if isinstance(results, tuple) else results
        if isinstance(first, tallow.Tensor) and first.shape == of.shape:
            yield example


@pytest.mark.parametrize("part", range(4))
def test_results_of_more_elements_than_memory_holds_are_refused_at_once(device: tallow.Device, part: int) -> None:
    """And not after the hours that 2^40 elements take."""
    examples = [*keeping_sizes(), hostile.base_of(SURFACE["Tensor.nonzero"])]
    assert len(examples) > 50
    for example in examples[part::4]:
        of = example.of and example.of.make(device)
        # What is along a dim is along one of few elements, as libraries count these.
        sizes = (1,) * (of.rank - 2) + (2**20, 2**20)
        ones = tallow.ones((1,) * len(sizes), dtype=of.dtype, device=device).broadcast_as(*sizes)
        huge = hostile.Value("2^40 ones", lambda _, ones=ones: ones)
        with pytest.raises((tallow.OutOfMemory, UnsupportedDType, tallow.InvalidArgument)) as refused:
            example._replace(of=huge).run(device)
        # Kernels that number the elements of one volume do it in 32 bits.
        if isinstance(refused.value, tallow.InvalidArgument):
            assert re.search(r": one \w+ has more than \d+ ", str(refused.value)), refused.value


def test_only_a_name_is_looked_up_among_formats(device: tallow.Device) -> None:
    for wrong in (np.array([1, 2]), [1], 3, None):
        with pytest.raises(tallow.TallowError, match="dtype must be a GgmlDType or its name, not"):
            device.quantized_zeros(32, wrong)


fixtures = settings(suppress_health_check=list(HealthCheck))


@settings(fixtures, max_examples=400)
@given(example=hostile.examples(SURFACE))
def test_hostile_arguments_meet_errors_of_tallow(room: None, device: tallow.Device, example: hostile.Example) -> None:
    check(example, device)


@pytest.mark.full
@settings(fixtures, max_examples=20_000)
@given(example=hostile.examples(SURFACE))
def test_many_hostile_arguments_meet_errors_of_tallow(
    room: None, device: tallow.Device, example: hostile.Example
) -> None:
    check(example, device)
