"""A backend is one YAML file: those here are laid over the project, generated, and run through conformance."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# The Python of `make test-gpu` may lack what opgen needs to generate a project.
pytest.importorskip("click")
pytest.importorskip("jinja2")
pytest.importorskip("ruff")
pytest.importorskip("yaml")

import yaml
from click.testing import CliRunner
from opgen.cli import main
from opgen.matrix import cells
from opgen.model.spec import Spec
from opgen.project import read_spec
from opgen.views.arrays import spelled_library

REPOSITORY = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.yaml"))
# Cells whose ops are written differently from each other, which stand for the others where time is short.
SOME = (
    "impl-add or impl-div or gelu_gradient or sum or argmax or scatter_set or cat- or matmul or conv2d or rand_uniform"
)
CONFORMANCE = REPOSITORY / "tests/conformance"
CELLS = f"{CONFORMANCE / 'test_cells.py'}::test_cell"
# Tests of what an array library does. The others are of the package's own code above it, which metal runs too, as it
# does those of aliasing, which take most of the time.
DEPENDS_ON_LIBRARY = ("array_libraries", "edges", "errors", "independence", "sharing", "sums")
# Libraries that compile each function for minutes in all: without --full, these cells stand for the others.
COMPILES = {
    "jax": "i32 and (argmax or cat-) or f32 and (impl-add- or impl-div- or impl-sqr- or impl-floor-)",
    "tinygrad": "i32 and (argmax or cat-)",
}
# Of one that takes about a second for each expression of any dtype, all that is tested: files, and cells.
TESTED_IN_PART = {
    "tinygrad": (("edges",), "f32 and (impl-add or impl-exp or impl-gelu or impl-sin or impl-log or tanh or erf)")
}
# What a library is known to fail. CuPy compiles its kernels so that subnormal f32 count as 0, and computes f16 in f32.
# Of NumPy's f64, which is under array_api_strict, one logarithm in 16,705 is off by more where it is next to 0.
LEFT_OUT = {
    "cupy": "f32 or f16 or f8e4m3 or (to_dtype and f64)",
    # Its sums of a strided dim add up one element after the other.
    "array_api_strict": "(log_softmax or layer_norm_gradient) and f64",
}
# Other tests of the same: this one converts subnormal f32.
ALSO_LEFT_OUT = {"cupy": "tests/conformance/test_properties.py::test_any_float_is_converted"}


# What tinygrad compiles with on CPUs.
CLANG = next(filter(None, map(shutil.which, ("clang", *(f"clang-{version}" for version in range(22, 17, -1))))), None)


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.stem)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with one more backend, which is named as the folder."""
    file: Path = request.param
    if file.stem == "tinygrad" and CLANG is None:
        pytest.skip("tinygrad compiles with clang, which is not installed")
    library = yaml.safe_load(file.read_text(encoding="utf-8"))["array"]["modules"]["xp"]
    if find_spec(library.partition(".")[0]) is None:
        pytest.skip(f"{library} is not installed")
    root = laid_over(file, tmp_path_factory.mktemp("backends"))
    generate(root)
    # Its kernels for the CPU have the same sources.
    code = "generated/tallow/kernels/code"
    (root / code).symlink_to(REPOSITORY / code)
    return root


def laid_over(file: Path, folder: Path, text: str | None = None) -> Path:
    """The project with one more backend, in a folder; `text` is that of its file if it is another one."""
    root = folder / file.stem
    for part in ("spec", "starter", "templates", "runtime"):
        shutil.copytree(REPOSITORY / part, root / part)
    (root / "spec/backends" / file.name).write_text(text or file.read_text(encoding="utf-8"), encoding="utf-8")
    return root


def generate(root: Path) -> None:
    """In this process, which has read most of the spec already."""
    result = CliRunner().invoke(main, ["--root", str(root), "generate"])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """The spec with all of the backends."""
    root = laid_over(FILES[0], tmp_path_factory.mktemp("spec"))
    for file in FILES[1:]:
        shutil.copy(file, root / "spec/backends")
    return read_spec(root)


def test_files_are_right_where_libraries_are_not_installed(spec: Spec) -> None:
    assert {file.stem for file in FILES} <= {backend.name for backend in spec.backends}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_file_is_short_and_all_there_is(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= (190 if file.stem == "tinygrad" else 96)
    assert {path.suffix for path in file.parent.glob(f"{file.stem}*")} == {".yaml"}


def conform(project: Path, *arguments: str) -> str:
    """Run conformance tests on the backend; the line of pytest that counts them."""
    path = os.pathsep.join([str(project / "generated"), str(REPOSITORY / "generator")])
    # What the CPU computes besides is not tested, so its kernels need not be compiled.
    environment = {**os.environ, "PYTHONPATH": path, "TALLOW_THREADS": "0"}
    if project.name == "tinygrad":
        environment |= {"DEV": "CPU", "CC": str(CLANG), "CACHEDB": str(project / "kernels.db")}
    # Some libraries compute with NumPy, which warns of overflow.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"]
    command += ["--device", project.name, *arguments]
    result = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr
    return result.stdout.splitlines()[-1]


def is_whole(pytestconfig: pytest.Config, full: bool) -> bool:
    """Whether all is tested: with --full, and beside the tests of a GPU."""
    return full or bool(pytestconfig.getoption("--device") != "cpu")


def left_out(project: Path) -> str:
    """The cells that a library is known to fail, as pytest chooses them."""
    return LEFT_OUT.get(project.name, "nothing")


def test_some_of_its_cells_agree_with_the_oracle(project: Path) -> None:
    some = COMPILES.get(project.name, f"(f32 or i32) and ({SOME}) and not (attention or {left_out(project)})")
    passed = conform(project, CELLS, "-k", some)
    assert int(re.search(r"(\d+) passed", passed)[1]) >= 2  # type: ignore[index]


def test_all_but_its_cells_conforms(project: Path, pytestconfig: pytest.Config, full: bool) -> None:
    if project.name in COMPILES and not is_whole(pytestconfig, full):
        pytest.skip("it takes minutes; run it with --full, or with the tests of a GPU")
    files = (f"test_{name}.py" for name in DEPENDS_ON_LIBRARY)
    if project.name in TESTED_IN_PART:
        files = (f"test_{name}.py" for name in TESTED_IN_PART[project.name][0])
    elif is_whole(pytestconfig, full):
        # Three files are about the spec and the oracle themselves.
        others = {"test_cells.py", "test_formula_mutations.py", "test_matrix.py", "test_oracle.py"}
        files = (path.name for path in CONFORMANCE.glob("test_*.py") if path.name not in others)
    # What chance finds there is of the whole package, and metal has it too.
    hostile = "tests/conformance/test_hostile.py::test_hostile_arguments_meet_errors_of_tallow"
    also = ALSO_LEFT_OUT.get(project.name, hostile)
    conform(project, *[str(CONFORMANCE / name) for name in files], "--deselect", hostile, "--deselect", also)


def test_all_of_its_cells_agree_with_the_oracle(project: Path, pytestconfig: pytest.Config, full: bool) -> None:
    if not is_whole(pytestconfig, full):
        pytest.skip("a slow sweep; run it with --full, or beside the tests of a GPU")
    own = [cell for cell in cells(read_spec(project)) if cell.backend == project.name]
    supported = sum(cell.status == "supported" for cell in own)
    chosen = TESTED_IN_PART.get(project.name, ((), f"not ({left_out(project)})"))[1]
    # Each shape is one more compilation.
    sample = ("--sample", "1") if project.name in COMPILES else ()
    passed = conform(project, CELLS, "-n", "auto", "-k", chosen, *sample)
    print(f"{project.name}: {supported} of {len(own)} cells are supported; {passed}")


# Words that a library may lack, and the ops whose formulas or code need them.
REFUSED = {
    "erf": "erf gelu_erf gelu_erf_gradient",
    "expm1": "adam_step celu elu expm1 selu",
    "hypot": "asinh_gradient hypot hypot_gradients",
    "cumsum": "cumsum",
}


def test_ops_that_need_a_word_are_refused_where_the_library_lacks_it(tmp_path: Path) -> None:
    file = Path(__file__).parent / "array_api_strict.yaml"
    lacking = "".join(f"    {word}: {{unsupported: no {word} here}}\n" for word in REFUSED)
    text = file.read_text(encoding="utf-8").replace("storage:\n", f"  spellings:\n{lacking}storage:\n")
    refused: dict[str, set[str]] = {}
    for cell in cells(read_spec(laid_over(file, tmp_path, text))):
        if cell.backend == file.stem and f"{cell.reason}".endswith(" here"):
            refused.setdefault(str(cell.reason), set()).add(cell.op or cell.method)
    assert {reason: " ".join(sorted(ops)) for reason, ops in refused.items()} == {
        f"no {word} here": ops for word, ops in REFUSED.items()
    }


def test_numbers_are_computed_in_a_dtype_that_has_no_ops(spec: Spec) -> None:
    backend = next(backend for backend in spec.backends if backend.name == "tinygrad")
    library = spelled_library(spec, backend)
    assert library.dtypes["F64"] == "xp.dtypes.float64" and "F8E4M3" not in library.dtypes
    assert library.lacking["F64"].startswith("what tinygrad has of functions loses digits")
    assert {cell.status for cell in cells(spec) if (cell.backend, cell.dtype) == ("tinygrad", "f64")} == {"unsupported"}


@pytest.mark.full
def test_numbers_of_64_bits_are_refused_where_jax_does_not_hold_them(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    file = Path(__file__).parent / "jax.yaml"
    text = re.sub(r"  setup: .*\n", "", file.read_text(encoding="utf-8"))
    root = laid_over(file, tmp_path, text)
    generate(root)
    program = """
import tallow as tl
for dtype in ("i64", "u64", "f64"):
    try:
        print(tl.Tensor([2**40], dtype, device="jax:0"))
    except tl.UnsupportedDType as error:
        print(error)
print(tl.Tensor([1, 2], "i32", device="jax:0").tolist())
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'generated'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *errors, last = result.stdout.splitlines()
    held = {"i64": "int32", "u64": "uint32", "f64": "float32"}
    for error, (dtype, own) in zip(errors, held.items(), strict=True):
        assert error.startswith(f"dtype: {dtype} is not supported on jax: the library holds it as {own}, and gives ")
        assert error.endswith("let 'setup' of spec/backends/jax.yaml enable it, or use another dtype")
    assert last == "[1, 2]"
