"""A backend that no template knows: its YAML file alone gives it its branch everywhere."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .project import REPOSITORY, Project, copy_project

pytestmark = pytest.mark.slow

SPEC = """\
doc: Any GPU through Vulkan.
class_prefix: Vulkan
runtime: {missing: "tallow has no Vulkan runtime; use another device"}
extra: vulkan
requires: [vulkan>=1.3]
modules: [vulkan]
label: "vulkan:{ordinal}"
display: ", vulkan:{ordinal}"
dlpack: 7
preference: -1
"""
FACTS = """\
import json
import tallow
from tallow import Device
from tallow import support

def raised(call):
    try:
        call()
    except tallow.TallowError as error:
        return [type(error).__name__, str(error)]

rows = [cell for cell in support() if cell.backend == "vulkan"]
print(json.dumps({
    "file": tallow.__file__,
    "opened": raised(lambda: Device.vulkan(1)),
    "parsed": raised(lambda: Device.parse("vulkan:0")),
    "default": Device.default().backend,
    "cells": len(rows),
    "cells_of_another": sum(cell.backend == "rocm" for cell in support()),
    "matmul": sorted({(cell.status, cell.via, cell.reason) for cell in rows if cell.method == "matmul"}),
}))
"""


@pytest.fixture(scope="module")
def project(generated_from_repository: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = copy_project(generated_from_repository.root, tmp_path_factory.mktemp("fifth") / "project")
    # The settings of ruff and mypy, whose paths are relative to them.
    shutil.copy(REPOSITORY / "pyproject.toml", project.root)
    (project.root / "generator").mkdir()
    (project.root / "spec" / "backends" / "vulkan.yaml").write_text(SPEC, encoding="utf-8")
    return project.generate()


def functions(folder: Path) -> dict[str, ast.FunctionDef]:
    """Every method of the classes in a folder's modules by its name."""
    return {
        node.name: node
        for file in folder.glob("*.py")
        for class_ in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(class_, ast.ClassDef)
        for node in class_.body
        if isinstance(node, ast.FunctionDef)
    }


def cases(function: ast.FunctionDef) -> list[str]:
    return [
        ast.unparse(case.pattern)
        for node in ast.walk(function)
        if isinstance(node, ast.Match)
        for case in node.cases
        if ast.unparse(case.pattern) not in ("_", "unknown")
    ]


def test_every_method_of_a_storage_has_its_branch(project: Project) -> None:
    storage = functions(project.output / "tallow" / "storage")
    # Blocks have the device and the dtype of what holds them, without a branch.
    names = {name for name, node in storage.items() if cases(node)} | {"device", "dtype"}
    # Methods composed of others have the branches of those.
    composed = ast.parse((project.output / "tallow" / "composed.py").read_text(encoding="utf-8"))
    names |= {node.name for node in ast.walk(composed) if isinstance(node, ast.FunctionDef)}
    methods = {cell["method"] for cell in matrix(project)}
    device_methods = {name for name, node in functions(project.output / "tallow").items() if cases(node)}
    assert names
    assert names | (device_methods & methods) == methods
    for node in storage.values():
        patterns = cases(node)
        assert sum("VulkanStorage(" in pattern for pattern in patterns) == bool(patterns), node.name


def matrix(project: Project) -> list[dict[str, str | None]]:
    cells: list[dict[str, str | None]] = json.loads(project.run("matrix", "--format", "json").stdout)
    return cells


def test_every_method_of_a_device_has_its_branch(project: Project) -> None:
    methods = {cell["method"] for cell in matrix(project)}
    actual = functions(project.output / "tallow")
    device = {name: cases(actual[name]) for name in methods if name in actual and cases(actual[name])}
    assert len(device) == 16
    for name, patterns in device.items():
        assert sum("VulkanDevice(" in pattern for pattern in patterns) == 1, name
    assert "vulkan" in actual


def test_every_custom_op_has_its_method(project: Project) -> None:
    tree = ast.parse((project.output / "tallow" / "custom_op.py").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert sorted(node.name for node in classes) == [
        f"{kind}Op{n}" for kind in ("Custom", "Inplace") for n in (1, 2, 3)
    ]
    for node in classes:
        assert "vulkan_fwd" in [inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)]


def test_it_has_its_dummy_and_its_extra(project: Project) -> None:
    assert (project.output / "tallow" / "dummy_vulkan_backend.py").is_file()
    settings = tomllib.loads((project.output / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["optional-dependencies"]["vulkan"] == ["vulkan>=1.3"]


def test_the_package_imports_and_knows_it(project: Project) -> None:
    environment = {**os.environ, "PYTHONPATH": str(project.output)}
    result = subprocess.run(
        [sys.executable, "-c", FACTS], env=environment, cwd=project.root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert Path(facts["file"]).is_relative_to(project.output)
    for error, message in (facts["opened"], facts["parsed"]):
        assert error == "BackendUnavailable"
        assert "tallow has no Vulkan runtime; use another device" in message
    assert facts["default"] != "vulkan"
    assert facts["cells"] == facts["cells_of_another"]
    # Without a runtime, all that an op has says why there is none, but for dtypes that it has on no backend.
    reasons = (
        "a product is of numbers",
        "tallow has no Vulkan runtime; use another device",
    )
    assert facts["matmul"] == [["unsupported", None, reason] for reason in reasons]


def succeed(folder: Path, *arguments: str) -> None:
    """Run a module of Python in a folder."""
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("arguments", [["format", "--check"], ["check"]], ids=["formatted", "linted"])
def test_the_package_is(project: Project, arguments: list[str]) -> None:
    succeed(project.root, "ruff", *arguments, "generated")


@pytest.mark.full
def test_the_package_is_typed_and_so_is_the_repository(project: Project, tmp_path: Path) -> None:
    """mypy, strict, as pyproject.toml says: what it remembers of the repository spares it most of both."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    for folder in settings["tool"]["mypy"]["files"]:
        if folder != "generated/tallow":
            shutil.copytree(REPOSITORY / folder, project.root / folder, dirs_exist_ok=True)
    cache = tmp_path / "cache"
    if (REPOSITORY / ".mypy_cache").is_dir():
        shutil.copytree(REPOSITORY / ".mypy_cache", cache)
    succeed(project.root, "mypy", "--cache-dir", str(cache))
