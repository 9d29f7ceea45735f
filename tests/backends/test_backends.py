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
from opgen.matrix import cells
from opgen.project import read_spec

REPOSITORY = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.yaml"))
# Cells whose ops are written differently from each other, which stand for the others where time is short.
SOME = (
    "impl-add or impl-div or gelu_gradient or sum or argmax or scatter_set or cat- or matmul or conv2d or rand_uniform"
)
CONFORMANCE = REPOSITORY / "tests/conformance"
CELLS = f"{CONFORMANCE / 'test_cells.py'}::test_cell"
# Tests of what an array library does. The others are of the package's own code above it, which metal runs too, or take
# most of the time.
DEPENDS_ON_LIBRARY = ("aliasing", "array_libraries", "edges", "errors", "independence", "sharing", "sums")
# What a library is known to fail. CuPy compiles its kernels so that subnormal f32 count as 0, and computes f16 in f32.
# Of NumPy's f64, which is under array_api_strict, one logarithm in 16,705 is off by more where it is next to 0.
LEFT_OUT = {
    "cupy": "f32 or f16 or f8e4m3 or (to_dtype and f64)",
    # Its sums of a strided dim add up one element after the other.
    "array_api_strict": "(log_softmax or layer_norm_gradient) and f64",
}
# Other tests of the same: this one converts subnormal f32.
ALSO_LEFT_OUT = {"cupy": "tests/conformance/test_properties.py::test_any_float_is_converted"}


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.stem)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with one more backend, which is named as the folder."""
    file: Path = request.param
    library = yaml.safe_load(file.read_text(encoding="utf-8"))["array"]["modules"]["xp"]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    root = laid_over(file, tmp_path_factory.mktemp("backends"))
    subprocess.run([sys.executable, "-m", "opgen", "generate", "--root", str(root)], check=True, capture_output=True)
    # Its kernels for the CPU have the same sources.
    code = "generated/tallow/kernels/code"
    (root / code).symlink_to(REPOSITORY / code)
    return root


def laid_over(file: Path, folder: Path) -> Path:
    """The project with one more backend, in a folder."""
    root = folder / file.stem
    for part in ("spec", "starter", "templates", "runtime"):
        shutil.copytree(REPOSITORY / part, root / part)
    shutil.copy(file, root / "spec/backends")
    return root


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_file_is_right_where_its_library_is_not_installed(file: Path, tmp_path: Path) -> None:
    assert file.stem in {backend.name for backend in read_spec(laid_over(file, tmp_path)).backends}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_file_is_short_and_all_there_is(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 80
    assert {path.suffix for path in file.parent.glob(f"{file.stem}*")} == {".yaml"}


def conform(project: Path, *arguments: str) -> str:
    """Run conformance tests on the backend; the line of pytest that counts them."""
    path = os.pathsep.join([str(project / "generated"), str(REPOSITORY / "generator")])
    # What the CPU computes besides is not tested, so its kernels need not be compiled.
    environment = {**os.environ, "PYTHONPATH": path, "TALLOW_THREADS": "0"}
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
    passed = conform(project, CELLS, "-k", f"(f32 or i32) and ({SOME}) and not (attention or {left_out(project)})")
    assert int(re.search(r"(\d+) passed", passed)[1]) > 10  # type: ignore[index]


def test_all_but_its_cells_conforms(project: Path, pytestconfig: pytest.Config, full: bool) -> None:
    files = (f"test_{name}.py" for name in DEPENDS_ON_LIBRARY)
    if is_whole(pytestconfig, full):
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
    passed = conform(project, CELLS, "-n", "auto", "-k", f"not ({left_out(project)})")
    print(f"{project.name}: {supported} of {len(own)} cells are supported; {passed}")
