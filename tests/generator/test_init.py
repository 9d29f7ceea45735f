"""`opgen init` begins a project that stands on an installed package, here on the one of this repository."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from opgen.cli import main

from .project import REPOSITORY, Project, copy_project
from .test_distribution import build
from .test_tutorial import BLOCKS

BASE = ("--base", "tallow")


def init(folder: Path, *arguments: str) -> Result:
    with contextlib.chdir(folder):
        return CliRunner().invoke(main, ["init", *(arguments or ("mylib", *BASE))])


@pytest.fixture(scope="module")
def mylib(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that was just begun, generated; not to be changed."""
    folder = tmp_path_factory.mktemp("init")
    result = init(folder)
    assert result.exit_code == 0, result.output
    return Project(folder / "mylib").generate()


def run_tests(project: Project, *modules: str, fails: bool = False) -> str:
    paths = (project.output, REPOSITORY / "generator", REPOSITORY / "generated")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "ROCM_PATH": "/nowhere"}
    command = [sys.executable, "-m", "unittest", "discover", "--verbose", "--start-directory", "tests"]
    command += ["--pattern", *modules]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr


def test_its_tests_pass_at_once(mylib: Project) -> None:
    assert mylib.run("check").exit_code == 0
    shown = run_tests(mylib, "test_[oe]*.py")
    assert "OK (skipped=2)" in shown
    # Each backend that is not here says why, once for each kind of test.
    assert re.findall(r"(\w+)OnRocm\) \.\.\. skipped '(.{20,})'", shown), shown


def test_an_edge_that_a_backend_breaks_fails(mylib: Project, tmp_path: Path) -> None:
    project = copy_project(mylib.root, tmp_path, ("spec", "templates", "generated", "tests"))
    file = "generated/mylib/array_functors.py"
    formula = re.search(r"UnaryOp\.RELU: Function\(\w+, lambda x: (.+)\),\n", (project.root / file).read_text())
    assert formula is not None
    project.edit(file, formula[0], formula[0].replace(formula[1], f"{formula[1]} + 1"))
    shown = run_tests(project, "test_edges.py", fails=True)
    assert "[relu(-1) is 0]" in shown
    assert "[relu(NaN) is NaN]" not in shown


def test_an_edge_that_the_formula_breaks_is_refused(mylib: Project, tmp_path: Path) -> None:
    project = copy_project(mylib.root, tmp_path, ("spec", "templates", "tests"))
    project.edit("spec/functors/unary.yaml", "relu(-1): 0", "relu(-1): 1")
    assert "edge 'relu(-1)' of op 'relu' says 1, but its formula gives 0" in project.run("check").stderr


def test_a_tensor_method_gives_the_shape_that_its_entry_says(mylib: Project, tmp_path: Path) -> None:
    project = copy_project(mylib.root, tmp_path, ("spec", "templates"))
    assert project.run("new", "method", "trace").exit_code == 0
    file = project.root / "spec/storage/trace.yaml"
    file.write_text(re.sub("# (?=tensor:|result:)", "", file.read_text(encoding="utf-8")), encoding="utf-8")
    written = (project.generate().output / "mylib/tensor_methods.py").read_text(encoding="utf-8")
    assert "return self._shaped(self._storage.trace(self._layout), self.shape[:-1])" in written


def test_what_is_compiled_and_left_behind_is_ignored_by_git(mylib: Project, tmp_path: Path) -> None:
    project = copy_project(mylib.root, tmp_path / "mylib", ("spec", "templates", "generated", "tests"))
    for name in (".gitignore", ".gitattributes"):
        shutil.copy(mylib.root / name, project.root / name)
    for left in ("build/x", "generated/mylib/kernels/code/gfx90a/x.co", "tests/__pycache__/x.pyc", ".venv/x"):
        (project.root / left).parent.mkdir(parents=True, exist_ok=True)
        (project.root / left).touch()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(project.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    listed = {*git("ls-files", "--others", "--exclude-standard").splitlines()}
    assert not [path for path in listed if "code/" in path or "pycache" in path or path.startswith((".venv", "build"))]
    assert {".gitignore", "spec/package.yaml", "generated/mylib/__init__.py"} <= listed
    assert "eol: lf" in git("check-attr", "eol", "generated/mylib/__init__.py")


def test_what_is_written_is_small(mylib: Project) -> None:
    written = [
        path
        for path in mylib.root.rglob("*")
        if path.is_file() and mylib.output not in path.parents and path.suffix != ".pyc"
    ]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in written) < 600
    assert not [path for path in written if "<<" in path.read_text(encoding="utf-8")]


def test_what_a_package_lacks_is_said_where_it_is_called(mylib: Project) -> None:
    paths = os.pathsep.join(map(str, (mylib.output, REPOSITORY / "generated")))
    for call, message in (
        ("x.exp()", "'Tensor' object has no attribute 'exp'"),
        ("x * x", "a Storage has no 'binary_impl'"),
        ("x * x.sum(dim=0, keepdim=True)", "the package has no op 'mul'"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import mylib; x = mylib.Tensor([1.0, 2.0]); x.relu(); {call}"],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"AttributeError: {message}" in done.stderr


@pytest.mark.parametrize(
    "name", ["relu", "sum", "matmul", "to_dtype", "f32", "cpu", "rocm", "unary_impl", "relu_f32_strided"]
)
def test_every_place_that_explain_names_is_a_file_of_the_project_or_of_its_base(mylib: Project, name: str) -> None:
    shown = mylib.run("explain", name).stdout
    paths = {*re.findall(r"  (\S+):\d+:\d+$", shown, re.MULTILINE)}
    assert paths
    folders = (mylib.root, REPOSITORY / "generated")
    assert not [path for path in paths if not any((folder / path).exists() for folder in folders)]


def test_new_project_is_another_name_for_it() -> None:
    runner = CliRunner()
    assert runner.invoke(main, ["new", "project", "--help"]).output.startswith("Usage: main new project ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("../mylib", *BASE), 2, "'../mylib' cannot be a name; use small letters, digits and underscores"),
        (("json", *BASE), 2, "'json' is the name of another package here; choose one of your own"),
        (("numpy", *BASE), 2, "'numpy' is the name of another package here; choose one of your own"),
        (("tallow", *BASE), 2, "'tallow' is the name of another package here; choose one of your own"),
        (("mylib", "--base", "numpy"), 1, "'numpy' is no installed package with a starter; "),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = init(tmp_path, *arguments)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert not [*tmp_path.rglob("spec")]


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mylib").mkdir()
    result = CliRunner().invoke(main, ["init", "mylib", *BASE])
    assert (result.exit_code, result.stderr) == (1, "mylib is there already; choose another name, or remove it\n")
    assert [*Path("mylib").iterdir()] == []


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", fail)
    result = CliRunner().invoke(main, ["init", "mylib", *BASE])
    assert (result.exit_code, result.stderr) == (1, "mylib: Permission denied; nothing was written\n")
    assert [*tmp_path.iterdir()] == []


def test_kernels_that_the_base_does_not_have_are_named(mylib: Project, tmp_path: Path) -> None:
    init(tmp_path)
    project = Project(tmp_path / "mylib")
    project.edit("spec/package.yaml", "matmul, reduce,", "matmul, redcue,")
    result = project.run("check")
    assert "spec/package.yaml:9:62: base 'tallow' has no kernels 'redcue'; did you mean 'reduce'?" in result.stderr


@pytest.mark.full
def test_a_project_is_built_with_the_wheels_alone(tmp_path: Path) -> None:
    wheels = [build(name, tmp_path / name, tmp_path / "tools") for name in ("opgen", "tallow")]
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *wheels], check=True)
    # What both packages need is that of this Python; the packages themselves are the wheels.
    own = subprocess.run([python, "-c", "import site; print(*site.getsitepackages())"], capture_output=True, text=True)
    Path(own.stdout.strip(), "others.pth").write_text(str(Path(pytest.__file__).parents[1]), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ROCM_PATH")}

    def run(*command: object, folder: Path = tmp_path) -> str:
        done = subprocess.run(
            [str(each) for each in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(tmp_path / "venv/bin/opgen", "init", "mylib")
    assert {".gitignore", ".gitattributes"} <= {path.name for path in (tmp_path / "mylib").iterdir()}
    run("make", "build", f"PYTHON={python}", folder=tmp_path / "mylib")
    assert "OK (skipped=2)" in run("make", "test", f"PYTHON={python}", folder=tmp_path / "mylib")


def run(project: Project, code: str, **environment: str) -> str:
    """What a program that uses the project's package prints."""
    path = os.pathsep.join(map(str, (project.output, REPOSITORY / "generated")))
    command = [sys.executable, "-c", f"from mylib import Tensor\n{code}"]
    inputs = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(command, env=inputs, capture_output=True, text=True, check=True).stdout


OPS = {
    "map": ("halved", "0.5 * x", "Tensor([2.0, 6.0]).halved()", [1.0, 3.0]),
    "reduction": ("together", "x + y", "Tensor([2.0, 6.0]).together(0)", 8.0),
    "row": ("portions", "x / sum(x)", "Tensor([2.0, 6.0]).portions(0)", [0.25, 0.75]),
    "scan": ("so_far", "x + y", "Tensor([2.0, 6.0]).so_far(0)", [2.0, 8.0]),
}


def test_an_op_of_each_kind_takes_few_files_and_lines(mylib: Project, tmp_path: Path) -> None:
    """What `opgen new op` writes is all of it, also where it is the first op of its kind."""
    project = copy_project(mylib.root, tmp_path, ("spec", "templates"))

    def lines() -> dict[Path, list[str]]:
        files = [path for path in (project.root / "spec").rglob("*.yaml") if path.is_file()]
        return {path: path.read_text(encoding="utf-8").splitlines() for path in files}

    for kind, (name, formula, _, _) in OPS.items():
        before = lines()
        assert project.run("new", "op", name, "--kind", kind, "--formula", formula).exit_code == 0
        added = {path: set(text) - set(before.get(path, [])) for path, text in lines().items()}
        # The op's name in an oracle, in a table of names and in a changelog are three more of each.
        assert sum(map(bool, added.values())) + 3 <= 6, kind
        assert sum(not line.lstrip().startswith("#") for each in added.values() for line in each) + 3 <= 25, kind
    project.generate()
    for _, _, call, result in OPS.values():
        assert run(project, f"print({call}.tolist())") == f"{result}\n"


def test_a_composed_method_is_one_entry(mylib: Project, tmp_path: Path) -> None:
    project = copy_project(mylib.root, tmp_path, ("spec", "templates"))
    assert project.run("new", "op", "positive", "--kind", "composed", "--formula", "self.relu()").exit_code == 0
    project.generate()
    assert project.run("matrix", "positive", "--dtype", "f32").stdout.count("methods relu") == 2
    assert run(project, "print(Tensor([[-1.0, 2.0]])[0].positive().tolist())") == "[0.0, 2.0]\n"
    project.edit("spec/storage/composed.yaml", "self.relu()", "self.relux(1).sum()")
    assert "'body' of method 'positive' calls 'relux', which no tensor has; did you mean" in project.run("check").stderr


TUTORIAL = {about: text for kind, about, text in BLOCKS if kind in ("yaml", "python", "cpp")}


def test_a_primitive_is_an_entry_a_function_and_a_header(mylib: Project, tmp_path: Path) -> None:
    """They join those of the base; NumPy and the kernels of GPUs compute alike."""
    project = copy_project(mylib.root, tmp_path, ("spec", "templates"))
    files = {name: text for name, text in TUTORIAL.items() if re.search(r"bits|primitives", str(name))}
    assert [*files] == ["spec/primitives.yaml", "runtime/numerics/bits.py", "runtime/kernels/bits.hpp"]
    for name, text in files.items():
        (project.root / name).parent.mkdir(parents=True, exist_ok=True)
        (project.root / name).write_text(text, encoding="utf-8")
    assert sum(text.count("\n") for text in files.values()) <= 32
    assert project.run("new", "op", "bit_count", "--kind", "map", "--formula", "bit_count(x)").exit_code == 0
    project.generate()
    call = (
        "print(Tensor([5, 255, 0], 'u8', DEVICE).bit_count().tolist(), Tensor([-1], 'i32', DEVICE).bit_count().item())"
    )
    assert run(project, call.replace("DEVICE", "'cpu'")) == "[2, 8, 0] 32\n"
    if (host := REPOSITORY / "build/hip_host").is_dir():
        assert run(project, call.replace("DEVICE", "'rocm'"), ROCM_PATH=str(host)) == "[2, 8, 0] 32\n"
    project.edit("spec/primitives.yaml", "bits.bit_count(", "bits.bit_cound(")
    message = "unknown name 'bits.bit_cound' in 'array' of primitive 'bit_count'; did you mean 'bits.bit_count'?"
    assert message in project.run("check").stderr
