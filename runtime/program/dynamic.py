"""Dynamic programs: those of calls that differ in their number of elements alone, which is a parameter of each run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from inspect import signature
from typing import Any, Final, NamedTuple, TypeVar

from .builder import GivenStorage
from .program import Allocate, Copy, Fill, Launch, Program
from .values import Address, Buffer, Draw, DrawPart, KernelArguments, Memory, Operand, sized_number

_Op = TypeVar("_Op", bound=Callable[..., Any])

MAX_COUNT: Final = 1 << 48
"""The largest number of elements of a dynamic program: fields of structs can count their bytes and blocks."""


class Repeated(Enum):
    """Which operands of a dynamic op may be numbers that their layouts repeat."""

    NONE = "none"
    ONE_OF_LAST_TWO = "one of the last two"
    """The kernels take a number instead of one of these."""
    ALL = "all"


class DynamicOp(NamedTuple):
    """An op that builds dynamic programs."""

    shape: int | None
    """The position of the shape among the arguments of an op without operands."""
    limit: int
    """The largest number of elements that its dynamic programs serve."""
    repeated: Repeated

    def takes(self, repeated: list[bool]) -> bool:
        """Return True if the operands for which `repeated` is true may be repeated numbers."""
        if self.repeated is Repeated.ALL or True not in repeated:
            return True
        return self.repeated is Repeated.ONE_OF_LAST_TWO and repeated.count(True) == 1 and True in repeated[-2:]


dynamic_ops: Final[dict[Callable[..., Any], DynamicOp]] = {}


def dynamic(op: _Op, limit: int = MAX_COUNT, repeated: Repeated = Repeated.NONE) -> _Op:
    """Declare that an op builds dynamic programs, or leaves the call to another one whatever the number of elements.

    Its program depends on the shape of contiguous operands, or on the shape among its arguments, by the number of
    elements alone, for which it asks `ProgramBuilder.count`. With more elements than the limit it is no dynamic op, nor
    with other repeated numbers than `repeated`: kernels that read them in memory know the dims.
    """
    names = list(signature(op).parameters)
    dynamic_ops[op] = DynamicOp(names.index("shape") - 1 if "shape" in names else None, limit, repeated)
    return op


class DynamicCall(NamedTuple):
    """A call that a dynamic program serves."""

    key: Hashable
    """All that decides what the program is."""
    operands: list[Any]
    """The arguments of a run: the storages, and then the numbers."""
    elements: int
    """The number of elements."""


def dynamic_call(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], numbers: int
) -> DynamicCall | None:
    """The call of a dynamic op, whose last arguments are `numbers` numbers, as one that a dynamic program serves.

    None where none does: operands are not contiguous, have no elements, or are memory of another library.
    """
    key: list[Any] = [function, *options.values()]
    operands: list[Any] = []
    repeated: list[bool] = []
    count = 0
    end = len(arguments) - numbers
    for argument in arguments[:end]:
        if isinstance(argument, Operand):
            storage, layout = argument
            form, is_contiguous = storage.dynamic_form, layout.is_contiguous
            # Kernels that take strides read those of dims of one element as well.
            if form is None or not (is_contiguous or (form == GivenStorage.NUMBER and not any(layout.strides))):
                return None
            # A number is one element, whatever the layout repeats.
            key += storage.dtype, form, layout.start_offset, is_contiguous
            operands.append(storage)
            repeated.append(not is_contiguous)
            elements = layout.elem_count
            if elements != (count or elements):
                return None
            count = elements
        else:
            key.append(argument)
    operands += arguments[end:]
    op = dynamic_ops[function]
    return DynamicCall(tuple(key), operands, count) if 0 < count <= op.limit and op.takes(repeated) else None


def with_count(program: Program, count: int) -> Program:
    """The program of calls with `count` elements, from a dynamic one, whose last argument is their number."""
    *arguments, _ = program.arguments
    allocated: dict[Memory, Memory] = {}
    draws: dict[Draw, Draw] = {}

    def known(value: Any) -> Any:
        """Replace parameters by the number of elements in a value."""
        kind = type(value)
        if kind is Address:
            return Address(memory_of(value.memory), value.offset)
        if kind is DrawPart:
            draw = value.draw
            if draw not in draws:
                draws[draw] = Draw(known(draw.blocks))
            return getattr(draws[draw], value.name)
        return sized_number(value, count)

    def memory_of(memory: Memory) -> Memory:
        if memory.argument is not None:
            return memory
        if memory not in allocated:
            allocated[memory] = Memory(known(memory.size))
        return allocated[memory]

    def step_of(step: Any) -> Any:
        match step:
            case Allocate(memory):
                return Allocate(memory_of(memory))
            case Launch(blocks=blocks, arguments=packed):
                fields = tuple(map(known, packed.fields))
                arguments = KernelArguments(packed.struct, fields)
                return step._replace(blocks=known(blocks), arguments=arguments, work=known(step.work))
            case Copy(target, source, nbytes):
                return Copy(known(target), known(source), known(nbytes))
            case Fill(target, byte, nbytes):
                return Fill(known(target), byte, known(nbytes))
        raise TypeError(f"a dynamic program has no {type(step).__name__}")

    results = [Buffer(each.dtype, known(each.count), memory_of(each.memory)) for each in program.buffers]
    return Program(
        name=program.name,
        arguments=tuple(arguments),
        steps=tuple(map(step_of, program.steps)),
        result=results[0] if isinstance(program.result, Buffer) else tuple(results) if results else program.result,
        released=tuple([tuple(map(memory_of, each)) for each in program.released]),
        buffers=tuple(results),
    )
