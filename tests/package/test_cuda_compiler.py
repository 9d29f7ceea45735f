"""Compilation by NVRTC: every family compiles without a system header, and what does not says why. No GPU needed."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import tallow as tl
from tallow.kernels.arguments import FAMILIES as NEEDS
from tallow.kernels.constants import ROWS
from tallow.kernels.targets import TARGETS
from tallow.runtime.base.error import BackendUnavailable, CompilationFailed
from tallow.runtime.kernels import code_object
from tallow.runtime.kernels.code_cache import CodeCache, cache_folder

pytest.importorskip("cuda.bindings")

from tallow.compilers import cuda as calls
from tallow.runtime.backends.gpu_backend.driver.elf import elf_size
from tallow.runtime.backends.gpu_backend.driver.error import LibraryError
from tallow.runtime.backends.gpu_backend.driver.run_time_compiler import RunTimeCompiler
from tallow.runtime.backends.gpu_backend.execute import kernels
from tallow.runtime.backends.gpu_backend.ops.fused import family_of
from tallow.runtime.graph.traced import Trace

# The family of fused kernels has none of its own.
FAMILIES = sorted({path.stem for path in code_object.SOURCES.glob("*.hip")} - {"fused"})
# A kernel, the function that it calls, and the functor of that.
KERNEL = re.compile(r"^TALLOW_KERNEL\((\w+), \w+, (\w+)<?(\w*)", re.MULTILINE)
# Functors that write numbers of rows alone: NVRTC has no arrays of no elements.
WITHOUT_RESULTS = re.compile(r"^struct (\w+) \{\n.*operands = .*\n.*\bresults = 0;", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
GENERIC_LAMBDA = re.compile(r"\[[^\[\]]*\]\([^()]*\bauto\b")


@pytest.fixture
def compiler() -> RunTimeCompiler:
    compiler = RunTimeCompiler(calls, str, 32)
    try:
        assert re.fullmatch(r"NVRTC \d+\.\d+", compiler.version)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    return compiler


def test_rows_of_16_bits_are_written_by_whole_accesses(compiler, monkeypatch, full):
    """NVIDIA's compiler splits stores of 16 bytes to an address without an offset."""
    source = kernels._source("row")
    written = [op for op, facts in ROWS.items() if facts.results and not facts.totals]
    names = re.findall(rf"^TALLOW_KERNEL\(((?:{'|'.join(written)})_b?f16_vector\d),", source, re.MULTILINE)
    chosen = {*names} if full else {names[0], names[-1]}
    source = kernels._KERNEL.sub(lambda kernel: kernel[0] if kernel[1] in chosen else "", source)
    monkeypatch.setattr(calls.binding, "nvrtcGetCUBINSize", calls.binding.nvrtcGetPTXSize)
    monkeypatch.setattr(calls.binding, "nvrtcGetCUBIN", calls.binding.nvrtcGetPTX)
    text = compiler.compile(source, "row", kernels.headers(), "compute_90", compiler.package_options).decode()
    entries = text.split(".entry ")[1:]
    assert len(entries) == len(chosen)
    for entry in entries:
        assert {*re.findall(r"st\.global\S*", entry)} == {"st.global.v4.b32"}, entry.split("(")[0]


@pytest.mark.parametrize(
    ("target", "family"),
    [
        pytest.param(target.name, family, marks=[] if target.name == "sm_90a" else pytest.mark.full)
        for target in TARGETS["cuda"]
        for family in FAMILIES
        if {*NEEDS.get(family, ())} <= {*target.has}
    ],
)
def test_a_sample_of_a_family_compiles(compiler, target, family, full):
    """All of the sample at once, since headers take most of the time; and once, as long as the sources are the same.

    NVRTC refuses the same sources when it optimises little, in half of the time; --full compiles as the package does.
    """
    options = (*compiler.package_options, *(() if full else ("--Ofast-compile=max",)))
    source, headers = kernels._source(family), kernels.headers()
    # NVRTC refuses what nvcc takes, so one kernel of each function is compiled: the first, of attention that of small
    # heads; and one of each functor without results.
    special = {functor: functor for functor in WITHOUT_RESULTS.findall(source)}
    results = {(function, special.get(functor)): name for name, function, functor in reversed(KERNEL.findall(source))}
    chosen = set(results.values())
    source = kernels._KERNEL.sub(lambda kernel: kernel[0] if kernel[1] in chosen else "", source)
    code = CodeCache(cache_folder()).get(
        (compiler.version, *compiler.with_options(target, options), source, *headers.values()),
        lambda: compiler.compile(source, family, headers, target, options),
        bytes,
    )
    assert elf_size(code) == len(code)
    for name in chosen:
        assert f".text.{name}\0".encode() in code


def test_no_kernel_has_a_generic_lambda():
    """NVRTC 13.0 takes them for functions of the host; later ones, which tests may find, do not."""
    headers, reached = kernels.headers(), set()
    waiting = [name for family in FAMILIES for name in INCLUDE.findall(kernels._source(family))]
    while waiting:
        name = waiting.pop()
        if name in headers and name not in reached:
            reached.add(name)
            waiting += INCLUDE.findall(headers[name])
    assert {"reduce.hpp", "wave.hpp"} < reached
    assert not [name for name in sorted(reached) if GENERIC_LAMBDA.search(headers[name])]


def test_a_fused_function_compiles(compiler):
    trace = Trace("composed", tl.Device.cpu(), (0.5,))
    x, y, number = trace.proxies([tl.Tensor([1.0]), tl.Tensor([1.0], dtype="bf16"), 0.5])
    result = (x.silu() > number).where(y, x.to_dtype("bf16") / 3)
    family = family_of(trace.function([result, x.clamp(number, 1) ** 3]))
    for name in (f"{family}_contiguous", f"{family}_strided"):
        code = compiler.compile(kernels.one_kernel(family, name), name, kernels.headers(), "sm_90a")
        assert f".text.{name}\0".encode() in code


@pytest.mark.parametrize(("major", "options"), [(13, ("--minimal",)), (12, ())])
def test_kernels_of_the_package_need_less_of_a_new_compiler(monkeypatch, major, options):
    monkeypatch.setattr(calls, "binding", SimpleNamespace(nvrtcVersion=lambda: (Status(0), major, 9)))
    assert RunTimeCompiler(calls, str, 32).package_options == options


def test_products_and_sums_are_not_contracted(compiler):
    assert "--fmad=false" in compiler.options("sm_90a")
    assert "--gpu-architecture=sm_90a" in compiler.options("sm_90a")


def test_a_source_that_does_not_compile(compiler):
    with pytest.raises(
        CompilationFailed, match=r"(?s)does not compile kernel broken for sm_90a.*broken\.hip\(2\).*nonsense"
    ):
        compiler.compile("\nnonsense", "broken", {}, "sm_90a")


def test_a_header_that_is_missing(compiler):
    with pytest.raises(CompilationFailed, match=r"gone\.hpp"):
        compiler.compile('#include "gone.hpp"', "broken", {}, "sm_90a")


def test_an_unknown_target(compiler):
    with pytest.raises(
        CompilationFailed, match=r"(?s)for sm_000; where it does not know the target, install a newer.*arch"
    ):
        compiler.compile("", "empty", {}, "sm_000")


class Status(int):
    """A status of NVRTC."""

    name = "NVRTC_ERROR_OUT_OF_MEMORY"


def test_a_compiler_that_fails(monkeypatch):
    failing = SimpleNamespace(
        nvrtcVersion=lambda: (Status(0), 13, 0), nvrtcCreateProgram=lambda *arguments: (Status(1), None)
    )
    monkeypatch.setattr(calls, "binding", failing)
    message = r"nvrtcCreateProgram \(empty\): NVRTC_ERROR_OUT_OF_MEMORY; install an NVRTC"
    with pytest.raises(LibraryError, match=message):
        RunTimeCompiler(calls, str, 32).compile("", "empty", {}, "sm_90a")


def test_a_compiler_that_is_missing(monkeypatch):
    def missing():
        raise RuntimeError("Failed to dlopen libnvrtc.so.13")

    monkeypatch.setattr(calls, "binding", SimpleNamespace(nvrtcVersion=missing))
    with pytest.raises(
        BackendUnavailable,
        match=r"libnvrtc\.so\.13\); pip install 'cuda-toolkit\[nvrtc\]==13\.\*', or install a tallow",
    ):
        RunTimeCompiler(calls, str, 32).compile("", "empty", {}, "sm_90a")
