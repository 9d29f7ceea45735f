"""Fused functions: kernels that are composed of the functors of elementwise ops."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from .....kernels import arguments
from .....kernels.arguments import Geometry
from .....kernels.constants import FUSED_NUMBERS, FUSED_RESULTS, FUSED_SOURCES, STRUCTS, WIDTHS
from .....limits import MAX_RANK
from .....op import MethodOp
from ....program.builder import ProgramBuilder
from ....program.values import NOWHERE, Buffer, KernelArguments, Operand, Parameter, Pointer, filled
from ..execute.kernels import compose
from .elementwise import Kernels, several
from .scalar import element_words

if TYPE_CHECKING:
    from .....dtype import DType
    from ....program.fused_function import FusedFunction, Number, Step

_LONGEST_NAME: Final = 64
_SOURCE: Final = """
namespace tallow {{

struct Composition {{
    static constexpr uint32_t sources = {sources};
    static constexpr uint32_t length = pack_length<{types}>;
    template <typename Arguments> static TALLOW_INLINE bool is_aligned(const Arguments& arguments) {{
        return {aligned};
    }}
    template <uint32_t N, typename Arguments>
    static TALLOW_INLINE bool are_runs(const Arguments& arguments, const uint64_t (&offsets)[sources]) {{
        return {runs};
    }}
    template <typename Access> static TALLOW_INLINE void compute(const Access& access) {{
        {loads}
        {results}
#pragma unroll
        for (uint32_t i = 0; i < Access::count; ++i) {{
            {steps}
        }}
        {stores}
    }}
}};

TALLOW_KERNEL({family}_contiguous, FusedContiguous, fused_contiguous<Composition>)
TALLOW_KERNEL({family}_strided, FusedStrided, fused_strided<Composition>)

}} // namespace tallow
"""


def fused(build: ProgramBuilder, function: FusedFunction, *given: Any) -> tuple[Buffer, ...]:
    """The results of a fused function for its tensors, which are operands, and numbers that differ between calls."""
    tensors, numbers = given[: len(function.tensors)], function.named_numbers(given[len(function.tensors) :])
    results: dict[int, Buffer] = {}
    for kernel, positions in function.kernels:
        results.update(zip(positions, _launch(build, kernel, tensors, numbers), strict=True))
    return tuple([results[position] for position in range(len(results))])


def _launch(
    build: ProgramBuilder,
    kernel: FusedFunction,
    tensors: Sequence[Operand],
    values: Mapping[str, complex | Parameter],
) -> tuple[Buffer, ...]:
    """The results of a part of a function, all of which have one shape."""
    shape, sources = kernel.layouts[0].shape, kernel.sources.values()
    operands = [Operand(tensors[it.position].storage, it.layout.broadcast_as(shape)) for it in sources]
    words = [
        word
        for name, number in kernel.numbers.items()
        for word in element_words(values[name], number.dtype)[: number.words]
    ]
    numbers = filled(words, FUSED_NUMBERS, 0)
    rest = (0,) * MAX_RANK * (FUSED_SOURCES - len(operands))

    def contiguous(results: list[Pointer], sources: list[Pointer], count: int) -> KernelArguments:
        return arguments.fused_contiguous(
            results=filled(results, FUSED_RESULTS, NOWHERE), sources=filled(sources, FUSED_SOURCES, NOWHERE),
            numbers=numbers, count=count,
        )  # fmt: skip

    def strided(results: list[Pointer], sources: list[Pointer], count: int, geometry: Geometry) -> KernelArguments:
        return arguments.fused_strided(
            results=filled(results, FUSED_RESULTS, NOWHERE), sources=filled(sources, FUSED_SOURCES, NOWHERE),
            numbers=numbers, count=count, geometry=Geometry((*geometry, *rest)),
        )  # fmt: skip

    family = family_of(kernel)
    kernels = Kernels(family, family, contiguous, strided)
    return several(build, kernels, operands, [result.dtype for result in kernel.results])


@lru_cache(maxsize=1024)
def family_of(kernel: FusedFunction) -> str:
    """The family of a kernel; those that do the same share it."""
    sources = [(name, source.dtype.cpp) for name, source in kernel.sources.items()]
    made = [result.dtype.cpp for result in kernel.results]
    terms = {name: f"{name}[i]" for name in kernel.sources}
    terms |= {name: _value(number.dtype, place) for place, (name, number) in _placed(kernel)}
    aligned = [
        f"tallow::is_aligned<length>(pointer_to<const {cpp}>(arguments.sources[{place}]))"
        for place, (_, cpp) in enumerate(sources)
    ]
    runs = [
        f"is_run<N>(pointer_to<const {cpp}>(arguments.sources[{k}]) + offsets[{k}], arguments.strides[{k} * max_rank])"
        for k, (_, cpp) in enumerate(sources)
    ]
    steps = [_line(step, terms, kernel) for step in kernel.steps]
    steps += [f"r{place}[i] = {terms.get(name, name)};" for place, (name, *_) in enumerate(kernel.results)]
    fields = {
        "sources": len(sources),
        "types": ", ".join([*[cpp for _, cpp in sources], *made]),
        "aligned": " &&\n               ".join(aligned),
        "runs": " &&\n               ".join(runs),
        "loads": "\n        ".join(
            f"const auto {name} = access.template load<{cpp}, {place}>();" for place, (name, cpp) in enumerate(sources)
        ),
        "results": "\n        ".join(f"typename Access::template Of<{cpp}> r{k};" for k, cpp in enumerate(made)),
        "steps": "\n            ".join(steps),
        "stores": "\n        ".join(f"access.template store<{place}>(r{place});" for place in range(len(made))),
    }
    checksum = hashlib.sha256(repr(fields).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9]+", "_", kernel.name).strip("_")[:_LONGEST_NAME]
    family = f"{name if name.isidentifier() else 'fused'}_{checksum}"
    compose("fused", family, _SOURCE.format(family=family, **fields))
    return family


def _placed(kernel: FusedFunction) -> Iterator[tuple[int, tuple[str, Number]]]:
    """The numbers of a kernel, each with the place of its first word."""
    ends = accumulate([number.words for number in kernel.numbers.values()])
    return (
        (end - number.words, (name, number)) for end, (name, number) in zip(ends, kernel.numbers.items(), strict=True)
    )


def _value(dtype: DType, place: int) -> str:
    """A number of a dtype, whose words begin at a place; of two words, each is a part of a complex number."""
    if dtype.itemsize <= 8:
        return f"from_bits<{dtype.cpp}>(access.arguments.numbers[{place}])"
    return f"{dtype.cpp}({_value(dtype.real, place)}, {_value(dtype.real, place + 1)})"


def _line(step: Step, terms: dict[str, str], kernel: FusedFunction) -> str:
    """The statement that computes a step, rounded as a kernel of its op alone rounds it."""
    operands = [terms.get(name, name) for name in step.operands]
    cpp, of = step.dtype.cpp, step.operand_dtype.cpp
    if step.op is MethodOp.TO_DTYPE and step.dtype is step.operand_dtype:
        return f"const {cpp} {step.name} = {operands[0]};"
    if step.op.moves:
        of = WIDTHS[f"b{8 * step.dtype.itemsize}"]
        operands[1:] = [f"bit_cast<{of}>({operand})" for operand in operands[1:]]
    places = {name: place for place, (name, _) in _placed(kernel)}
    words = ", ".join(f"access.arguments.numbers[{places[name]}]" for name in step.parameters)
    result = of if step.op.moves else cpp
    function = f"ElementFunction<{STRUCTS[step.op.value]}, {result}, {of}>"
    value = f"{function}(ParameterBits<{max(len(step.parameters), 1)}>{{{{{words}}}}})({', '.join(operands)})"
    return f"const {cpp} {step.name} = {f'bit_cast<{cpp}>({value})' if step.op.moves else value};"
