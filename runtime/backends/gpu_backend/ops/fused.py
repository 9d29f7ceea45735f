"""Fused functions: kernels that are composed of the functors of elementwise and row ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .....kernels import arguments
from .....kernels.arguments import Geometry
from .....kernels.constants import FUSED_NUMBERS, FUSED_RESULTS, FUSED_SOURCES
from .....limits import MAX_RANK
from .....op import ReduceOp
from ....program.builder import ProgramBuilder
from ....program.fused_function import TotalOp
from ....program.fused_kernels import kernels_of
from ....program.values import NULL, Buffer, KernelArguments, Number, Operand, Pointer, filled
from . import fused_rows, loss, reduce
from .elementwise import Kernels, several
from .fused_source import Statements, composed
from .scalar import element_words

if TYPE_CHECKING:
    from ....program.fused_function import FusedFunction, Step

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


def fused(build: ProgramBuilder, function: FusedFunction, *arguments: Any) -> tuple[Buffer, ...]:
    """The results of a fused function for its tensors, which are operands, and numbers that differ between calls."""
    tensors, values = arguments[: len(function.tensors)], function.named_numbers(arguments[len(function.tensors) :])
    outputs: dict[int, Buffer] = {}
    for launch in kernels_of(function):
        kernel, shape, positions, rows = launch
        operands = [
            Operand(
                tensors[it.position].storage if it.position < len(tensors) else outputs[it.position - len(tensors)],
                it.layout.broadcast_as(shape),
            )
            for it in kernel.sources.values()
        ]
        numbers = filled(
            [
                word
                for name, number in kernel.numbers.items()
                for word in element_words(values[name], number.dtype)[: number.words]
            ],
            FUSED_NUMBERS,
            0,
        )
        along = [result.along for result in kernel.results]
        if launch.total is not None:
            results = _total(build, launch.total, dict(zip(kernel.sources, operands, strict=True)), values)
            names = dict(zip(launch.total.names, results, strict=True))
            results = tuple([names[result.name] for result in kernel.results])
        elif rows is None:
            results = _maps(build, kernel, operands, numbers)
        else:
            along = [None if dim == rows.dim else dim for dim in along]
            results = fused_rows.fused_rows(build, kernel, shape, rows, operands, numbers)
        # What the kernel of its elements does not add up.
        results = tuple(
            [
                output
                if dim is None
                else reduce.reduce(build, ReduceOp.SUM, Operand(output, result.layout.dense), result.summed_dims)
                for dim, output, result in zip(along, results, kernel.results, strict=True)
            ]
        )
        outputs.update(zip(positions, results, strict=True))
    return tuple([outputs[position] for position in range(len(function.results))])


def _total(
    build: ProgramBuilder, step: Step, operands: Mapping[str, Operand], numbers: Mapping[str, Any]
) -> tuple[Buffer, ...]:
    """An op of all numbers of rows."""
    x, *others = [operands[name] for name in step.operands]
    if step.op is TotalOp.RATIO_OF_SUMS:
        return loss.ratio_of_sums(build, x, others[0])
    parameters = [numbers[name] for name in step.parameters]
    return (reduce.reduce(build, step.op, x, tuple(range(len(step.shape))), *parameters),)


def _maps(
    build: ProgramBuilder, kernel: FusedFunction, operands: Sequence[Operand], numbers: Sequence[Number]
) -> tuple[Buffer, ...]:
    """Launch a kernel of maps, all results of which have one shape."""
    padding = (0,) * MAX_RANK * (FUSED_SOURCES - len(operands))

    def contiguous(results: list[Pointer], sources: list[Pointer], count: int) -> KernelArguments:
        return arguments.fused_contiguous(
            results=filled(results, FUSED_RESULTS, NULL), sources=filled(sources, FUSED_SOURCES, NULL),
            numbers=numbers, count=count,
        )  # fmt: skip

    def strided(results: list[Pointer], sources: list[Pointer], count: int, geometry: Geometry) -> KernelArguments:
        return arguments.fused_strided(
            results=filled(results, FUSED_RESULTS, NULL), sources=filled(sources, FUSED_SOURCES, NULL),
            numbers=numbers, count=count, geometry=Geometry((*geometry, *padding)),
        )  # fmt: skip

    family = family_of(kernel)
    kernels = Kernels(family, family, contiguous, strided)
    return several(build, kernels, operands, [result.dtype for result in kernel.results])


@lru_cache(maxsize=1024)
def family_of(kernel: FusedFunction) -> str:
    """The family of a kernel; those that do the same share it."""
    sources = [(name, source.dtype.cpp) for name, source in kernel.sources.items()]
    types = [result.dtype.cpp for result in kernel.results]
    statements = Statements(kernel, "access.arguments.numbers[{}]".format)
    terms = statements.terms
    terms |= {name: f"{name}[i]" for name in kernel.sources}
    aligned = [
        f"tallow::is_aligned<length>(pointer_to<const {cpp}>(arguments.sources[{index}]))"
        for index, (_, cpp) in enumerate(sources)
    ]
    runs = [
        f"is_run<N>(pointer_to<const {cpp}>(arguments.sources[{k}]) + offsets[{k}], arguments.strides[{k} * max_rank])"
        for k, (_, cpp) in enumerate(sources)
    ]
    steps = [*map(statements.of_map, kernel.steps)]
    steps += [f"r{index}[i] = {terms.get(name, name)};" for index, (name, *_) in enumerate(kernel.results)]
    return composed(
        "fused",
        kernel.name,
        _SOURCE,
        sources=len(sources),
        types=", ".join([*[cpp for _, cpp in sources], *types]),
        aligned=" &&\n               ".join(aligned),
        runs=" &&\n               ".join(runs),
        loads="\n        ".join(
            f"const auto {name} = access.template load<{cpp}, {index}>();" for index, (name, cpp) in enumerate(sources)
        ),
        results="\n        ".join(f"typename Access::template Of<{cpp}> r{k};" for k, cpp in enumerate(types)),
        steps="\n            ".join(steps),
        stores="\n        ".join(f"access.template store<{index}>(r{index});" for index in range(len(types))),
    )
