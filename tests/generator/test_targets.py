"""The facts of GPU architectures: kernels, drivers and launches read them, and nothing else names an architecture."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import own_spec
import pytest

from .project import REPOSITORY, Project
from .test_recipes import edited, on_hip_host, run

TARGETS = own_spec.read().targets
FACTS = "spec/kernels/targets.yaml"
ARCHITECTURE = re.compile(r"gfx\d|\bsm_\d|__gfx|__GFX|__CUDA_ARCH", re.IGNORECASE)
COMMENTS = {".hpp": r"//.*", ".cpp": r"//.*", ".yaml": r"#.*", ".in": r"#.*", ".j2": r"{#.*?#}|(?m:^ *(?:#|//) .*)"}
# A kernel that names what it was compiled for.
ABOUT = """
#include "byte_core.hpp"

#if defined(TALLOW_HAS_DOUBLED_OPERANDS) || !defined(TALLOW_MATRIX_CORES_WMMA)
#error "these are the facts of another architecture"
#endif

extern "C" __global__ void about(unsigned* facts) {
    facts[0] = tallow::wave_size;
    facts[1] = tallow::has_matrix_cores;
}
"""


def sources() -> Iterator[Path]:
    for folder in ("generator", "runtime", "spec", "starter/spec", "templates"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            is_source = path.suffix in {".py", *COMMENTS} and path.is_file()
            if is_source and path != REPOSITORY / FACTS and "__pycache__" not in path.parts:
                yield path


def without_comments(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(COMMENTS[path.suffix], "", text)
    tree = ast.parse(text)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {node.body[0].lineno for node in ast.walk(tree) if isinstance(node, owners) and ast.get_docstring(node)}
    docs |= {
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(t.string for t in tokens if t.type != tokenize.COMMENT and t.start[0] not in docs)


def test_no_architecture_is_named_outside_of_its_entry() -> None:
    named = [path for path in sources() if ARCHITECTURE.search(path.read_text(encoding="utf-8"))]
    assert not [(str(path), actual[0]) for path in named if (actual := ARCHITECTURE.search(without_comments(path)))]


def test_headers_ask_for_facts_that_a_target_has() -> None:
    """opgen refuses a fact that no header asks for; a header that asks for a misspelt one compiles."""
    every = list(chain.from_iterable(TARGETS.values()))
    known = {name for target in every for name in (*target.flags, *target.products)} | {"WAVE_SIZE", "SHARED_BYTES"}
    texts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "runtime/kernels").glob("*.hpp")]
    asked = set(re.findall(r"\bTALLOW_((?:HAS|MATRIX)_\w+|WAVE_SIZE|SHARED_BYTES)\b", "\n".join(texts)))
    assert asked == known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "name"), [("rocm", "gfx1201"), pytest.param("cuda", "sm_120", marks=pytest.mark.full)]
)
def test_an_architecture_is_one_entry(repository: Project, backend: str, name: str) -> None:
    """The recipe of CONTRIBUTING.md, for one that the compilers here know: without its entry it has the plain facts."""
    facts = repository.root / FACTS
    (line,) = re.findall(rf"^    {name}: .*\n", facts.read_text(encoding="utf-8"), re.MULTILINE)
    repository.edit(FACTS, line, "")
    repository.generate()
    compiled = repository.run("compile", "--target", name, "--family", "arange")
    assert compiled.exit_code == 2
    assert name not in (repository.output / "tallow/kernels/target.hpp").read_text(encoding="utf-8")
    heading = f"  {backend}:\n"
    remaining = facts.read_text(encoding="utf-8").partition(heading)[2]
    last = remaining.partition("\n  cuda:\n")[0].splitlines()[-1] + "\n"
    repository.edit(FACTS, last, last + line.replace(", at_run_time: true", ""))
    repository.generate()
    assert edited(repository) == [FACTS]
    compiled = repository.run("compile", "--target", name, "--family", "arange")
    if compiled.exit_code == 1 and "no compiler here builds" in compiled.stderr:
        pytest.skip(f"no compiler here builds {name}")
    assert compiled.exit_code == 0, compiled.stderr
    if backend == "rocm":
        code = f"""
import tallow as tl
from tallow import Device, Kernel, Tensor
device = Device.rocm(0)
facts = Tensor.zeros((2,), dtype="u32", device=device)
Kernel.compile("about", {ABOUT!r}, device, signature="unsigned*").launch(1, 1, facts)
print(device.inner.driver.target, *facts.tolist())
"""
        chosen = {"HIP_HOST_TARGET": name, "HIP_HOST_WAVE": "32"}
        assert run(repository, "-c", code, **on_hip_host(repository), **chosen).split() == [name, "32", "1"]
