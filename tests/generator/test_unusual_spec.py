"""What a spec may say and this repository's does not: the package that comes of it is as whole as any."""

import json
import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from .project import REPOSITORY, Project, copy_project

pytestmark = pytest.mark.slow

# What one project may have all at once. Nobody has written `half` and `nap`.
EDITS = [
    {"spec/backends/rocm.yaml": {"package: rocm_backend": "package: amd"}},
    {"spec/package.yaml": {"max_rank: 8": "max_rank: 11"}},
    {"spec/kernels/constants.yaml": {"sort_tile: {value: 4096": "sort_tile: {value: 2048"}},
    {
        "spec/storage/compare.yaml": {
            "  cmp:\n": '  half:\n    signature: "half(layout: Layout) -> Storage"\n    doc: Half of x.\n'
            "    operands: {self: {layout: layout, dtypes: all}}\n    gradient: {self: g * 0.5}\n  cmp:\n"
        },
        "spec/device.yaml": {"  zeros:\n": '  nap:\n    signature: "nap() -> None"\n    doc: Do nothing.\n  zeros:\n'},
        **{
            file: {
                "  try_clone: ": "  half: {unsupported: not written yet}\n  try_clone: ",
                "  zeros: ": "  nap: {unsupported: not written yet}\n  zeros: ",
            }
            for file in ("spec/families/gpu.yaml", "spec/families/array.yaml")
        },
    },
    {
        "spec/functors/unary.yaml": {
            "  exp:\n": "  is_nan: {doc: whether x is NaN, dtypes: float, result: bool, formula: isnan(x), "
            "edges: {is_nan(inf): 0}}\n"
            "  clip: {doc: x between two numbers, dtypes: real, parameters: {low: null, high: 1}, note: NaN wins, "
            'formula: "minimum(maximum(x, low), high)"}\n  exp:\n'
        },
        "spec/backends/cpu.yaml": {
            "  cmp: *elementwise": "  cmp: *elementwise\n"
            "  unary.clip:\n    - {call: elementwise.elementwise, dtypes: [u8, f32]}\n"
            "    - {unsupported: too wide, dtypes: integer}\n"
            "    - {unsupported: too narrow}"
        },
        "spec/families/gpu.yaml": {
            "  cmp: elementwise.compare": "  cmp: elementwise.compare\n  unary.clip: {unsupported: no kernel}"
        },
        "spec/families/array.yaml": {
            "  cmp: elementwise.elementwise": "  cmp: elementwise.elementwise\n  unary.clip: {unsupported: no library}"
        },
    },
]
LISTS = {
    "spec/device.yaml": {
        "dtypes: float\n    unsupported: random numbers are floating point; draw in f32 and convert\n    checks: "
        '["uniform': 'dtypes: [f32]\n    unsupported: they are drawn in f32\n    checks: ["uniform'
    },
    "spec/functors/unary.yaml": {
        "dtypes: [float, complex]\n    formula: exp(x)": "dtypes: [bf16, f16, f32, f64]\n    formula: exp(x)",
        "dtypes: number\n    result: real\n    formula: abs(x)": (
            "dtypes: [u8, u32, i16, i32, i64, bf16, f16, f32, f64]\n    formula: abs(x)"
        ),
        "dtypes: [float, complex]\n    parameters: {alpha: null}\n    formula: pow(x, alpha)": (
            "dtypes: [f32, f64, f16, bf16, f8e4m3]\n    parameters: {alpha: null}\n    formula: pow(x, alpha)"
        ),
        "dtypes: real\n    parameters: {mul: null, add: null}": (
            "dtypes: [u8, u32, i16, i32, i64, f32, f64, f16, bf16]\n    parameters: {mul: null, add: null}"
        ),
    },
}


def edit(project: Project, *every: dict[str, dict[str, str]]) -> Project:
    for file, pairs in (item for edits in every for item in edits.items()):
        for find, replace in pairs.items():
            project.edit(file, find, replace)
    return project.generate()


@pytest.fixture(scope="module")
def unusual(generated_from_repository: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with all of EDITS and LISTS, and with the package of a GPU under another name; not to be changed."""
    project = copy_project(generated_from_repository.root, tmp_path_factory.mktemp("unusual") / "project")
    for folder in ("templates/tallow", "runtime/backends"):
        package = project.root / folder / "rocm_backend"
        package.rename(package.with_name("amd"))
    # The mounts, and imports from outside the package.
    mounts = project.root / "spec/package.yaml"
    imports = [file for folder in ("templates", "runtime") for file in (project.root / folder).rglob("*.py*")]
    for file in (mounts, *imports):
        if file.suffix != ".pyc" and "rocm_backend" in (text := file.read_text(encoding="utf-8")):
            file.write_text(text.replace("rocm_backend", "amd"), encoding="utf-8")
    return edit(project, *EDITS, LISTS)


def check_lint(project: Project) -> None:
    # A line of the support matrix is as long as its reason.
    shutil.copy(REPOSITORY / "pyproject.toml", project.root)  # paths in it are relative to it
    for command in (["format", "--check"], ["check", "--ignore", "E501"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--no-cache", "generated"]
        result = subprocess.run(arguments, cwd=project.root, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def run_python(project: Project, code: str) -> str:
    # The package would compile the kernels that the spec changes, for half a minute.
    own = {"PYTHONPATH": str(project.output), "TALLOW_THREADS": "0"}
    arguments = [sys.executable, "-c", code]
    result = subprocess.run(
        arguments, env={**os.environ, **own}, cwd=project.root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_what_is_emitted_is_laid_out(unusual: Project) -> None:
    check_lint(unusual)


def test_the_package_of_a_gpu_may_have_any_name(unusual: Project) -> None:
    assert not (unusual.output / "tallow" / "rocm_backend").exists()
    code = "from tallow.amd import RocmDevice, RocmStorage; print(RocmDevice.storage_class is RocmStorage)"
    assert run_python(unusual, code) == "True\n"


def test_dtypes_may_be_listed_one_by_one(unusual: Project) -> None:
    code = """
from tallow import DType, Device, Shape, Tensor, UnsupportedDType, UnaryOp
print(Tensor([2.0], DType.F32).powf(2.0).storage.to_numpy().tolist(), len(UnaryOp.ABS.dtypes))
for call in (
    lambda: Tensor([2], DType.U8).powf(2.0),
    lambda: Tensor([2.0], DType.F8E4M3).affine(1.0, 0.0),
    lambda: Tensor([2.0], DType.F8E4M3).exp(),
    lambda: Device.cpu().rand_uniform_f64(0.0, 1.0, Shape((2,)), DType.F64),
):
    try:
        call()
    except UnsupportedDType as error:
        print(error)
"""
    assert run_python(unusual, code).splitlines() == [
        "[4.0] 9",
        "powf: u8 is not supported on cpu: the function is not defined for this dtype; "
        'convert with to_dtype("f32") first',
        "affine: f8e4m3 is not supported on cpu: the function is not defined for this dtype; "
        'convert with to_dtype("f32") first',
        "exp: f8e4m3 is not supported on cpu: the function is not defined for this dtype; "
        'convert with to_dtype("f32") first',
        "rand_uniform_f64: f64 is not supported on cpu: they are drawn in f32",
    ]


def test_launches_may_have_another_most_dims(unusual: Project) -> None:
    code = """
from tallow.runtime.backends.gpu_backend.ops.geometry import packed_dims
from tallow.kernels import arguments
from tallow.limits import MAX_RANK
dims, strides = (2,) * MAX_RANK, (1,) * MAX_RANK
packed = arguments.copy_strided(result=0, source=0, count=1, geometry=packed_dims(dims, (strides, strides)))
assert len(packed.packed()) == arguments.COPY_STRIDED.size
print(len(arguments.COPY_STRIDED.offsets))
"""
    assert run_python(unusual, code) == f"{4 + 5 * 11}\n"
    kernels = unusual.output / "tallow/kernels"
    assert "max_rank = 11;" in (kernels / "constants.hpp").read_text(encoding="utf-8")
    assert "uint64_t strides[22];" in (kernels / "copy.hip").read_text(encoding="utf-8")


def test_a_number_that_both_sides_of_a_launch_need_is_written_once(unusual: Project) -> None:
    kernels = unusual.output / "tallow/kernels"
    assert "sort_tile = 2048;" in (kernels / "constants.hpp").read_text(encoding="utf-8")
    assert run_python(unusual, "from tallow.kernels.constants import SORT_TILE\nprint(SORT_TILE)") == "2048\n"


def test_a_method_that_a_backend_lacks_does_not_disable_it(unusual: Project) -> None:
    """Every other method of the backends with a runtime goes on working."""
    code = """
from tallow import Device, Layout, Tensor
x = Tensor([2.0, 3.0])
print((x + 1).storage.to_numpy().tolist())
for call in (lambda: x.storage.half(x.layout), Device.cpu().nap):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""
    assert run_python(unusual, code).splitlines() == [
        "[3.0, 4.0]",
        "UnsupportedDType half: f32 is not supported on cpu: not written yet",
        "UnsupportedDevice nap: devices of cpu do not have it: not written yet",
    ]


def test_a_functor_may_have_parameters_with_defaults_and_a_result_of_another_dtype(unusual: Project) -> None:
    """Its expressions are all that is written, where a backend needs no kernel for it."""
    code = """
import math
from tallow import DType, Tensor
from tallow import support
x = Tensor([3.0, math.nan])
print(x.is_nan().dtype.value, x.is_nan().tolist())
print(x.clip(0.0, 2.5).tolist(), Tensor([0, 3], DType.U8).clip(1).tolist())
for dtype in (DType.I16, DType.F64):
    try:
        Tensor([1], dtype).clip(0)
    except Exception as error:
        print(type(error).__name__, error)
print({(cell.backend, cell.via) for cell in support() if cell.method == "clip" and cell.via})
"""
    assert run_python(unusual, code).splitlines() == [
        "bool [False, True]",
        "[2.5, nan] [1, 1]",
        "UnsupportedDType clip: i16 is not supported on cpu: too wide",
        "UnsupportedDType clip: f64 is not supported on cpu: too narrow",
        "{('cpu', 'elementwise.elementwise')}",
    ]


# Quotes, backslashes and line ends, as YAML writes them in single quotes.
ODD = (
    """'"see" C:\\new\\u: """
    + '"""'
    + """

      | it''s "odd"'"""
)
MEANT = 'see" C:\\new\\u: """ | it\'s "odd"'


def test_a_text_may_hold_anything_that_can_be_printed(repository: Project) -> None:
    edits = {
        "spec/package.yaml": {"summary: A tensor backend for CPU": f"summary: {ODD}\n# "},
        "spec/dtypes.yaml": {"{doc: unsigned 8-bit integer,": f"{{doc: {ODD},"},
        "spec/device.yaml": {
            "doc: What a device does besides running storage methods.": f"doc: {ODD}",
            "doc: |\n      A storage of `shape.elem_count` zeros.": f"doc: {ODD}",
        },
        "spec/storage/reduce.yaml": {"doc: Reductions along dims.": f"doc: {ODD}"},
        "spec/functors/ternary.yaml": {
            "unsupported: a condition, which comes first, is of truth values or integers; compare with ne": (
                f"unsupported: {ODD}"
            )
        },
        "spec/functors/unary.yaml": {
            "doc: the exponential, e to the power x": f"doc: {ODD}",
            "edges: {exp(-inf): 0.0,": f"note: {ODD}\n    edges: {{exp(-inf): 0.0,",
            "unsupported: the function is not defined for this dtype": f"unsupported: {ODD}",
        },
        "spec/backends/rocm.yaml": {
            "doc: HIP kernels through hip-python; matrix products by hipBLAS, transforms by hipFFT, "
            "decompositions by hipSOLVER, convolution and pooling by MIOpen where it is there.": f"doc: {ODD}",
            "requires: [": "requires: ['vulkan; python_version < \"3.12\"', ",
            'display: ", device=rocm:{ordinal}"': f"display: {ODD}",
        },
        "spec/backends/metal.yaml": {
            'unsupported: "Apple GPUs have no 64-bit floats; use f32, or Device.cpu()"': f"unsupported: {ODD}",
            "doc: Apple GPUs through MLX, which makes its kernels at run time.": f"doc: {ODD}",
        },
        "spec/backends/cpu.yaml": {"max_pool: {kernels: host_launches.max_pool}": f"max_pool: {{unsupported: {ODD}}}"},
    }
    edit(repository, edits)
    check_lint(repository)
    settings = tomllib.loads((repository.output / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["description"] == f'"{MEANT}'
    assert settings["project"]["optional-dependencies"]["rocm"][0] == 'vulkan; python_version < "3.12"'
    code = """
import json, tallow
from tallow import DType, Device, Tensor, TallowError, UnaryOp, dummy_metal_backend, dummy_rocm_backend, rocm_backend
from tallow.storage import Storage
def raised(call):
    try:
        call()
    except TallowError as error:
        return error.reason
x = Tensor([2.0])
docs = [tallow.__doc__, Device.__doc__, Device.zeros.__doc__, tallow.storage.reduce.__doc__, rocm_backend.__doc__]
print(json.dumps([
    *(" ".join(doc.split()) for doc in docs),
    raised(lambda: x.storage.where_cond(x.layout, x.storage, x.layout, x.storage, x.layout)),
    raised(lambda: x.reshape((1, 1, 1, 1)).max_pool2d((1, 1), (1, 1))),
    raised(lambda: Tensor([2], DType.U8).exp()),
    UnaryOp.EXP.unsupported,
    tallow.device_base._BACKENDS["rocm"][2],
    Tensor.exp.__doc__,
    *sorted({cell.reason for cell in tallow.support() if "odd" in (cell.reason or "")}),
]))
"""
    texts = json.loads(run_python(repository, code))
    assert all(f'"{MEANT}' in " ".join(text.split()) for text in texts), texts
    assert len(texts) == 12


def test_a_reduction_may_begin_with_an_infinity_of_either_sign(repository: Project) -> None:
    ops = """\
  {name}:
    doc: "the extreme of the magnitudes"
    dtypes: float
    identity: {identity}
    element: "{element}"
    combine: "{combine}(x, y)"
    gradient: {{x: "where({element} == result, {slope}, 0)"}}
    note: none
"""
    reductions = repository.root / "spec/functors/reduce.yaml"
    with reductions.open("a", encoding="utf-8") as file:
        least = {"element": "abs(x)", "combine": "minimum", "slope": "g * sign(x)"}
        nearest = {"element": "-abs(x)", "combine": "maximum", "slope": "-(g * sign(x))"}
        file.write(ops.format(name="min_magnitude", identity="inf", **least))
        file.write(ops.format(name="nearest_below", identity="-inf", **nearest))
    repository.generate()
    source = (repository.output / "tallow/kernels/reduce.hip").read_text(encoding="utf-8")
    for name, identity in (("MinMagnitude", "infinity<T>()"), ("NearestBelow", "-infinity<T>()")):
        formulas = source.partition(f"struct {name}Formulas")[2].partition("};")[0]
        assert f"return {identity};" in formulas
