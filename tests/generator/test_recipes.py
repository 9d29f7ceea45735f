"""The recipes of CONTRIBUTING.md for ops, a dtype, a backend and an architecture, each laid over a copy of it all.

Each generates the package, and most of them collect its tests anew. By default all ops at once, an integer and a
backend stand for the others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tallow.runtime.backends.cpu_backend.kernels import HostKernels

from .project import REPOSITORY, Project

pytestmark = pytest.mark.slow

HIP_HOST = REPOSITORY / "build/hip_host"
ELEMENTWISE, REDUCTIONS = "tests/conformance/oracle/elementwise.py", "tests/conformance/oracle/reductions.py"
ROWS = "tests/conformance/oracle/rows.py"
SCANS = "tests/conformance/oracle/scans.py"
FORMATS = "tests/conformance/oracle/formats.py"
DEVICES = ("cpu", "rocm", "metal")
# What knows of dtypes, and of what an op computes; what is asked of every method alike asks for no more of these.
CELLS = ("test_cells", "test_matrix")
OF_OPS = (*CELLS, "test_calls", "test_edges", "test_oracle")


@dataclass(frozen=True)
class Recipe:
    """An entry of a file of spec/functors, and its oracle: the text before which each part of it goes."""

    name: str
    kind: str
    entry: str
    oracle: dict[tuple[str, str], str]
    session: dict[str, object] = field(default_factory=dict)  # expressions over tensors, and what they give


RECIPES = [
    Recipe(
        "softsign",
        "unary",
        'doc: "x / (1 + abs(x))", dtypes: float, formula: x / (1 + abs(x)), edges: {softsign(-0.0): -0.0}',
        {(ELEMENTWISE, '    "isnan": np.isnan,\n'): '    "softsign": lambda x: x / (1 + np.abs(x)),\n'},
        {"Tensor([1.0, -3.0]).softsign()": [0.5, -0.75]},
    ),
    Recipe(
        "isneginf",
        "unary",
        'doc: "whether x is -inf", dtypes: float, result: bool, formula: x == -inf, '
        "note: 1 or 0, edges: {isneginf(nan): 0}",
        {(ELEMENTWISE, '    "isnan": np.isnan,\n'): '    "isneginf": np.isneginf,\n'},
        {"Tensor([1.0, -float('inf')]).isneginf()": [0, 1]},
    ),
    Recipe(
        "gate",
        "binary",
        'doc: "x where y > limit, else 0", dtypes: float, parameters: {limit: 0.5}, '
        'formula: "where(y > limit, x, 0)", edges: {"gate(x, nan)": 0.0}',
        {
            (ELEMENTWISE, "def where("): (
                "def gate(name: str, x: Array, y: Array, limit: float) -> Array:\n"
                '    """In dtype `name`."""\n'
                "    return np.where(decode(name, y) > limit, x, np.zeros_like(x))\n\n\n"
            )
        },
        {
            "Tensor([3.0, 4.0]).gate(Tensor([1.0, 0.25]))": [3.0, 0.0],
            "Tensor([[3.0], [4.0]]).gate(Tensor([1.0, 0.25]), 0.0)": [[3.0, 3.0], [4.0, 4.0]],
            "Tensor([3.0, 4.0]).gate(2, limit=1)": [3.0, 4.0],
        },
    ),
    Recipe(
        "deadzone",
        "unary",
        'doc: "x where abs(x) > limit, else 0", dtypes: float, parameters: {limit: 0.5}, '
        'formula: "where(abs(x) > limit, x, 0)", edges: {deadzone(nan): 0.0}',
        {
            (ELEMENTWISE, "def where("): (
                "def deadzone(name: str, x: Array, limit: float) -> Array:\n"
                '    """In dtype `name`."""\n'
                "    return np.where(np.abs(decode(name, x)) > limit, x, np.zeros_like(x))\n\n\n"
            )
        },
        {"Tensor([1.0, -0.25, -3.0]).deadzone()": [1.0, 0.0, -3.0], "Tensor([1.0]).deadzone(limit=2)": [0.0]},
    ),
    Recipe(
        "tamed",
        "unary",
        'doc: "x, with numbers instead of NaN and of infinities", dtypes: float, '
        "parameters: {blank: 0.0, posinf: 1.0e+4, neginf: -1.0e+4}, "
        'formula: "where(isnan(x), blank, where(x == inf, posinf, where(x == -inf, neginf, x)))", '
        'edges: {"tamed(nan, 1, 2, 3)": 1, "tamed(-inf, 1, 2, 3)": 3}',
        {
            (ELEMENTWISE, "def where("): (
                "def tamed(name: str, x: Array, blank: float, posinf: float, neginf: float) -> Array:\n"
                '    """In dtype `name`."""\n'
                "    numbers = [from_number(name, each) for each in (blank, posinf, neginf)]\n"
                "    wide = decode(name, x)\n"
                "    return np.select([np.isnan(wide), wide == np.inf, wide == -np.inf], numbers, x)\n\n\n"
            )
        },
        {
            "Tensor([1.0, float('nan'), float('inf'), -float('inf')]).tamed()": [1.0, 0.0, 1e4, -1e4],
            "Tensor([1.0, float('nan'), float('inf'), -float('inf')]).tamed(1, 2, 3)": [1.0, 1.0, 2.0, 3.0],
            # What has fewer parameters, and what has none, is as it was.
            "Tensor([1.0, -2.0]).add(Tensor([1.0, 1.0])).leaky_relu(0.5)": [2.0, -0.5],
        },
    ),
    Recipe(
        "lerp",
        "ternary",
        'doc: "start + weight * (end - start)", operands: [start, end, weight], dtypes: float, '
        'formula: "start + weight * (end - start)", '
        'edges: {"lerp(inf, 1, 1)": nan}, '
        "unsupported: the function is defined for floating-point dtypes",
        {
            (ELEMENTWISE, "from .formats import "): "from .formats import encode\n",
            (ELEMENTWISE, "def where("): (
                "def lerp(name: str, start: Array, end: Array, weight: Array) -> Array:\n"
                '    """In dtype `name`, each step rounded to its compute dtype."""\n'
                "    kind = np.float64 if name == 'f64' else np.float32\n"
                "    start, end, weight = (decode(name, part).astype(kind) for part in (start, end, weight))\n"
                "    with np.errstate(all='ignore'):\n"
                "        return encode(name, (start + weight * (end - start)).astype(EXTENDED))\n\n\n"
            ),
        },
        {
            "Tensor([0.0, 10.0]).lerp(Tensor([10.0, 20.0]), Tensor([0.5, 0.25]))": [5.0, 12.5],
            "Tensor([[0.0], [1.0]]).lerp(Tensor([2.0, 4.0]), 0.5)": [[1.0, 2.0], [1.5, 2.5]],
        },
    ),
    Recipe(
        "sumsq",
        "reduce",
        'doc: "sum of the squares of the elements", dtypes: real, identity: 0, '
        "element: square(x), combine: x + y, "
        "accumulate: f64, note: integers wrap, edges: {sumsq(): 0}",
        {(REDUCTIONS, '    "sum": lambda x: x,\n'): '    "sumsq": lambda x: x * x,\n'},
        {"Tensor([[1.0, 2.0], [3.0, 4.0]]).sumsq(1)": [5.0, 25.0]},
    ),
    Recipe(
        "squared_portions",
        "row",
        'doc: "the squares of positive elements over their sum along a dim", dtypes: [bf16, f16, f32, f64], '
        "let: {e: relu(x) * relu(x)}, formula: e / sum(e)",
        {
            (ROWS, "ROWS: Final"): (
                "def squared_portions(x: Array) -> Array:\n"
                '    """The squares of positive elements over their sum."""\n'
                "    squares = np.where(x.real <= 0, 0, x) ** 2\n"
                "    portions: Array = squares / squares.sum(axis=-1, keepdims=True)\n"
                "    return portions\n\n\n"
            ),
            (ROWS, '"softmin": softmin'): '"squared_portions": squared_portions, ',
        },
        {
            "Tensor([[1.0, -3.0], [2.0, 2.0]]).squared_portions(1)": [[1.0, 0.0], [0.5, 0.5]],
            # As op by op: what relu cut off has the gradient 0, also where the result is 0 / 0.
            "value_and_grad(lambda x: x.squared_portions(1).sum())(Tensor([[-1.0, -2.0]]))[1][0]": [[0.0, 0.0]],
        },
    ),
    Recipe(
        "softmax_entropy",
        "row",
        'doc: "minus the sum of p * log(p) along a dim, where p is softmax(x)", dtypes: [bf16, f16, f32, f64], '
        "per_row: true, let: {below: x - detach(max(x)), e: exp_below_zero(below)}, "
        "formula: log(sum(e)) - sum(e * below) / sum(e)",
        {
            (ROWS, "ROWS: Final"): (
                "def softmax_entropy(x: Array) -> Array:\n"
                '    """Minus the sums of p * log(p), where p is softmax(x)."""\n'
                "    logarithms = x - logsumexp(x)\n"
                "    entropies: Array = -(np.exp(logarithms) * logarithms).sum(axis=-1, keepdims=True)\n"
                "    return entropies\n\n\n"
            ),
            (ROWS, '"softmin": softmin'): '"softmax_entropy": softmax_entropy, ',
        },
        {"Tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -1e9, -1e9, -1e9]]).softmax_entropy(1)": [1.3862943649291992, 0.0]},
    ),
    Recipe(
        "nonzeros",
        "reduce",
        'doc: "number of elements that are not 0", dtypes: real, identity: 0, element: x != 0, '
        "combine: x + y, result: u32, "
        'edges: {nonzeros(): 0, "nonzeros(nan, 1)": 2}',
        {
            (REDUCTIONS, '    "any": lambda'): (
                '    "nonzeros": lambda name, values, dims: np.count_nonzero(\n'
                "        decode(name, values), axis=dims, keepdims=True\n"
                "    ).astype(np.uint32),\n"
            )
        },
        {"Tensor([0.0, 2.0, 3.0]).nonzeros(0)": 2},
    ),
    Recipe(
        "min_magnitude",
        "reduce",
        'doc: "the least magnitude of the elements that are numbers, else infinity", dtypes: float, identity: inf, '
        'element: "where(isnan(x), inf, abs(x))", combine: "minimum(x, y)", '
        'gradient: {x: "where(abs(x) == result, g * sign(x), 0)"}, edges: {min_magnitude(): inf}',
        {
            (REDUCTIONS, '    "any": lambda'): (
                '    "min_magnitude": lambda name, values, dims: encode(\n'
                "        name,\n"
                "        np.where(np.isnan(decode(name, values)), np.inf, np.abs(decode(name, values))).min(\n"
                "            axis=dims, keepdims=True, initial=np.inf\n"
                "        ),\n"
                "    ),\n"
            ),
        },
        {
            "Tensor([[-1.0, float('nan')], [float('nan'), float('nan')]]).min_magnitude(1)": [1.0, float("inf")],
            "Tensor.zeros((2, 0)).min_magnitude(1)": [float("inf"), float("inf")],
        },
    ),
    Recipe(
        "nonzeros_so_far",
        "scan",
        'doc: "number of the elements 0 to i that are not 0", dtypes: real, result: u32, identity: 0, element: x != 0, '
        'combine: x + y, edges: {"nonzeros_so_far(2, 0, nan)": 2}',
        {
            (SCANS, '    "cumsum": Scan('): (
                '    "nonzeros_so_far": Scan(\n'
                "        lambda name, x, dim: _exact(np.cumsum(decode(name, x) != 0, axis=dim)), 0\n"
                "    ),\n"
            )
        },
        {
            "Tensor([1, 0, 2]).nonzeros_so_far(0)": [1, 1, 2],
            "Tensor([1, 0, 2]).nonzeros_so_far(0, reverse=True, exclusive=True)": [1, 1, 0],
        },
    ),
    Recipe(
        "energy",
        "scan",
        'doc: "sum of the squares of the elements 0 to i", dtypes: float, identity: 0, element: square(x), '
        "combine: x + y, accumulate: f64, edges: {energy(-0.0): 0.0}",
        {
            (SCANS, "SCANS: Final"): (
                "def energy(name: str, values: Array, dim: int) -> tuple[Array, Array]:\n"
                '    """The sums of the squares of the elements 0 to i."""\n'
                "    sums = np.cumsum(decode(name, values) ** 2, axis=dim)\n"
                "    return sums, sum_bound(name, np.where(np.isfinite(sums), sums, 0), values.shape[dim])\n\n\n"
            ),
            (SCANS, '    "cumsum": Scan('): '    "energy": Scan(energy, 0),\n',
        },
        {"Tensor([1.0, 2.0, 3.0]).energy(0)": [1.0, 5.0, 14.0]},
    ),
    Recipe(
        "drawdown",
        "scan",
        'doc: "an element less the largest of the elements 0 to i", dtypes: float, identity: lowest, '
        'combine: "maximum(x, y)", finish: element - x, edges: {"drawdown(3, 1)": -2}',
        {
            (SCANS, '    "cumsum": Scan('): (
                '    "drawdown": Scan(\n'
                "        lambda name, x, dim: _exact(decode(name, x) - extremes(np.maximum, name, x, dim)[0]), None\n"
                "    ),\n"
            )
        },
        {"Tensor([[3.0, 1.0], [4.0, 6.0]]).drawdown(1)": [[0.0, -2.0], [0.0, 0.0]]},
    ),
    Recipe(
        "parity",
        "scan",
        'doc: "the bits that an odd number of the elements 0 to i have", dtypes: integer, identity: 0, '
        'combine: "bitwise_xor(x, y)", edges: {"parity(5, 3)": 6}',
        {
            (SCANS, '    "cumsum": Scan('): (
                '    "parity": Scan(lambda _, x, dim: _exact(np.bitwise_xor.accumulate(x, axis=dim)), 0),\n'
            )
        },
        {"Tensor([5, 3, 1]).parity(0)": [5, 6, 7]},
    ),
]


SECOND = """\
doc: The GPUs of rocm under another name.
extends: rocm
class_prefix: Second
runtime: {package: second_backend}
extra: second
modules: [hip]
label: "second:{ordinal}"
display: ", second:{ordinal}"
preference: -1
dlpack: 20
libraries:
  hipblas: {class: libraries.rocblas.RocBlas}
  hipsolver: {class: libraries.hipsolver.HipSolver}
  hipfft: {class: libraries.hipfft.HipFft}
  miopen: {class: libraries.miopen.Miopen}
  rccl: {class: libraries.rccl.Rccl}
storage:
  upsample_bilinear2d: {unsupported: an example of a cell that differs}
"""
# Attention and the rest of a layer read the same, as in GPT-J and Command R.
PARALLEL = '''\
"""A decoder whose layers do both of their parts at once."""

from collections.abc import Mapping
from typing import Any, Final

from ...tensor import Tensor
from ..config import ModelConfig
from ..steps import (LayerContext, added_rms_norm, attention, heads, joined_linear, key_heads, linear, rope_neighbours,
                     silu_mul)

TENSORS: Final = {"embedding": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
LAYER: Final = {
    "norm_of_both": "attn_norm.weight",
    "query": "attn_q.weight",
    "key": "attn_k.weight",
    "value": "attn_v.weight",
    "output": "attn_output.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
OPTIONAL: Final = frozenset[str]()
JOINED: Final[tuple[tuple[str, ...], ...]] = ()
DIVIDED: Final = {**dict.fromkeys(("query", "key", "value", "gate", "up", "head"), 0), "output": 1, "down": 1}


def shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.key_heads * config.head_dim
    return {
        "embedding": (vocabulary, config.width),
        "norm": (config.width,),
        "head": (vocabulary, config.width),
        "norm_of_both": (config.width,),
        "query": (queries, config.width),
        "key": (keys, config.width),
        "value": (keys, config.width),
        "output": (config.width, queries),
        "gate": (config.hidden, config.width),
        "up": (config.hidden, config.width),
        "down": (config.width, config.hidden),
    }


def layer(at: LayerContext, weights: Mapping[Any, Any], x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
    normed, x = added_rms_norm(at, x, added, weights["norm_of_both"])
    queries = rope_neighbours(at, heads(at, linear(at, normed, weights["query"])))
    keys = rope_neighbours(at, key_heads(at, linear(at, normed, weights["key"])))
    found = attention(at, queries, keys, key_heads(at, linear(at, normed, weights["value"])))
    gated = silu_mul(at, linear(at, normed, weights["gate"]), linear(at, normed, weights["up"]))
    return x + joined_linear(at, found, weights["output"]), joined_linear(at, gated, weights["down"])
'''
CASE = """\
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "parallel": ("parallel", {}),
"""


# Floats by their entries, and what the oracle knows of them. ml_dtypes lacks the last one.
FLOATS = {
    "f8e3m4": ("exponent: 3, fraction: 4", "np.dtype(ml_dtypes.float8_e3m4), 3, 4"),
    "f8e4m3fnuz": (
        "exponent: 4, fraction: 3, specials: fnuz",
        'np.dtype(ml_dtypes.float8_e4m3fnuz), 4, 3, "fnuz"',
    ),
    "f8e5m2fnuz": (
        "exponent: 5, fraction: 2, specials: fnuz",
        'np.dtype(ml_dtypes.float8_e5m2fnuz), 5, 2, "fnuz"',
    ),
    "f16e6m9": ("exponent: 6, fraction: 9", 'np.dtype([("f16e6m9", "u2")]), 6, 9'),
}


def lay(project: Project, *recipes: Recipe) -> None:
    """Make the edits of recipes, and generate."""
    add_tests(project)
    for recipe in recipes:
        with (project.root / f"spec/functors/{recipe.kind}.yaml").open("a", encoding="utf-8") as file:
            file.write(f"  {recipe.name}:\n    {{{recipe.entry}}}\n")
        for (file, index), text in recipe.oracle.items():
            project.edit(file, index, text + index)
    project.generate()


def add_tests(project: Project) -> None:
    """The conformance tests, which find the package of the project by PYTHONPATH."""
    for name in (
        "pyproject.toml",
        "tests/compilers.py",
        "tests/conftest.py",
        "tests/forks.py",
        "tests/hip_runtime.py",
        "tests/own_spec.py",
        "tests/conformance",
    ):
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        (project.root / name).parent.mkdir(exist_ok=True)
        copy(REPOSITORY / name, project.root / name)


def edited(project: Project) -> list[str]:
    """The files of spec/, templates/ and runtime/ that differ from the repository's, or are new, but for schemas."""
    results = []
    for folder in ("spec", "starter", "templates", "runtime"):
        for path in sorted((project.root / folder).rglob("*")):
            name = path.relative_to(project.root)
            original = REPOSITORY / name
            # opgen writes the schemas of a spec, and the page of their texts.
            is_written = path.is_file() and path.suffix not in (".json", ".pyc") and name.as_posix() != "spec/README.md"
            if is_written and not (original.is_file() and original.read_bytes() == path.read_bytes()):
                results.append(name.as_posix())
    return results


def run(project: Project, *arguments: str, **environment: str) -> str:
    inputs = {**os.environ, "PYTHONPATH": str(project.output), **environment}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, env=inputs, cwd=project.root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    return result.stdout


def with_kernels(project: Project) -> None:
    """Give the package the kernels of the repository's that have the same sources."""
    code = "tallow/kernels/code"
    (project.output / code).symlink_to(REPOSITORY / "generated" / code)


def conform(project: Project, *arguments: str, tests: Sequence[str] = CELLS, **environment: str) -> None:
    """Run conformance tests of the project."""
    command = ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider"]
    run(project, *command, *(f"tests/conformance/{name}.py" for name in tests), *arguments, **environment)


def test_an_op_takes_few_files_and_lines() -> None:
    """An entry and its oracle; the table of names and the changelog have a line each."""
    for recipe in RECIPES:
        files = {f"spec/functors/{recipe.kind}.yaml", *(file for file, _ in recipe.oracle), "names", "changelog"}
        assert len(files) <= 4, recipe.name
        assert lines(f"  {recipe.name}:\n    {{{recipe.entry}}}\n", *recipe.oracle.values()) <= 10, recipe.name


def lines(*texts: str) -> int:
    """Count the lines of texts, of 120 columns."""
    return sum(-(-len(line) // 120) for text in texts for line in text.splitlines())


@pytest.mark.parametrize("device", ["numpy", *(pytest.param(it, marks=pytest.mark.full) for it in DEVICES)])
def test_an_op_is_one_entry_of_the_spec(repository: Project, device: str, full: bool) -> None:
    """Its kernels, its branch on every backend, its method and its rows follow; the oracle is the test's."""
    lay(repository, *RECIPES)
    kernels = repository.output / "tallow/kernels"
    for files in ("*.hip", "*.cpp"):
        emitted = "".join(path.read_text(encoding="utf-8") for path in kernels.glob(files))
        assert all(re.search(rf"\({recipe.name}_(f32|i32)\w*, ", emitted) for recipe in RECIPES)
    assert edited(repository) == sorted({f"spec/functors/{recipe.kind}.yaml" for recipe in RECIPES})
    names = f"({' or '.join(recipe.name for recipe in RECIPES)})"
    if device != "numpy":
        conform(repository, "-k", f"{device} and {names}", "--device", device, **environment_of(repository, device))
        return
    # The compiler takes ten seconds for a family. What NumPy computes is the same code in all dtypes.
    calls = [item for recipe in RECIPES for item in recipe.session.items()]
    session = "".join(f"assert {call}.tolist() == {result!r}, {call!r}\n" for call, result in calls)
    imports = "from math import inf\nfrom tallow import Tensor, value_and_grad\n"
    run(repository, "-c", imports + session, TALLOW_THREADS="0")
    chosen = f"cpu and {names} and (not test_cell or f32 or f8e4m3 or i64 or u8)"
    # Mutations of its formula are more than an op has to pass to be right.
    tests = (*OF_OPS, "test_formula_mutations") if full else OF_OPS
    conform(repository, "-k", f"{chosen} or test_matrix", tests=tests, TALLOW_THREADS="0")


def environment_of(project: Project, device: str) -> dict[str, str]:
    """What a device of `DEVICES` needs: its runtime, and kernels for the CPU where it computes with them."""
    if device == "rocm":
        return on_hip_host(project)
    if device == "metal":
        pytest.importorskip("mlx.core")
        return {"TALLOW_METAL_CPU": "1", "TALLOW_THREADS": "0"}
    if HostKernels.open() is None:
        pytest.skip("no compiler for the CPU's kernels")
    with_kernels(project)
    cache = kernel_cache(project)
    run(project, "-m", "tallow.runtime.compilation", **cache)
    families = {"span": "_f32", "fold": "_f32_rows", "host_row": "_f32", "host_scan": "_i32 _f32"}
    candidates = [(family, ending) for family, endings in families.items() for ending in endings.split()]
    code = (
        "import tallow; kernels = tallow.Device.cpu().inner.kernels\n"
        f"for name in {[recipe.name for recipe in RECIPES]}:\n"
        f"    assert any(kernels.has(family, name + ending) for family, ending in {candidates}), name"
    )
    run(project, "-c", code, **cache)
    return cache


def on_hip_host(project: Project) -> dict[str, str]:
    if not HIP_HOST.is_dir():
        pytest.skip("the CPU HIP runtime is not built; run 'make hip-host'")
    # What the CPU computes besides is not tested, so its kernels need not be compiled.
    return {"ROCM_PATH": str(HIP_HOST), **kernel_cache(project), "TALLOW_THREADS": "0"}


def kernel_cache(project: Project) -> dict[str, str]:
    """A folder for what the package compiles: without one, as tests of opgen are, NumPy would do the CPU's work."""
    cache = project.root / "kernel_cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    # That of make holds most kernels already.
    return {"TALLOW_CACHE": os.environ.get("TALLOW_CACHE", str(cache))}


def test_a_dtype_is_one_entry_of_the_spec(repository: Project) -> None:
    """An integer that is left out is named nowhere else."""
    for file, lines in (("spec/dtypes.yaml", r"  {}:\n    .*\n"), ("spec/backends/metal.yaml", r"    {}: xp\.\w+\n")):
        for name in ("i16", "u16", "u64"):
            text = (repository.root / file).read_text(encoding="utf-8")
            (result,) = re.findall(rf"^{lines.format(name)}", text, re.MULTILINE)
            repository.edit(file, result, "")
    dtypes = repository.root / "spec/dtypes.yaml"
    without = re.sub(r"\b(u16|u64), ", "", dtypes.read_text(encoding="utf-8"))
    # What was promoted to 16 bits still has to be promoted to more.
    dtypes.write_text(without.replace("promotes_to: [i16]", "promotes_to: [i32]"), encoding="utf-8")
    repository.generate()


def add_floats(project: Project) -> None:
    """Add an entry and a line of the oracle for each float."""
    add_tests(project)
    for name, (facts, known) in FLOATS.items():
        entry = f"  {name}: {{doc: a float, kind: float, {facts}, compute: f32, safetensors: null}}\n"
        oracle = f'    "{name}": FloatFormat({known}),\n'
        assert (lines(entry), lines(oracle)) == (1, 1)
        with (project.root / "spec/dtypes.yaml").open("a", encoding="utf-8") as file:
            file.write(entry)
        project.edit(FORMATS, "FLOATS = {\n", "FLOATS = {\n" + oracle)
    project.generate()
    assert edited(project) == ["spec/dtypes.yaml"]


@pytest.mark.full
def test_a_float_is_one_entry_of_the_spec(repository: Project) -> None:
    """Its kernels, its conversions and its rows follow from its bits, also where neither NumPy nor ml_dtypes has it."""
    add_floats(repository)
    # Kernels of matrix cores are of what has a multiplicand, not of all floats of 16 bits.
    kernels = (repository.output / "tallow/kernels/block_tiles.hip").read_text(encoding="utf-8")
    assert re.search(r"\bf16\b", kernels)
    assert "f16e6m9" not in kernels
    some = f"({' or '.join(FLOATS)}) and to_dtype or (f8e5m2fnuz or f16e6m9) and (impl-add or argsort or matmul)"
    conform(repository, "-k", f"test_cell and ({some}) or test_matrix and oracle", TALLOW_THREADS="0")


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "rocm", "metal"])
def test_a_float_has_kernels_without_more(repository: Project, device: str) -> None:
    """Nothing takes one of 16 bits for f16: its products are its own."""
    add_floats(repository)
    if device == "metal":
        pytest.importorskip("mlx.core")
    inputs = on_hip_host(repository) if device == "rocm" else {**kernel_cache(repository), "TALLOW_METAL_CPU": "1"}
    if device == "cpu":
        run(repository, "-m", "tallow.runtime.compilation", **inputs)
    some = f"({' or '.join(FLOATS)}) and (add or exp or argsort or sum or matmul or gather or where)"
    conform(repository, "-k", f"test_cell and (to_dtype or {some})", "--device", device, **inputs)


# Quants in an order that kernels read one by one, and what the oracle makes of them.
FORMAT = """\
  q4own:
    doc: 4 bits from -8 on, side by side, a scale for 64 weights
    number: 90
    elements: 64
    bytes: 34
    fields: {d: {type: f16, offset: 0}, qs: {type: u8, count: 32, offset: 2}}
    quant: "(qs[i // 2] >> 4 * (i % 2) & 15) - 8"
    scale: d
    rounding: {kind: symmetric}
"""
BLOCKS = "tests/conformance/oracle/blocks.py"
DECODED = """\
    "Q4OWN": lambda b: (
        (np.stack([b["qs"] & 15, b["qs"] >> 4], -1).reshape(-1, 64) - np.float32(8)) * b["d"][:, None].astype("f4")
    ),
"""


@pytest.fixture
def formats(repository: Project) -> Project:
    """A block format more."""
    with (repository.root / "spec/formats.yaml").open("a", encoding="utf-8") as file:
        file.write(FORMAT)
    add_tests(repository)
    listed = "_DECODERS: dict[str, Callable[[Array], Array]] = {\n"
    repository.edit(BLOCKS, listed, listed + DECODED)
    repository.generate()
    assert edited(repository) == ["spec/formats.yaml"]
    return repository


@pytest.mark.full
def test_a_format_is_one_entry_of_the_spec(formats: Project) -> None:
    """Its decoder, its rounding, its kernels and its rows follow, in whatever order its quants are."""
    assert len(FORMAT.splitlines()) <= 12
    conform(formats, "-k", "Q4OWN and not rms_norm", tests=("test_cells",), TALLOW_THREADS="0")


@pytest.mark.full
def test_a_format_has_kernels_for_the_cpu_and_for_gpus(formats: Project) -> None:
    with_kernels(formats)
    cache = kernel_cache(formats)
    if HostKernels.open() is not None:
        run(formats, "-m", "tallow.runtime.compilation", **cache)
        conform(formats, "-k", "test_cell and Q4OWN", tests=("test_cells",), **cache)
    for wave in ("32", "64"):
        inputs = {**on_hip_host(formats), "HIP_HOST_WAVE": wave}
        conform(formats, "-k", "test_cell and Q4OWN", "--device", "rocm", tests=("test_cells",), **inputs)


# A method that is composed of others, and its oracle.
COMPOSED = """\
doc: What is composed of other methods.
methods:
  covariance:
    signature: "covariance(layout: Layout, rhs: Storage, rhs_layout: Layout) -> Storage"
    doc: |
      The sums over the last dim of x - mean(x) times y.

      >>> tl.Tensor([1.0, 3.0]).covariance(tl.Tensor([2.0, 4.0]))
      Tensor(2., dtype=f32)
    result: "self.dtype[*self.shape[:-1]]"
    operands:
      self: {layout: layout, dtypes: [bf16, f16, f32, f64]}
      rhs: {layout: rhs_layout, dtypes: same}
    unsupported: sums of products are of floats of 16 bits and more
    checks: [has_last_dim(layout), "same_shape(layout, rhs_layout)"]
    tensor: "covariance(rhs: Self) -> Tensor"
    example: [{self: [2, 3], rhs: [2, 3]}, {self: [33, 9], rhs: [33, 9]}]
    let: {x: "self.to_dtype(self.dtype.compute)"}
    body: "((x - x.mean(-1, keepdim=True)) * rhs.to_dtype(x.dtype)).sum(-1)"
"""
COMPOSED_ORACLE = '''

@close
def covariance(self: Array, rhs: Array, name: str) -> tuple[Array, Array]:
    """The sums of (x - mean(x)) * y."""
    x, y = decode(name, self), decode(name, rhs)
    terms = (x - x.mean(-1, keepdims=True)) * y
    sizes = (np.abs(x) + np.abs(x).mean(-1, keepdims=True)) * np.abs(y)
    return terms.sum(-1), 4 * x.shape[-1] * epsilon(name) * sizes.sum(-1)
'''


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "rocm"])
def test_a_composed_method_is_one_entry(repository: Project, device: str) -> None:
    """Its cells on every backend, its gradients and its docs follow from the parts; the oracle is the test's."""
    (repository.root / "spec/storage/composed.yaml").write_text(COMPOSED, encoding="utf-8")
    add_tests(repository)
    with (repository.root / "tests/conformance/oracle/composed.py").open("a", encoding="utf-8") as file:
        file.write(COMPOSED_ORACLE)
    repository.generate()
    assert edited(repository) == ["spec/storage/composed.yaml"]
    assert len(COMPOSED.splitlines()) <= 22
    inputs = {"TALLOW_THREADS": "0"} if device == "cpu" else on_hip_host(repository)
    some = f"covariance and {device} and (f32 or bf16 or gradients)"
    conform(repository, "-k", some, "--device", device, tests=("test_cells", "test_composed"), **inputs)


DECODERS, LOGITS = "tests/package/decoders.py", "tests/package/test_logits.py"


@pytest.mark.full
def test_an_architecture_is_one_module(repository: Project) -> None:
    """What the decoder of the tests has to learn is the test's."""
    modules = "runtime/models/decoders"
    (repository.root / modules / "parallel.py").write_text(PARALLEL, encoding="utf-8")
    listed = "MODULES: Final = {\n"
    repository.edit(f"{modules}/__init__.py", listed, f'{listed}    "parallel": "parallel",\n')
    add_tests(repository)
    (repository.root / DECODERS).parent.mkdir()
    for name in ("__init__.py", "conftest.py", "backend.py", "decoders.py", "gradcheck.py", "test_logits.py"):
        shutil.copy(REPOSITORY / "tests/package" / name, repository.root / "tests/package")
    repository.edit(
        DECODERS,
        """        normed = norm(x, of["ffn_norm.weight"])\n""",
        """        normed = norm(x, of["ffn_norm.weight"]) if architecture != "parallel" else normed\n""",
    )
    biases = """        if biased or architecture == "qwen2":\n"""
    unnormed = """        if architecture == "parallel":\n            del parts["ffn_norm.weight"]\n"""
    repository.edit(DECODERS, biases, unnormed + biases)
    repository.edit(LOGITS, "CASES: dict[str, tuple[str, dict[str, Any]]] = {\n", CASE)
    repository.generate()
    assert edited(repository) == [f"{modules}/__init__.py", f"{modules}/parallel.py"]
    with_kernels(repository)
    inputs = "-n", "0", "-p", "no:cacheprovider", LOGITS, "-k", "definition and (parallel or llama)"
    assert "3 passed" in run(repository, "-m", "pytest", "-v", *inputs)


@pytest.fixture
def second(repository: Project) -> Project:
    """A backend like another one: its driver, and what opens its libraries, are those of that one."""
    (repository.root / "spec/backends/second.yaml").write_text(SECOND, encoding="utf-8")
    add_tests(repository)
    return repository.generate()


def test_a_backend_like_another_one_is_one_file(second: Project) -> None:
    assert edited(second) == ["spec/backends/second.yaml"]
    assert lines(SECOND) <= 20
    code = """
import tallow
from tallow.second_backend import SecondDevice, SecondStorage, is_available
cells = [cell for cell in tallow.support() if cell.backend == "second"]
print(len(cells) == sum(cell.backend == "rocm" for cell in tallow.support()))
print({cell.reason for cell in cells if cell.method == "upsample_bilinear2d" and cell.dtype is tallow.DType.F32})
print({cell.via for cell in cells if cell.method == "matmul" and cell.dtype is tallow.DType.F32})
try:
    tallow.Device.second(0)
except tallow.BackendUnavailable as error:
    print(type(error).__name__, is_available())
"""
    assert run(second, "-c", code, ROCM_PATH="").splitlines() == [
        "True",
        "{'an example of a cell that differs'}",
        "{'hipblas: matmul.by_library or matmul.matmul'}",
        "BackendUnavailable False",
    ]


@pytest.mark.full
def test_a_backend_like_another_one_conforms(second: Project) -> None:
    some = "exp or add or sum or matmul or gather or scatter_add or conv1d or apply_op1 or storage or rand_uniform_f64"
    conform(second, "--device", "second", "-k", f"test_cell and f32 and ({some})", **on_hip_host(second))


# Bindings of a driver and a compiler that have HIP's functions under other names, as some vendors' have CUDA's, and of
# which the compiler calls an option otherwise.
BINDINGS = """\
import re

from hip import hip, hiprtc


class Binding:
    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, re.sub("^alike", "hip", name))

    def has_symbol(self, name):
        return self._module.has_symbol(re.sub("^alike", "hip", name))

    def alikertcCompileProgram(self, program, count, options):
        named = [option.replace(b"--gpu=", b"--offload-arch=") for option in options]
        return self._module.hiprtcCompileProgram(program, count, named)


hip, hiprtc = Binding(hip), Binding(hiprtc)
"""


@pytest.mark.full
def test_a_driver_and_a_compiler_with_other_names_are_one_more_file(second: Project) -> None:
    """Names of functions and constants differ, not those of statuses, which are values of the binding."""
    table = (second.root / "spec/drivers/rocm.yaml").read_text(encoding="utf-8")
    table = table.replace("binding: hip.", "binding: alike.").replace("prefix: hip", "prefix: alike")
    table = table.replace("after_error: hip", "after_error: alike").replace("--offload-arch=", "--gpu=")
    head, launch, calls = table.partition("\nlaunch:")
    calls = re.sub(r"(?<![\w.])hip(?=(rtc)?[A-Z])", "alike", calls)
    (second.root / "spec/drivers/second.yaml").write_text(head + launch + calls, encoding="utf-8")
    (second.root / "alike.py").write_text(BINDINGS, encoding="utf-8")
    second.generate()
    assert edited(second) == ["spec/backends/second.yaml", "spec/drivers/second.yaml"]
    assert lines(head, launch, calls) <= 150
    for module, function in (("drivers", "alikeMalloc"), ("compilers", "alikertcGetCode")):
        emitted = (second.root / f"generated/tallow/{module}/second.py").read_text(encoding="utf-8")
        assert f"binding.{function}(" in emitted
        assert not re.search(r"binding\.hip", emitted)
    some = "test_cell and f32 and (exp or sum or matmul or gather)"
    paths = os.pathsep.join([str(second.output), str(second.root)])
    conform(second, "--device", "second", "-k", some, PYTHONPATH=paths, **on_hip_host(second))
