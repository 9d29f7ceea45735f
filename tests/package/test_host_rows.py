"""Row formulas of any kind by the kernels for the host, which take any functor."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tallow as tl
from tallow import DType, Storage, Tensor
from tallow.dtype import Array
from tallow.kernels.toolchains import TOOLCHAINS
from tallow.runtime.backends.cpu_backend.kernels import HostKernels
from tallow.runtime.backends.cpu_backend.ops import native_row
from tallow.runtime.compilation import host_compiler
from tallow.runtime.kernels import code_object
from tallow.runtime.kernels.code_cache import CodeCache, cache_folder
from tallow.runtime.program.values import Buffer, Operand

from .row_functors import ENTROPY, FUNCTORS, NORM_GRADIENT, POSITIONS, RANGES, SOFTMIN, Functor

KERNELS: Final = HostKernels.open()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels for this machine; run 'opgen compile --host'")

CLANG: Final = [path for name in TOOLCHAINS[0].compilers if (path := shutil.which(name)) is not None]
# By the first letters of machines of a kind, the target that most of them have.
BASELINES: Final = {target[:3]: target for target in TOOLCHAINS[0].targets}
FAMILY: Final = "row_functors"
KERNEL: Final = re.compile(r"^TALLOW_KERNEL\(.*\n", re.MULTILINE)
TOLERANCES: Final = {"f64": 1e-13, "f32": 3e-6, "f16": 2e-3, "bf16": 1.6e-2}
# A functor that names values which several stages need, and says which operands a stage reads.
_DERIVED: Final = """
struct DerivedSoftmin {
    static constexpr uint32_t operands = 2, results = 1, parameters = 1, passes = 2, known = 3, derived = 2;
    template <uint32_t Pass> struct Reduced;
    template <uint32_t Stage> static constexpr uint32_t available = Stage == 0 ? 1 : 2;
    template <uint32_t Stage> static constexpr uint32_t reads = Stage < 2 ? 1 : 3;
    template <uint32_t Stage, typename T>
    static TALLOW_INLINE void derive(const RowOf<T, DerivedSoftmin>& row, compute_type<T> (&elements)[4],
                                     compute_type<T>) {
        if constexpr (Stage == 0)
            elements[2] = -elements[0] / row.parameters[0];
        else if constexpr (Stage == 1)
            elements[3] = exp(elements[2] - row.known[0]);
    }
    template <uint32_t Pass, typename T>
    static TALLOW_INLINE void contribute(const RowOf<T, DerivedSoftmin>&, const compute_type<T> (&elements)[4],
                                         compute_type<T>, compute_type<T> (&numbers)[1]) {
        numbers[0] = elements[2 + Pass];
    }
    template <uint32_t Pass, typename T> static TALLOW_INLINE void finish(RowOf<T, DerivedSoftmin>& row) {
        if constexpr (Pass == 1)
            row.known[2] = compute_type<T>{1} / row.known[1];
    }
    template <typename T>
    static TALLOW_INLINE void compute(const RowOf<T, DerivedSoftmin>& row, const compute_type<T> (&elements)[4],
                                      compute_type<T>, compute_type<T> (&outputs)[1]) {
        outputs[0] = elements[3] * row.known[2] * elements[1];
    }
};
template <> struct DerivedSoftmin::Reduced<0> : RowJoins<0, JoinHighest> {};
template <> struct DerivedSoftmin::Reduced<1> : RowJoins<1, JoinSums> {};
"""
DERIVED: Final = SOFTMIN._replace(
    name="DerivedSoftmin",
    operands=("rl", "rl"),
    oracle=lambda x, weight, temperature: SOFTMIN.oracle(x, temperature) * weight,
)
# Each takes a second to compile.
CHOSEN: Final = (DERIVED, ENTROPY, NORM_GRADIENT, POSITIONS, RANGES)
ALL: Final = (*CHOSEN, *(each for each in FUNCTORS if each not in CHOSEN))


@pytest.fixture(scope="module")
def dtypes(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Compile every functor for these dtypes: each compute type, and one that is converted."""
    assert KERNELS is not None
    is_full = pytestconfig.getoption("full")
    names = ["f32", "bf16", "f16", "f64"] if is_full else ["f32", "bf16"]
    compiled = ALL if is_full else CHOSEN
    lines = [
        f"TALLOW_KERNEL({each.name}_{name}, RowFormula, row_formula<{each.name}, {DType(name).cpp}>)"
        for each in compiled
        for name in names
    ]
    functors = "\n".join([*(each.text() for each in compiled if each is not DERIVED), _DERIVED, *lines])
    # Without the kernels of the package's own row ops.
    headers = KERNEL.sub("", host_compiler.read_source("host_row.cpp"))
    text = f"{headers}\nnamespace tallow {{\n{functors}\n}} // namespace tallow\n"
    target = host_compiler.native_target()
    assert target is not None
    compiler, _ = host_compiler.first_compiler(target)
    made_of = [text, *host_compiler.made_of("host_row.cpp", target)]
    path = Path(tmp_path_factory.mktemp("code"), "functors.so")
    cache = CodeCache(cache_folder())
    path.write_bytes(cache.get(made_of, lambda: compiler.compile(text, "row_functors.cpp"), bytes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS._libraries, FAMILY, ctypes.CDLL(str(path)))
        yield names


def run(functor: Functor, dim: int, operands: list[Tensor]) -> list[Tensor]:
    """The results of a functor."""

    def along(build: Any, *operands: Operand) -> tuple[Buffer, ...]:
        kernel = native_row.RowKernel(FAMILY, f"{functor.name}_{operands[0].dtype.value}", functor.facts)
        return native_row.along(build, kernel, dim, operands, functor.parameters)

    inputs = tuple([Operand(each.storage.inner, each.layout) for each in operands])
    storages = tl.Device("cpu").inner.planned(None, 0, along, inputs, {})
    return [Tensor.from_storage(Storage(each), operands[0].shape) for each in storages]


def numbers(functor: Functor, shape: tuple[int, ...], dim: int, dtype: str) -> list[Tensor]:
    """Operands of a functor, of which rows are along a dim of a shape, rounded to a dtype."""
    generator = np.random.default_rng(sum(shape))
    dims = {"rl": shape, "l": (1,) * dim + (shape[dim],) + (1,) * (len(shape) - dim - 1)}
    dims["r"] = tuple(1 if d == dim else size for d, size in enumerate(shape))
    return [Tensor(generator.normal(size=dims[each])).to_dtype(dtype) for each in functor.operands]


def expected(functor: Functor, dim: int, operands: list[Tensor]) -> list[Array]:
    """The results of NumPy in f64."""
    shape = operands[0].shape
    at_end = [np.moveaxis(np.broadcast_to(each.to_dtype("f64").numpy(), shape), dim, -1) for each in operands]
    with np.errstate(all="ignore"):
        results: Any = functor.oracle(*at_end, *functor.parameters)
    return [np.moveaxis(each, -1, dim) for each in (results if functor.results > 1 else [results])]


def bits(tensor: Tensor) -> bytes:
    return tensor.to_dtype("f64").numpy().tobytes()


# Rows shorter than a group of lanes, of groups only, and with a tail; rows that are computed side by side, with and
# without space for all their operands; rows of one piece and of several; dims of few and of many columns.
SHAPES: Final = [
    ((1,), 0),
    ((7, 1), 1),
    ((100, 3), 1),
    ((70, 16), 1),
    ((2, 33), 1),
    ((33, 64), 1),
    ((3, 100), 1),
    ((2, 2048), 1),
    ((3, 4096), 1),
    ((2, 2049), 1),
    ((1, 9001), 1),
    ((2, 20000), 1),
    ((40, 5), 0),
    ((300, 40), 0),
    ((2, 2100, 33), 1),
    ((3, 50, 7), 1),
    ((2, 3, 1, 5), 2),
]


@pytest.mark.parametrize(
    "functor",
    [*CHOSEN, *(pytest.param(each, marks=pytest.mark.full) for each in ALL if each not in CHOSEN)],
    ids=lambda functor: functor.name,
)
def test_functors_of_every_layout(dtypes: list[str], functor: Functor) -> None:
    for dtype in dtypes:
        for shape, dim in SHAPES:
            operands = numbers(functor, shape, dim, dtype)
            results = run(functor, dim, [each.broadcast_as(shape) for each in operands])
            for result, right in zip(results, expected(functor, dim, operands), strict=True):
                tolerance = TOLERANCES[dtype] * max(np.nanmax(np.abs(right), initial=0), 1)
                np.testing.assert_allclose(result.to_dtype("f64").numpy(), right, rtol=0, atol=tolerance)


@pytest.mark.parametrize("functor", [DERIVED, ENTROPY, NORM_GRADIENT, POSITIONS], ids=lambda functor: functor.name)
def test_bits_follow_from_the_row_alone(dtypes: list[str], functor: Functor) -> None:
    before = tl.get_threads()
    try:
        for dtype in dtypes:
            for shape, dim in SHAPES:
                operands = [each.broadcast_as(shape) for each in numbers(functor, shape, dim, dtype)]
                tl.set_threads(1)
                reference = [each.transpose(dim, -1).contiguous() for each in run(functor, dim, operands)]
                tl.set_threads(3)
                last = [each.transpose(dim, -1) for each in operands]
                # Strided, dense, in every second element, and the last row alone.
                dense = [each.contiguous() for each in last]
                spread = [tl.stack([each, each], -1)[..., 0] for each in last]
                for inputs in (last, dense, spread):
                    for result, want in zip(run(functor, len(shape) - 1, inputs), reference, strict=True):
                        assert bits(result) == bits(want), (dtype, shape, dim)
                alone = [each.reshape((-1, shape[dim]))[-1:] for each in dense]
                for result, want in zip(run(functor, 1, alone), reference, strict=True):
                    assert bits(result) == bits(want.reshape((-1, shape[dim]))[-1:]), (dtype, shape, dim)
    finally:
        tl.set_threads(before)


@pytest.mark.parametrize("shape", [(40, 5), (40, 40), (40, 100), (3, 9000)])
def test_nan_and_infinities(dtypes: list[str], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    x[0, 1], x[1], x[2, -1] = np.nan, np.inf, -np.inf
    for dtype in dtypes:
        for functor, of_infinity in ((RANGES, np.nan), (DERIVED, np.nan)):
            for dim, rows in ((1, x), (0, x.T.copy())):
                inputs = [Tensor(rows).to_dtype(dtype)] * len(functor.operands)
                result = run(functor, dim, inputs)[0].to_dtype("f64").numpy()
                result = result.T if dim == 0 else result
                assert np.isnan(result[0]).all()
                np.testing.assert_array_equal(result[1], of_infinity)
                assert not np.isnan(result[3:]).any()


@pytest.mark.skipif(not CLANG, reason="only clang says which loops it does not vectorise")
@pytest.mark.parametrize(
    "target",
    [pytest.param(it, marks=[] if it in BASELINES.values() else pytest.mark.full) for it in TOOLCHAINS[0].targets],
)
def test_lanes_become_vectors(target: str, full: bool) -> None:
    """Of each third functor, and of each with --full."""
    # Of doubles, functions of the library are called one by one.
    source = "host_row.cpp"
    others = re.compile(r"^TALLOW_KERNEL\(\w+_(?:bf16|f16|f64),.*\n", re.MULTILINE)
    text = others.sub("", host_compiler.read_source(source))
    kernels = KERNEL.findall(text)
    assert len(kernels) > 10
    for kernel in () if full else {*kernels} - {*kernels[::3]}:
        text = text.replace(kernel, "")
    toolchain = TOOLCHAINS[0]
    native = host_compiler.native_target()
    assert native is not None
    if target[:3] != native[:3]:
        pytest.skip("the libraries for machines of another kind are not here")
    flags = [flag.replace("{target}", target) for flag in (*toolchain.flags, *toolchain.targets[target])]
    flags = [flag for flag in flags if flag not in ("-shared", "-Wno-pass-failed")]
    folders = [f"-I{folder}" for folder in (code_object.SOURCES, *code_object.HEADERS)]
    # The loops are known before there is machine code.
    command = [CLANG[0], *flags, *folders, "-Wpass-failed", "-emit-llvm", "-c", "-x", "c++", "-", "-o", "-"]

    def compiled() -> bytes:
        result = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()
        return b"no loop failed"

    CodeCache(cache_folder()).get([text, *host_compiler.made_of(source, target), *command], compiled, bytes)


def test_no_elements(dtypes: list[str]) -> None:
    for shape in ((0, 3), (3, 0), (0,)):
        (result,) = run(DERIVED, len(shape) - 1, [Tensor(np.zeros(shape)).to_dtype(dtypes[0])] * 2)
        assert result.shape == shape


def test_operands_that_do_not_collapse(dtypes: list[str]) -> None:
    generator = np.random.default_rng(0)
    sizes = (4, 6, 21), (4, 1, 20), (6, 4, 20), (20,)
    x, gradient, residual, weight = (Tensor(generator.normal(size=size).astype("f4")) for size in sizes)
    incoming = [x.narrow(2, 1, 20), gradient.broadcast_as((4, 6, 20)), residual.transpose(0, 1)]
    incoming.append(weight.broadcast_as((4, 6, 20)))
    for result, right in zip(run(NORM_GRADIENT, 2, incoming), expected(NORM_GRADIENT, 2, incoming), strict=True):
        np.testing.assert_allclose(result.numpy(), right, rtol=0, atol=1e-5)
