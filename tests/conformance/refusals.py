"""Calls that differ from the smallest valid one in one argument, and what becomes of them."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tallow
from tallow import DType, GgmlDType, Layout
from tallow.op import BinaryOp
from tallow.runtime.base.error import BackendUnavailable, TallowError
from tallow.runtime.core.conv import Params
from tallow.runtime.custom.user_op import UserOp
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.ranks.coordinator import Coordinator
from tallow.runtime.ranks.group import Group

from . import bases, calls, custom_ops, hostile, matrix
from .oracle.formats import NUMPY
from .test_cells import forged

# No layout of these calls reaches further, so that a refusal is one of shapes and not of the storage's length.
ROOM = 8192
PACKAGE = Path(tallow.__file__).parent


class Other(NamedTuple):
    """Another value, and how it differs."""

    what: str
    value: Any


class Change(NamedTuple):
    """Another value for one argument, or for several layouts, whose names "+" joins."""

    argument: str
    what: str
    value: Any

    def __str__(self) -> str:
        return f"{self.argument}{self.what}"


class Refusal(NamedTuple):
    """The error of a call, and where it comes from."""

    error: TallowError
    module: str  # of the function that the method called
    function: str
    line: int  # of the method's module

    @property
    def is_of_class(self) -> bool:
        """Whether an argument is of a wrong class."""
        return self.module == "argument" or self.function == "require_instance"

    @property
    def is_listed(self) -> bool:
        """Whether it was raised by a check, which the spec lists for the method."""
        return self.module in ("check", "layer_check")

    @property
    def is_check(self) -> bool:
        """Whether it was raised before the method called its backend."""
        is_require = self.module == "calls" and self.function.startswith("require_")
        return is_require or self.is_listed or self.module == "layout"


class Absent(Coordinator):
    """A group of ranks that are not here."""

    def __init__(self) -> None:
        self.members = {}

    def count(self, op: str, name: str) -> None:
        """No other rank counts calls."""

    def exchange(
        self, op: str, name: str, ranks: Sequence[int], value: object, seconds: float | None = None
    ) -> list[Any]:
        raise BackendUnavailable("distributed", "the other rank is not here")


@dataclass(frozen=True)
class Valid:
    """The smallest valid call of a method."""

    cell: SupportCell
    label: str

    def made(self, device: tallow.Device, room: int | None = ROOM) -> tuple[Any, dict[str, Any]]:
        """What the method is called on, and the arguments by name, `self` first.

        Storages have so many elements, or as many as the call needs where `room` is None.
        """

        def make(name: str, length: int) -> tallow.Storage:
            # Of a matrix more than the first one there is no decomposition.
            return stored(device, name, self.cell.method in matrix.DECOMPOSITIONS, length if room is None else room)

        if self.cell.method in matrix.DEVICE_METHODS:
            return device, {"self": device, **calls.device_arguments(self.cell)}
        if self.cell.method in matrix.BLOCK_METHODS:
            assert isinstance(self.cell.dtype, GgmlDType)
            blocks = device.quantized_zeros(512, self.cell.dtype)
            return blocks, {"self": blocks, **calls.block_arguments(self.cell, make)}
        storage, _, arguments = calls.storage_call(self.cell, make)
        if isinstance(arguments.get("op"), UserOp):
            # A user's op may refuse what it likes.
            op = hostile.user_op(type(arguments["op"]).__bases__[0])
            op.name = calls.error_op(self.cell)
            arguments["op"] = op
        return storage, {"self": storage, **arguments}

    def refusal(self, device: tallow.Device, change: Change | None = None, room: int | None = ROOM) -> Refusal | None:
        """Return the error of the call with a change, or None."""
        owner, arguments = self.made(device, room)
        if change is not None:
            arguments.update(dict.fromkeys(change.argument.split("+"), change.value))
        owner = arguments.pop("self", owner)
        operands = [value for value in (owner, *arguments.values()) if isinstance(value, tallow.Storage)]
        here = [operand for operand in operands if operand.inner.device is device.inner]
        before = [operand.to_numpy().tobytes() for operand in here]
        try:
            getattr(owner, self.cell.method)(**arguments)
            device.synchronize()
            return None
        except TallowError as error:
            after = [operand.to_numpy().tobytes() for operand in here]
            assert before == after, f"{self.label}: {error}: something was written before the refusal"
            return Refusal(error, *origin(error, self.cell.method))


def stored(device: tallow.Device, name: str, has_one: bool = False, length: int = ROOM) -> tallow.Storage:
    """Zeros, behind a one if it is asked for; by default with room for every layout."""
    elements = np.zeros(length, NUMPY[name])
    elements[:1] = has_one
    return device.storage(elements)


def origin(error: TallowError, method: str) -> tuple[str, str, int]:
    """The module and the function that the method called, and the line of that; the method itself where it raised."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    # What a kernel finds is raised later, by what waits for it.
    at = next((position for position, frame in enumerate(inside) if frame.name == method), 0)
    called = inside[min(at + 1, len(inside) - 1)]
    return Path(called.filename).stem, called.name, inside[at].lineno or 0


@cache
def valid_calls(backend: str) -> dict[str, list[Valid]]:
    """By method, the calls of its ops and formats that are not checked alike."""
    results: dict[str, list[Valid]] = {}
    for cell in tallow.support():
        dtype, op = cell.dtype, cell.op and matrix.METHODS_WITH_OPS[cell.method](cell.op)
        label = cell.method
        if isinstance(dtype, GgmlDType) and dtype.block_size == 1:
            label += " of floats"
        if op is not None and op.needs_elements:
            label += " that finds an element"
        # Any op would do, but each backend is asked for the same one.
        alike = [] if op is None else [other for other in type(op) if other.needs_elements == op.needs_elements]
        calls_of_method = results.setdefault(cell.method, [])
        if (
            cell.backend == backend
            and cell.status == "supported"
            and (isinstance(dtype, GgmlDType) or dtype in (None, bases.example_cell(cell.method).dtype))
            and op in (None, *alike[:1])
            and label not in [valid.label for valid in calls_of_method]
        ):
            calls_of_method.append(Valid(cell, label))
    return {method: some for method, some in results.items() if some and takes_arguments(method)}


def function_of(method: str) -> Any:
    """The method as its class has it."""
    owner: type = tallow.Device if method in matrix.DEVICE_METHODS else tallow.Storage
    return getattr(tallow.QStorage if method in matrix.BLOCK_METHODS else owner, method)


def takes_arguments(method: str) -> bool:
    """Whether there is something to refuse. A kernel of a user's has tests of its own."""
    result = function_of(method)
    is_called = not isinstance(result, property) and len(inspect.signature(result).parameters) > 1
    return is_called and method not in matrix.GPU_METHODS


def promised(method: str) -> set[str]:
    """The errors that the docs of a method list."""
    listed = re.search(r"^Raises ([\w,\s]+)\.$", inspect.getdoc(function_of(method)) or "", re.MULTILINE)
    return set(re.findall(r"\w+", listed[1])) if listed else set()


def changes(valid: Valid, device: tallow.Device) -> Iterator[Change]:
    """Each change of one argument, and other ranks for all layouts of one shape, which compared alone refuse them."""
    _, arguments = valid.made(device)
    alike: dict[Layout, list[str]] = {}
    for name, value in arguments.items():
        for other in others(valid, device, name, value):
            yield Change(name, *other)
        if isinstance(value, Layout):
            alike.setdefault(value, []).append(name)
    for layout, names in alike.items():
        for other in of_another_rank(layout) if len(names) > 1 else ():
            yield Change("+".join(names), *other)


def others(valid: Valid, device: tallow.Device, name: str, value: Any) -> Iterator[Other]:
    """Other values for an argument: some for each of the ways in which it may be wrong."""
    match value:
        case DType() | tallow.Shape():
            return
        case bool():
            yield from (Other(f" = {other}", other) for other in (2, 0.5))
        case Layout():
            yield from of_layout(value)
        case tallow.Storage():
            yield from of_storage(device, name, value)
        case int():
            yield from (Other(f" = {other}", other) for other in (-1, value + 1, 10 * ROOM, 0.5, float("nan")))
        case float():
            yield from (Other(f" = {other}", other) for other in (-1.0, 0.0, float("inf"), float("nan"), 1e300))
        case GgmlDType():
            yield Other(" of another format", GgmlDType("Q8_0"))
        case str():
            yield Other(" of another name", f"{value}x")
        case None:
            yield from (Other(f" = {other!r}", other) for other in ("q8_1", "q8"))
        case BinaryOp() if valid.cell.method == "binary_assign":
            yield Other(" of another result", with_result(value, DType.U8))
        case Params():
            for field in fields(value):  # type: ignore[arg-type]
                yield Other(f".{field.name} + 1", replace(value, **{field.name: getattr(value, field.name) + 1}))
        case Group():
            yield Other(" missing", None)
            yield Other(" of two", Group((0, 1), 1, 1, "two", Absent(), has_mpi=False))
        case UserOp():
            kinds = (custom_ops.Interleave1, custom_ops.Interleave2, custom_ops.Reverse)
            yield from (Other(f" of {kind.__bases__[0].__name__}", kind()) for kind in kinds)
        case np.ndarray():
            yield Other(" of dates", value.astype("datetime64[s]"))
            yield Other(" of floats", value.astype(np.float32))
            yield Other(" with one less", value[:-1])
            yield Other(" with steps", np.repeat(value, 2)[::2])
        case [float(), *_]:
            yield Other(" with a text", [*value, "1"])
        case (int(), *_):
            for position, item in enumerate(value):
                for other in (-1, 0, item + 1, 10 * ROOM, 0.5):
                    changed = (*value[:position], other, *value[position + 1 :])
                    yield Other(f"[{position}] = {other}", changed)
            yield Other(" twice", (*value, *value))
            yield Other(" with one more", (*value, value[-1]))
            yield Other(" with one less", value[:-1])
        case (_, *_):
            for position, item in enumerate(value):
                for other in others(valid, device, name, item):
                    changed = (*value[:position], other.value, *value[position + 1 :])
                    yield Other(f"[{position}]{other.what}", changed)
            yield Other(" with one less", value[:-1])
            yield Other(" with one more", (*value, value[-1]))


def shortened(valid: Valid, device: tallow.Device) -> Iterator[Change]:
    """Each storage, of those that are as long as the call needs, with one element less."""

    def shorter(storage: tallow.Storage) -> tallow.Storage:
        return device.storage(storage.to_numpy()[:-1])

    _, arguments = valid.made(device, room=None)
    for name, value in arguments.items():
        if isinstance(value, tallow.Storage):
            yield Change(name, " with an element less", shorter(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], tallow.Storage):
            for position, item in enumerate(value):
                changed = (*value[:position], shorter(item), *value[position + 1 :])
                yield Change(name, f"[{position}] with an element less", changed)


def of_layout(value: Layout) -> Iterator[Other]:
    """Other sizes, other ranks, one place for several elements, places outside."""
    for dim, size in enumerate(value.shape):
        shorter = {"shorter": size - 1} if size > 1 else {}
        for word, other in {"empty": 0, **shorter, "longer": size + 1, "far longer": 2 * size + 1}.items():
            sizes = (*value.shape[:dim], other, *value.shape[dim + 1 :])
            yield Other(f"[{dim}] {word}", Layout.contiguous(sizes))
        if size > 1:
            strides = (*value.strides[:dim], 0, *value.strides[dim + 1 :])
            yield Other(f"[{dim}] repeated", Layout(value.shape, strides))
    yield from of_another_rank(value)
    yield Other(" outside", Layout.contiguous(value.shape, ROOM))
    yield Other(" missing", None)


def of_another_rank(value: Layout) -> Iterator[Other]:
    yield Other(" with a dim more", Layout.contiguous((1, *value.shape)))
    yield Other(" without dims", Layout.contiguous(()))


def of_storage(device: tallow.Device, name: str, value: tallow.Storage) -> Iterator[Other]:
    """Other dtypes, another device, indexes that are out of range."""
    for other in DType:
        if other is not value.dtype and other.value in matrix.dtypes_of(device.backend):
            yield Other(f" of {other}", stored(device, other.value))
    if value.dtype is DType.U32:
        yield Other(" out of range", device.storage(np.full(ROOM, ROOM, np.uint32)))
    if name != "self":
        yield Other(" elsewhere", elsewhere(device, value.dtype))
        yield Other(" missing", None)


def with_result(op: BinaryOp, dtype: DType) -> BinaryOp:
    """An op that gives another dtype than it is given, which no op of the package does so far."""
    output = object.__new__(BinaryOp)
    vars(output).update(vars(op), result=dtype)
    return output


def elsewhere(device: tallow.Device, dtype: DType) -> tallow.Storage:
    """A storage of another backend, which may have no runtime here."""
    backend = next(backend for backend in matrix.BACKENDS if backend not in ("cpu", device.backend))
    other = forged(matrix.class_of(backend, "Device"), ordinal=0, plans={})
    return tallow.Storage(forged(matrix.class_of(backend, "Storage"), device=other, dtype=dtype, length=ROOM, kind=0))
