"""What pip gets of opgen and of tallow: the license, what an index shows, and the types."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from pathlib import Path
from typing import Any

import pytest
from compilers import read_calls, write_compiler
from opgen.commands.code_objects import project_code_objects
from opgen.compile import choose_compilers, compile_objects
from opgen.project import read_project, read_spec
from opgen.render import render
from tallow.kernels import host_arguments
from tallow.runtime.backends.cpu_backend.kernels import HostKernels

from .project import REPOSITORY, Project, copy_project

LICENSE = (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
# The folder of each project, and of its package.
PROJECTS = {"opgen": (REPOSITORY, "generator/opgen"), "tallow": (REPOSITORY / "generated", "tallow")}
LICENSES = {"opgen": "LICENSE", "tallow": "tallow/runtime/LICENSE"}
# A link or a picture in Markdown that leads to a file of the repository.
RELATIVE = re.compile(r"\]\((?!https://)")


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_names_its_license_its_readme_and_its_types(name: str) -> None:
    folder, package = PROJECTS[name]
    settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = settings["project"]
    assert (project["name"], project["license"], project["license-files"]) == (name, "Apache-2.0", [LICENSES[name]])
    assert LICENSE in (folder / LICENSES[name]).read_text(encoding="utf-8")
    assert not RELATIVE.search((folder / project["readme"]).read_text(encoding="utf-8"))
    assert {"Programming Language :: Python :: 3", "Typing :: Typed"} <= {*project["classifiers"]}
    assert (folder / package / "py.typed").is_file()


def test_urls_are_in_the_metadata_and_the_readme(generated_from_few_ops: Project, tmp_path: Path) -> None:
    project = copy_project(generated_from_few_ops.root, tmp_path / "urls")
    assert "urls" not in tomllib.loads((project.output / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "where you got the package from" in (project.output / "README.md").read_text(encoding="utf-8")
    urls = {"Issues": "https://example.org/issues", "Source code": 'https://example.org/?a="b"'}
    project.edit("spec/package.yaml", "max_rank: 8\n", f"max_rank: 8\nurls: {json.dumps(urls)}\n")
    checked = read_project(project.root)
    outputs = [output for output in checked.outputs if str(output.path) in ("pyproject.toml", "README.md")]
    texts = {str(path): text for path, text in render(outputs, checked.sources).items()}
    assert tomllib.loads(texts["pyproject.toml"])["project"]["urls"] == urls
    assert urls["Issues"] in texts["README.md"]


def test_the_readme_of_the_index_has_the_commands_of_opgen() -> None:
    text = (REPOSITORY / "generator/README.md").read_text(encoding="utf-8")
    listed = subprocess.run(
        [sys.executable, "-m", "opgen", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = re.findall(r"^  (\w+)  ", listed.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) > 5
    assert {*re.findall(r"^    opgen (\w+)", text, re.MULTILINE)} == {*commands}


# What projects that stand on tallow take from it, files that begin with a dot among it.
SHARED = {
    f"tallow/{path.relative_to(REPOSITORY).as_posix()}"
    for folder in ("spec", "starter", "templates")
    for path in (REPOSITORY / folder).rglob("*")
    if path.is_file()
}


def test_the_settings_of_the_package_name_every_file_that_projects_take() -> None:
    folder = REPOSITORY / "generated"
    settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["tallow"]
    # setuptools finds them with this module too.
    named = {path for each in patterns for path in glob.glob(f"tallow/{each}", root_dir=folder, recursive=True)}
    assert "tallow/starter/.gitignore.in" in SHARED
    assert not SHARED - named


@pytest.fixture(scope="module", params=PROJECTS)
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds of a copy, in which kernels for a GPU and for the tests were compiled ahead."""
    name: str = request.param
    tools = tmp_path_factory.mktemp("tools")
    return build(name, tmp_path_factory.mktemp(name), tools, "gfx90a", "host64")


def build(name: str, copy: Path, tools: Path, *targets: str) -> Path:
    """A wheel of a copy of a project, built with the compilers in a folder; one of tallow has kernels for targets."""
    folder, package = PROJECTS[name]
    (copy / package).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "code"))
    for file in ("pyproject.toml", "setup.py", "LICENSE", "README.md", "generator/README.md"):
        if (folder / file).is_file():
            shutil.copy(folder / file, copy / file)
    for target in targets if name == "tallow" else ():
        code = copy / package / "kernels" / "code" / target / "fill.co"
        code.parent.mkdir(parents=True)
        code.touch()
    # What an earlier build left, of a package that had another module.
    left = copy / "build/lib" / name / "gone.py"
    left.parent.mkdir(parents=True)
    left.touch()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(copy / "out"), str(copy)]
    environment = {**os.environ, "PATH": str(tools)}
    built = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (result,) = (copy / "out").glob(f"{name}-*.whl")
    return result


@pytest.mark.full
def test_a_wheel_has_its_license_and_types_and_what_an_index_shows(wheel: Path) -> None:
    name, version = wheel.name.split("-")[:2]
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        files = {*archive.namelist()}
        metadata = BytesParser(EmailMessage, policy=EmailPolicy()).parsebytes(archive.read(f"{about}/METADATA"))
        assert LICENSE in archive.read(f"{about}/licenses/{LICENSES[name]}").decode()
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", LICENSES[name])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    description = str(metadata.get_payload())
    assert description.startswith(("# opgen\n", "<!-- Generated by opgen"))
    assert not RELATIVE.search(description)
    assert f"{name}/py.typed" in files
    if name == "tallow":
        assert {"tallow/kernels/fill.hip", "tallow/kernels/code/gfx90a/fill.co"} <= files
        assert {"tallow/runtime/kernels/types.hpp", "tallow/runtime/tensor/tensor.py"} <= files
        assert {"tallow/doctor/__main__.py", "tallow/selftest.py", "tallow/runtime/selftest/worker.py"} <= files
        assert not [file for file in files if "host64" in file]
        assert not SHARED - files
        # From the sources of those for the CPU they are compiled where they are missing.
        assert {f"tallow/kernels/{family}.cpp" for family in host_arguments.FAMILIES} <= files
        assert "tallow/gone.py" not in files
        assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.full
def test_a_wheel_with_kernels_for_the_cpu_is_for_its_platform(tmp_path: Path) -> None:
    wheel = build("tallow", tmp_path, tmp_path / "tools", host_arguments.TARGETS[0], "gfx90a")
    assert wheel.stem.split("-")[2:4] == ["py3", "none"]
    assert not wheel.stem.endswith("-any")
    with zipfile.ZipFile(wheel) as archive:
        assert f"tallow/kernels/code/{host_arguments.TARGETS[0]}/fill.co" in archive.namelist()


CODE = REPOSITORY / "generated/tallow/kernels/code"
HAS_KERNELS = pytest.mark.skipif(
    HostKernels.open() is None, reason="the compiler of the test gives kernels of this machine; it has none"
)


@HAS_KERNELS
@pytest.mark.full
def test_a_wheel_that_is_built_beside_a_compiler_has_the_kernels_of_this_machine(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    write_compiler(tools, CODE)
    wheel = build("tallow", tmp_path / "copy", tools)
    assert wheel.stem.split("-")[2:4] == ["py3", "none"] and not wheel.stem.endswith("-any")
    (target,) = {call.target for call in read_calls(tools) if call.source != "probe"}
    with zipfile.ZipFile(wheel) as archive:
        code = {name for name in archive.namelist() if "/code/" in name}
    families = [f"tallow/kernels/code/{target}/{family}" for family in host_arguments.FAMILIES]
    assert code == {f"{family}{ending}" for family in families for ending in (".co", ".json")}


# As `make build` runs it, where there is neither NumPy nor the package.
BUILD = """
import runpy, sys
sys.argv = ["setup.py", "--quiet", "build_kernels", "--inplace"]
runpy.run_path("setup.py", run_name="__main__")
assert not {"numpy", "tallow.dtype"} & {*sys.modules}
"""


@HAS_KERNELS
def test_what_a_build_compiles_is_up_to_date_for_opgen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So `make build` compiles nothing twice."""
    pytest.importorskip("setuptools.command.bdist_wheel", reason="the setuptools that is installed makes no wheels")
    tools, kernels = tmp_path / "tools", tmp_path / "tallow/kernels"
    tools.mkdir()
    write_compiler(tools, CODE)
    kernels.mkdir(parents=True)
    for path in (*CODE.parents[1].iterdir(), *CODE.parent.iterdir()):
        if path.name not in ("kernels", "code"):
            (tmp_path / path.relative_to(CODE.parents[2])).symlink_to(path)
    shutil.copy(REPOSITORY / "generated/setup.py", tmp_path)
    monkeypatch.setenv("PATH", str(tools))
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = [call for call in read_calls(tools) if call.source != "probe"]
    assert sorted(call.source for call in calls) == sorted(host_arguments.FAMILIES)
    assert len(done.stdout.splitlines()) == 1 + len(calls)
    spec = read_spec(REPOSITORY)
    every, _ = project_code_objects(REPOSITORY, spec)
    objects = [
        replace(code_object, file=kernels / f"code/{code_object.name}.co")
        for code_object in every
        if code_object.target == calls[0].target
    ]
    compilers, _ = choose_compilers(spec, objects, tmp_path, 1)
    results = compile_objects(objects, compilers, 1, lambda _: None)
    assert {result.status for result in results} == {"up to date"} and len(results) == len(calls)
