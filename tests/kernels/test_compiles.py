"""Every kernel compiles for every target without a warning, and spills no register."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import own_spec
import pytest
import tallow as tl
from opgen.compile import compile_objects
from opgen.resources import Usage, read_report
from tallow.runtime.backends.gpu_backend.execute import kernels
from tallow.runtime.backends.gpu_backend.ops import row_formula
from tallow.runtime.backends.gpu_backend.ops.fused import family_of
from tallow.runtime.backends.gpu_backend.ops.fused_composition import formula_of
from tallow.runtime.graph.fused_gradient import gradient_of
from tallow.runtime.graph.traced import Trace
from tallow.runtime.program.fused_kernels import kernels_of

from .conftest import KERNELS, Machine, check_addresses, names

SPEC = own_spec.read()
GPUS = [backend.code_objects for backend in SPEC.backends if backend.code_objects and not backend.code_objects.host]
TARGETS = [target for code_objects in GPUS for target in code_objects.targets]
ON_GPUS = [family for family in SPEC.kernels if family.kernels and not family.host]
HAS = {target.name: target.has.keys() for targets in SPEC.targets.values() for target in targets}
OBJECTS = [(target, family.name) for target in TARGETS for family in ON_GPUS if family.needs.keys() <= HAS[target]]
# What every target has.
FAMILIES = [family.name for family in ON_GPUS if not family.needs]
# A kernel, its op, which is its name before the first dtype or width, that dtype, and the function that it calls.
PARTS = re.compile(r"^TALLOW_KERNEL\(((\w+?)(?:_((?:b|bf|f|i|u)\d+(?:e4m3)?)\w*)?), \w+, (\w+)", re.MULTILINE)
# The registers and the bytes that CUDA's own subroutines may take of the stack: those of its divisions save registers
# of their caller, those of sin and cos have the product with a long 1 / pi there, for numbers that are far from 0.
CUDA_STACK = (3, 40)
# The same of kernels of 64 bits whose registers are bounded, so that enough blocks are resident.
CUDA_STACKS = {
    # The compiler keeps to 128 registers here.
    "gru_sequence_gradient_f32_8": (11, 24),
    "lstm_sequence_gradient_bf16_8": (7, 24),
    "lstm_sequence_gradient_f16_8": (7, 24),
    "max_pool_shares_bf16": (5, 24),
    "max_pool_shares_f16": (5, 24),
    "silu_mul_f64_number_contiguous": (12, 16),
    "gelu_mul_f64_number_contiguous": (12, 16),
    # On sm_100 its divisions save what is live across them.
    "gru_gradient_f64_1": (5, 16),
    # On sm_80, tiles of scores and results take all the registers that a thread may have.
    "attention_bf16_128_tiles": (7, 24),
    "attention_f16_128_tiles": (7, 24),
    "attention_bf16_256_any": (4, 16),
    "attention_f16_256_any": (5, 16),
    # The same on sm_100.
    "attention_f32_256_tiles": (13, 32),
    "attention_gradient_f32_128_queries": (15, 40),
    "attention_gradient_f32_256_queries": (12, 24),
    **dict.fromkeys((f"matmul_f32_tiles_{layout}" for layout in ("nn", "nt", "tn", "tt")), (11, 48)),
    # The numbers of x that are on their way, and sums of 16 rows of them.
    "block_product_Q2K_8": (8, 32),
    "block_product_Q3K_8": (3, 16),
    **dict.fromkeys(
        (f"{way}_product_{format.name.upper()}_16" for way in ("block", "rounded") for format in SPEC.formats), (6, 24)
    ),
    "block_product_Q2K_16": (11, 32),
    "block_product_IQ2_XS_16": (7, 24),
    # With eight blocks a multiprocessor a thread has 32 registers, of which these need a few more.
    **dict.fromkeys((f"{op}_{dtype}_contiguous" for op in ("tan", "acosh") for dtype in ("bf16", "f16")), (4, 32)),
    "powf_bf16_contiguous": (14, 48),
    "powf_f16_contiguous": (9, 32),
    "sum_powers_f8e4m3_columns": (10, 8),
    "sum_powers_f8e5m2_columns": (10, 8),
    "logsumexp_f8e4m3_columns": (10, 8),
    "logsumexp_f8e5m2_columns": (10, 8),
    "scatter_add_complex128_waves": (3, 8),
    "pow_complex64_number_contiguous": (2, 48),
    "cos_complex128_contiguous": (2, 48),
    "scatter_add_f64_waves": (0, 8),
    "scatter_add_i64_waves": (0, 8),
    "scatter_add_u64_waves": (0, 8),
    "scatter_add_complex64_waves": (0, 8),
}
# Scalar registers that go to lanes of vector registers: constants of exponentials of doubles, and fields of indexes.
SCALAR_SPILLS = {
    "cross_entropy_f64_scalar4": 22,
    "smoothed_cross_entropy_f64_scalar4": 30,
    "smoothed_cross_entropy_without_weight_f64_scalar4": 14,
    "gelu_erf_gradient_f64_contiguous": 10,
    "mish_gradient_f64_contiguous": 9,
    "pow_gradients_f64_contiguous": 11,
    "logsumexp_f64_columns": 2,
    # The same of complex numbers, and of powers; and what gradients of heads of 64 know of two operands.
    "sin_complex128_contiguous": 2,
    "cos_complex128_contiguous": 2,
    "sinh_complex128_contiguous": 2,
    "cosh_complex128_contiguous": 2,
    "pow_complex64_number_contiguous": 1,
    # The same with waves of 32.
    "pow_complex64_contiguous": 1,
    "powf_complex64_contiguous": 1,
    "erf_f64_contiguous": 1,
    "gelu_erf_f64_contiguous": 1,
    "expm1_complex128_contiguous": 3,
    "tan_complex128_contiguous": 18,
    "tanh_complex128_contiguous": 18,
    "pow_gradients_f32_contiguous": 2,
    "attention_gradient_bf16_64_queries": 2,
    "attention_gradient_f16_64_queries": 2,
    # Of three of a hundred alike: the masks of lanes that reduce a row.
    "sum_i64_bool_rows": 5,
    "count_zero_f8e4m3_rows": 22,
    "sum_powers_bf16_rows": 11,
    # Masks of which of a lane's elements is the target: few with clang 19, most with hipcc 5.2.
    "cross_entropy_bf16_vector4": 4,
    "cross_entropy_bf16_vector8": 10,
    "cross_entropy_f16_vector8": 2,
    "cross_entropy_f32_vector8": 23,
    "smoothed_cross_entropy_bf16_vector8": 14,
    "smoothed_cross_entropy_f16_vector8": 10,
    "smoothed_cross_entropy_f32_vector8": 6,
    **{f"smoothed_cross_entropy_{dtype}_pair{length}": 25 for dtype in ("bf16", "f16") for length in (16, 32)},
    # Exponentials of states that are joined, with hipcc 5.2.
    **{f"logcumsumexp_{dtype}_rows": 21 for dtype in ("f8e4m3", "f8e5m2")},
    # Three axes of windows, and eight comparisons of each.
    "max_pool_shares_bf16": 4,
    "max_pool_shares_f16": 2,
    # Masks of which of sixteen pairs are equal, or NaN.
    **dict.fromkeys((f"{op}_gradients_f8e4m3_contiguous" for op in ("minimum", "maximum")), 2),
}
# The stack of waves of 64, in bytes: two numbers of f64 in long rows, and packs of scans, which hipcc 5.2 leaves there.
WAVE64_STACKS = {
    **dict.fromkeys(
        ("layer_norm_f64_scalar_long", "layer_norm_gradient_f64_scalar_long", "rms_norm_gradient_f64_scalar_long"), 16
    ),
    **{f"logcumsumexp_{dtype}_rows": 32 for dtype in ("bf16", "f16")},
}
# Vector registers that go to AMD's accumulation registers: of lanes that have sums of lines of 256 elements.
VECTOR_SPILLS = {
    "attention_gradient_f32_256_queries": 3,
    # Weights of 128 units, of which a lane has 144 to 200.
    "lstm_block_f32": 160,
    "lstm_block_f16": 114,
    "gru_block_f32": 16,
    "gru_block_f16": 16,
}
# The vector registers that waves of 32 keep on the stack, and its bytes: gradients of larger heads. With fewer elements
# of a head at once nothing would be spilled, but scores would be made again for each of more turns.
WAVE32_STACKS = {
    "attention_gradient_bf16_128_keys": (19, 80),
    "attention_gradient_bf16_256_keys": (20, 84),
    "attention_gradient_f16_128_keys": (19, 80),
    "attention_gradient_f16_256_keys": (20, 84),
    "attention_gradient_f32_128_keys": (68, 276),
    "attention_gradient_f32_256_keys": (72, 292),
    "attention_gradient_f32_256_queries": (35, 132),
    # Weights of an LSTM of 128 units: 256 KiB.
    **{f"lstm_block_{dtype}": (4, 20) for dtype in ("bf16", "f16", "f32")},
    **{f"lstm_block_gradient_{dtype}": (20, 76) for dtype in ("bf16", "f16", "f32")},
}
# RDNA 2 has no matrix cores, and its compiler keeps more of a head at once.
RDNA2_STACKS = WAVE32_STACKS | {
    "attention_gradient_bf16_64_keys": (9, 40),
    "attention_gradient_f16_64_keys": (41, 160),
    "attention_gradient_bf16_128_keys": (22, 84),
    "attention_gradient_f16_128_keys": (41, 160),
    **{f"lstm_block_{dtype}": (112, 240) for dtype in ("bf16", "f16", "f32")},
    **{f"lstm_block_gradient_{dtype}": (47, 144) for dtype in ("bf16", "f16", "f32")},
    **{f"gru_block_gradient_{dtype}": (11, 48) for dtype in ("bf16", "f16", "f32")},
}
WITHOUT_SUBROUTINES = ("copy", "fill", "index")
# Families whose samples are compiled together, because most of a compiler's time goes into the headers that they
# share. Those that define the same names stand apart. The first group has all others.
APART = (
    [
        *(
            "attention",
            "block_product",
            "block_tiles",
            "conv",
            "copy",
            "index",
            "make_x",
            "matmul",
            "pool",
            "quantized",
        ),
        "upsample",
    ],
    ["fused", "graph", "scan", "sort"],
)
TOGETHER = ([family for family in FAMILIES if family not in chain(*APART)], *APART)
# The first target of each generation, such as gfx11, and vendor.
GENERATIONS = {target[:-2]: target for target in reversed(TARGETS)}


def is_nvidia(target: str) -> bool:
    return target.startswith("sm_")


def check(
    target: str,
    family: str,
    usages: Iterable[Usage],
    names: Iterable[str],
    scalar_spills: Mapping[str, int] = SCALAR_SPILLS,
) -> None:
    by_name = {usage.kernel: usage for usage in usages}
    assert sorted(by_name) == sorted(names)
    is_cuda = is_nvidia(target)
    usual = CUDA_STACK if is_cuda and family not in WITHOUT_SUBROUTINES else (0, 0)
    for usage in by_name.values():
        own = (VECTOR_SPILLS.get(usage.kernel, 0), WAVE64_STACKS.get(usage.kernel, 0))
        if target.startswith(("gfx10", "gfx11", "gfx12")):
            stacks = RDNA2_STACKS if target.startswith("gfx10") else WAVE32_STACKS
            own = stacks.get(usage.kernel, (0, 0))
        spills, scratch = CUDA_STACKS.get(usage.kernel, usual) if is_cuda else own
        assert usage.spills <= spills, usage
        assert usage.scratch <= scratch, usage
        assert usage.sgpr_spills <= scalar_spills.get(usage.kernel, 0), usage


def sample(machine: Machine, target: str, families: Iterable[str], full: bool) -> dict[str, list[str]]:
    """Kernels of some families, none where another target has them: of every other function and of each dtype one;
    with `full` of each function, and of each kind of dtype in each family.

    The families take turns among the compilers of a vendor, and among the targets of a compiler. For the HIP runtime
    for the CPU each kernel is compiled in each dtype.
    """
    compilers = machine.shared([other for other in TARGETS if is_nvidia(other) == is_nvidia(target)])
    group = TOGETHER.index([*families])
    targets = compilers[group % len(compilers)]
    if target != targets[group % len(targets)]:
        return {}
    chosen: dict[str, list[str]] = {family: [] for family in families}
    every = {family: PARTS.findall((KERNELS / f"{family}.hip").read_text(encoding="utf-8")) for family in families}
    functions = sorted({f"{family} {function}" for family, members in every.items() for *_, function in members})
    # NVRTC compiles one of each, and with the HIP runtime for the CPU all are compiled.
    seen = set() if full else {*functions[1::2]}
    for family, members in every.items():
        for name, _, dtype, function in random.Random(family).sample(members, len(members)):
            parts = {dtype, f"{family} {function}"}
            if full:
                parts.add(f"{family} {dtype.rstrip('0123456789')}")
            if not parts <= seen:
                chosen[family].append(name)
                seen |= parts
    return chosen


@pytest.mark.parametrize("families", TOGETHER, ids=lambda families: families[0])
@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_compiles(
    machine: Machine,
    reduced: Callable[[str, Iterable[str]], Path],
    tmp_path: Path,
    target: str,
    families: Sequence[str],
    full: bool,
) -> None:
    if is_nvidia(target) and not full:
        pytest.skip("NVRTC compiles a sample in tests/package/test_cuda_compiler.py, and nvcc one with --full")
    machine.compiler(target)
    chosen = sample(machine, target, families, full)
    if not chosen:
        pytest.skip("another target has this sample")
    includes = [f'#include "{reduced(family, expected).name}"\n' for family, expected in chosen.items()]
    together = tmp_path / "sample.hip"
    together.write_text("".join(includes), encoding="utf-8")
    result = machine.compile(target, together, tmp_path)
    check_addresses(target, result.file)
    usages = read_report(result.messages)
    assert len(usages) == sum(map(len, chosen.values()))
    for family, expected in chosen.items():
        check(target, family, [usage for usage in usages if usage.kernel in expected], expected)


def composed() -> str:
    """The family of a fused function of every kind of ops."""
    trace = Trace("composed", tl.Device.cpu(), (0.5,))
    operands = [tl.Tensor([[1, 2, 3]], dtype=dtype) for dtype in ("f32", "bf16", "i64", "u8")]
    x, y, z, condition, number = trace.proxies([*operands, 0.5])
    scaled = (x * number + y.to_dtype("f32")).clamp(-1, 1).silu()
    chosen = condition.where(scaled.to_dtype("bf16"), y / 3)
    return family_of(trace.function([chosen, z * 3 + scaled.to_dtype("i64"), scaled > 0, scaled.powf(number)]))


@pytest.mark.parametrize(
    "target",
    [pytest.param(it, marks=[] if it in GENERATIONS.values() else pytest.mark.full) for it in TARGETS],
)
def test_a_fused_function_compiles(
    machine: Machine, reduced: Callable[[str, Iterable[str]], Path], tmp_path: Path, target: str
) -> None:
    family = composed()
    source = reduced("fused", [])
    source.write_text(kernels._composed[family], encoding="utf-8")
    result = machine.compile(target, source, tmp_path)
    check(target, "fused", read_report(result.messages), [f"{family}_contiguous", f"{family}_strided"])


def composed_rows() -> row_formula.RowFormula:
    """A fused function of two row ops and two reductions, and of operands and results of several dtypes."""
    trace = Trace("composed_rows", tl.Device.cpu(), (0.5,))
    operands = [tl.Tensor([[1, 2, 3]], dtype=dtype) for dtype in ("bf16", "f32", "u8")]
    x, y, condition, number = trace.proxies([*operands, 0.5])
    weights = (x * number + y.to_dtype("bf16")).softmin(-1)
    chosen = condition.where(weights, x).softmin(-1, temperature=number)
    results = [weights.to_dtype("f32"), chosen.silu() / x.norm(-1, keepdim=True), x.max(-1)]
    ((kernel, shape, _, rows),) = kernels_of(trace.function(results))
    assert rows is not None
    return formula_of(kernel, shape, rows)


def composed_gradient() -> row_formula.RowFormula:
    """A gradient of maps around a norm, with the sums over rows of its vectors."""
    trace = Trace("composed_gradient", tl.Device.cpu(), ())
    shapes = [(2, 64), (2, 64), (64,), (64,)]
    operands = [tl.Tensor(np.zeros(shape), dtype="bf16") for shape in shapes]
    x, y, weight, bias = trace.proxies(operands)
    function = trace.function([x.layer_norm(weight, bias).gelu() * y])
    gradient = gradient_of(function, (0, 1, 2, 3), (), tuple(function.layouts), ())
    assert gradient is not None
    assert gradient.function is not None
    ((kernel, shape, _, rows),) = kernels_of(gradient.function)
    assert rows is not None
    return formula_of(kernel, shape, rows)


def composed_loss() -> row_formula.RowFormula:
    """The gradient of elements that an index of each row names, with the sum over rows of a bias."""
    trace = Trace("composed_loss", tl.Device.cpu(), ())
    operands = [
        tl.Tensor(np.zeros((2, 64)), dtype="bf16"),
        tl.Tensor([[1], [2]]),
        tl.Tensor(np.zeros(64), dtype="bf16"),
    ]
    x, index, bias = trace.proxies(operands)
    function = trace.function([(x + bias).log_softmax(-1).gather(index, -1)])
    gradient = gradient_of(function, (0, 2), (), tuple(function.layouts), ())
    assert gradient is not None
    assert gradient.function is not None
    ((kernel, shape, _, rows),) = kernels_of(gradient.function)
    assert rows is not None
    return formula_of(kernel, shape, rows)


@pytest.mark.parametrize(
    ("compose", "target"),
    [
        pytest.param(compose, it, marks=[] if (compose, it) == (composed_rows, "gfx942") else pytest.mark.full)
        for compose in (composed_rows, composed_gradient, composed_loss)
        for it in TARGETS
    ],
)
def test_a_fused_function_of_rows_compiles(
    machine: Machine,
    reduced: Callable[[str, Iterable[str]], Path],
    tmp_path: Path,
    compose: Callable[[], row_formula.RowFormula],
    target: str,
    full: bool,
) -> None:
    formula = compose()
    # A gradient with sums over rows has no columns.
    chosen = ("vector4", "pair_long", "vector_columns") if full and compose is composed_rows else ("vector4",)
    names = [f"{formula.op}_bf16_{kernel}" for kernel in chosen]
    source = reduced("fused_rows", [])
    text = kernels._composed[formula.family]
    source.write_text(kernels._KERNEL.sub(lambda kernel: kernel[0] if kernel[1] in names else "", text))
    result = machine.compile(target, source, tmp_path)
    # Masks of which elements are below another, of a dozen maps.
    check(target, "fused_rows", read_report(result.messages), names, dict.fromkeys(names, 6))


@pytest.mark.parametrize(("target", "lanes"), [("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1201", 32)])
def test_the_wave_size_is_known_without_the_macros_that_newer_compilers_deprecate(
    machine: Machine, reduced: Callable[[str, Iterable[str]], Path], tmp_path: Path, target: str, lanes: int
) -> None:
    source = reduced("fill", ["fill_b8_contiguous"])
    macros = ("__AMDGCN_WAVEFRONT_SIZE", "__AMDGCN_WAVEFRONT_SIZE__")
    pragmas = [f"#pragma clang deprecated({macro})\n" for macro in macros]
    text = source.read_text(encoding="utf-8")
    check = f'#include "wave.hpp"\nstatic_assert(tallow::wave_size == {lanes});\n'
    # A warning is an error.
    source.write_text("".join([*(f"#define {macro} {lanes}\n" for macro in macros), *pragmas, text, check]))
    machine.compile(target, source, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("target", "family"), OBJECTS)
def test_a_family_compiles(machine: Machine, target: str, family: str) -> None:
    compilers = {target: machine.compiler(target)}
    (result,) = compile_objects([machine.objects[target, family]], compilers, 1, lambda result: None)
    assert result.status != "failed", result.messages
    # Products of groups of waves that wait for each other take twice as long.
    assert "wgmma.mma_async instructions are serialized" not in result.messages, result.messages
    check_addresses(target, result.object.file)
    check(target, family, result.usages, names(family))
