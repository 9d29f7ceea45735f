"""The sign of zero on AMD hardware, which no test runs on: what compilers and the device library make of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest

from .conftest import Machine, machine_code, names

Reduced = Callable[[str, Iterable[str]], Path]

# Those of which f(-0.0) is -0.0.
FUNCTORS = (
    *("Sin", "Tanh", "Sqrt", "Erf", "Gelu", "GeluErf", "Silu", "Mish", "Hardswish"),
    *("Floor", "Ceil", "Round", "Log1p", "Expm1"),
)
ZEROS = {"float": "-0.0f", "double": "-0.0", "f16": "f16{0x8000u}"}
PROBE = """\
extern "C" __global__ void {functor}_{dtype}(tallow::UnaryContiguous arguments) {{
    using namespace tallow;
    *pointer_to<compute_type<{dtype}>>(arguments.result) =
        {functor}::apply(argument_of<{functor}::as_fast_math>({zero}));
}}
"""
# Without --full, only these kernels, whose results are products.
SAMPLE = ("gelu_f16_", "silu_f16_", "powf_f16_", "elu_f16_")


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_functions_keep_the_sign_of_zero(machine: Machine, reduced: Reduced, tmp_path: Path, target: str) -> None:
    """Of a constant, the compiler works out what the device library makes, and stores that."""
    source = reduced("unary", [])
    probes = {f"{functor}_{dtype}": (functor, dtype) for functor, dtype in product(FUNCTORS, ZEROS)}
    with source.open("a", encoding="utf-8") as file:
        for functor, dtype in probes.values():
            file.write(PROBE.format(functor=functor, dtype=dtype, zero=ZEROS[dtype]))
    code = machine_code(machine.compile(target, source, tmp_path).file)
    for probe in probes:
        if probe == "Sqrt_f16":
            # The instruction gives -0.0 of -0.0, as AMD documents it; compilers make no constant of it.
            assert "v_sqrt_f32" in code[probe]
            continue
        assert not re.search(r"\bv_(?:mul|add|fma)", code[probe]), f"{probe} is not constant"
        # 0x80000000, which is 1 with its bits reversed.
        assert re.search(r"\bv_bfrev_b32_e32 v\d+, 1\b", code[probe]), probe


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_products_are_rounded_to_f16_without_a_sum(
    machine: Machine, reduced: Reduced, tmp_path: Path, full: bool, target: str
) -> None:
    """LLVM joins a product and its rounding to an instruction that adds 0.0, and -0.0 + 0.0 is 0.0."""
    kernels = [name for name in names("unary") if "_f16_" in name and (full or name.startswith(SAMPLE))]
    assert len(kernels) >= 2 * len(SAMPLE)
    code = machine_code(machine.compile(target, reduced("unary", kernels), tmp_path).file)
    for kernel in kernels:
        assert not re.search(r"\bv_(?:fma|mad)_mix\w* .*, 0(?:\s|$)", code[kernel], re.MULTILINE), kernel
