"""Names of a spec beside those of emitted code: each is refused where it stands, or gives right values."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opgen.notes import is_name
from opgen.project import read_spec
from opgen.reserved import CPP_WORDS, FORMULA_WORDS, METHOD_WORDS, names_around

from .project import REPOSITORY, Project
from .test_init import mylib as mylib

SAMPLE = 60
EMITTED = REPOSITORY / "generated/tallow"
ENTRY = """\
  op_{number}:
    doc: half of x
    dtypes: float
    parameters: {{{name}: 0.5}}
    formula: x * {name}
"""
LET = """\
  op_{number}:
    doc: half of x
    dtypes: float
    let: {{{name}: x * 0.5}}
    formula: {name}
"""
# Twice, as the second call takes another way.
SCRIPT = """
import inspect
import mylib
x = mylib.Tensor([1.0, -2.0], dtype="f32")
for number, name in {ops}:
    method = getattr(x, f"op_{{number}}")
    for _ in range(2):
        assert method().tolist() == [0.5, -1.0], name
        assert method(**{{name: 0.25}} if name in inspect.signature(method).parameters else {{}}).tolist() in (
            [0.25, -0.5], [0.5, -1.0]), name
"""


def own_names(function: ast.FunctionDef) -> Iterator[str]:
    """The names in the body of an emitted function that are none of its parameters."""
    inner = [node for node in ast.walk(function) if isinstance(node, ast.Lambda | ast.FunctionDef)]
    parameters = {argument.arg for node in inner for argument in (*node.args.args, *node.args.kwonlyargs)}
    for node in (node for statement in function.body for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            names = [node.id]
        else:
            names = [node.name] if isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name else []
        yield from (name for name in names if name not in parameters and is_name(name))


def methods() -> Iterator[tuple[Path, ast.FunctionDef]]:
    """The methods of emitted modules whose parameters the spec names."""
    for path in (*(EMITTED / "storage").glob("[a-z]*.py"), *(EMITTED / "gradients").glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for each in (node for node in tree.body if isinstance(node, ast.ClassDef) and path.stem != "base"):
            yield from ((path, node) for node in each.body if isinstance(node, ast.FunctionDef))


def test_names_of_emitted_methods_are_reserved() -> None:
    spec = read_spec(REPOSITORY)
    parameters = {method.name: ["self", *method.signature.arguments] for method in spec.storage_methods()}
    backends = [backend.name for backend in spec.backends]
    libraries = {library.name for backend in spec.backends for library in backend.libraries}
    lost = {
        f"{path.name}: {name} in {function.name}"
        for path, function in methods()
        for name in own_names(function)
        if name not in METHOD_WORDS | libraries | names_around(parameters[function.name], backends) | FORMULA_WORDS
    }
    assert not lost


def candidates() -> list[str]:
    """Whatever templates, emitted code, Python and C++ call anything, as far as the spec's grammar has such names."""
    files = [*(REPOSITORY / "templates").rglob("*.j2"), *EMITTED.glob("[a-z]*.py"), *EMITTED.glob("storage/*.py")]
    files += [*EMITTED.glob("gradients/*.py"), *(REPOSITORY / "runtime/kernels").rglob("elementwise*.hpp")]
    words = {word for file in files for word in re.findall(r"[A-Za-z_]\w*", file.read_text(encoding="utf-8"))}
    words |= {*CPP_WORDS, *FORMULA_WORDS, *METHOD_WORDS, *dir(builtins), *keyword.softkwlist, "part_1", "cpu", "rocm"}
    return sorted(word for word in words if is_name(word))


def with_accepted(project: Project, entries: Mapping[int, str]) -> list[int]:
    """Write the ops that opgen accepts to a project, and generate it; their numbers."""
    file = project.root / "spec/functors/unary.yaml"
    text, accepted = file.read_text(encoding="utf-8"), {*entries}
    while True:
        file.write_text(text + "".join(entries[number] for number in sorted(accepted)), encoding="utf-8")
        result = project.run("generate")
        refused = {int(number) for number in re.findall(r"\bop_(\d+)'", result.stderr)}
        if not refused:
            assert result.exit_code == 0, result.stderr
            return sorted(accepted)
        assert all(line.startswith("spec/functors/unary.yaml:") for line in result.stderr.splitlines()[:-1])
        accepted -= refused


def require_right_values(project: Project, names: Mapping[int, str], entries: Mapping[int, str], folder: Path) -> None:
    """Each op is refused, or halves x: by its default, and by the name of its parameter."""
    shutil.copytree(project.root, folder, ignore=shutil.ignore_patterns("generated"))
    copy = Project(folder)
    ops = [(number, names[number]) for number in with_accepted(copy, entries)]
    paths = os.pathsep.join(map(str, (copy.output, REPOSITORY / "generated")))
    environment = {**os.environ, "PYTHONPATH": paths, "ROCM_PATH": "/nowhere"}
    command = [sys.executable, "-c", SCRIPT.format(ops=ops)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    require_cpp((copy.output / "mylib/kernels/unary.hip").read_text(encoding="utf-8"))


def require_cpp(kernels: str) -> None:
    """The declarations of functors are C++, as far as a compiler is here."""
    compiler = shutil.which("g++")
    functions = re.findall(r"(template <typename T, typename P>) static TALLOW_INLINE (auto apply\(.*?\)) \{", kernels)
    source = "".join(f"namespace n{i} {{ {' '.join(each)}; }}\n" for i, each in enumerate(functions))
    if compiler is not None:
        command = [compiler, "-x", "c++", "-std=gnu++20", "-fsyntax-only", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("entry", [ENTRY, LET], ids=["parameter", "let"])
def test_names_that_templates_and_languages_have(mylib: Project, entry: str, tmp_path: Path, full: bool) -> None:
    names = candidates()
    chosen = dict(enumerate(names if full else random.Random(1).sample(names, SAMPLE)))
    entries = {number: entry.format(number=number, name=name) for number, name in chosen.items()}
    require_right_values(mylib, chosen, entries, tmp_path / "mylib")


DOCS = (
    *("ends in \\", "ends in ??/", 'ends in "', '"quoted"', "''", '"""', "a \\ b \\\\", "*/ /* //"),
    *("{{ x }} {% if %}", "{# #}", "a ", "%s {} $x", "# --", "\\u2028 \\N{DASH} \\x", "word \\ " * 30),
)


def test_docs_of_any_text(mylib: Project, tmp_path: Path) -> None:
    """No doc changes the code around it."""
    entries = {
        number: f"  op_{number}: {{doc: {json.dumps(doc)}, dtypes: float, parameters: {{p: 0.5}}, formula: x * p}}\n"
        for number, doc in enumerate(DOCS)
    }
    require_right_values(mylib, dict.fromkeys(entries, "p"), entries, tmp_path / "mylib")
    kernels = (tmp_path / "mylib/generated/mylib/kernels/unary.hip").read_text(encoding="utf-8")
    assert not re.search(r"//.*(\\|\?\?/)$", kernels, re.MULTILINE)


@pytest.mark.parametrize("name", ["key", "type", "new", "plan", "int", "self", "cpu_result", "x_inner"])
def test_backends_of_taken_names_are_refused(mylib: Project, name: str, tmp_path: Path) -> None:
    shutil.copytree(mylib.root, tmp_path / "mylib", ignore=shutil.ignore_patterns("generated"))
    project = Project(tmp_path / "mylib")
    folder = project.root / "spec/backends"
    (folder / "rocm.yaml").rename(folder / f"{name}.yaml")
    result = project.run("generate")
    if name not in ("cpu_result", "x_inner"):
        assert result.exit_code == 1
        assert f"spec/backends/{name}.yaml:1:1: '{name}' cannot be a backend, the name is taken" in result.stderr
    else:
        assert "Traceback" not in result.output


# Where kernels have a name as it stands.
PLACES = {
    "spec/kernels/constants.yaml": "constants:\n  {name}: {{doc: threads of a block, value: 256}}\n",
    "spec/kernels/groups.yaml": "groups:\n  index:\n    doc: an index\n    fields: {{{name}: u64}}\n",
    "spec/kernels/tuples.yaml": "tuples:\n  call:\n    doc: a call\n    items: {{{name}: number}}\n",
    "spec/kernels/own_field.yaml": "doc: own\nheaders: [own.hpp]\narguments: {{Own: {{{name}: u64}}}}\nkernels: []\n",
    "spec/kernels/own_kernel.yaml": (
        "doc: own\nheaders: [own.hpp]\narguments: {{Own: {{result: u64}}}}\n"
        'kernels: [{{name: "{name}", over: {{}}, arguments: Own, call: own}}]\n'
    ),
    "spec/formats.yaml": (
        "formats:\n  own: {{doc: own, number: 0, elements: 1, bytes: 4, fields: {{{name}: {{type: f32, offset: 0}}}}, "
        "quant: {name}}}\n"
    ),
}


@pytest.mark.parametrize("file", PLACES)
def test_words_of_cpp_where_kernels_have_names(file: str, small: Project, full: bool) -> None:
    words = sorted(word for word in CPP_WORDS if is_name(word))
    path = small.root / file
    path.parent.mkdir(exist_ok=True)
    for word in words if full else random.Random(2).sample(words, 3):
        path.write_text(PLACES[file].format(name=word), encoding="utf-8")
        result = small.run("check")
        assert f"'{word}' cannot be a name in kernels, it is a word of C++" in result.stderr, result.output
        assert f"{file}:" in result.stderr


def test_ops_may_be_called_as_cpp_has_its_words(mylib: Project, tmp_path: Path) -> None:
    """Kernels have structs of other letters, and functions whose names end in dtypes."""
    shutil.copytree(mylib.root, tmp_path / "mylib", ignore=shutil.ignore_patterns("generated"))
    project = Project(tmp_path / "mylib")
    file = project.root / "spec/functors/unary.yaml"
    entry = "  {word}: {{doc: half of x, dtypes: float, parameters: {{p: 0.5}}, formula: x * p}}\n"
    text = file.read_text(encoding="utf-8")
    words = {word for word in CPP_WORDS if is_name(word)}
    while True:
        file.write_text(text + "".join(entry.format(word=word) for word in sorted(words)), encoding="utf-8")
        result = project.run("generate")
        refused = words & {*re.findall(r"'(\w+)'", result.stderr)}
        if not refused:
            break
        words -= refused
    assert result.exit_code == 0, result.stderr
    require_cpp((project.output / "mylib/kernels/unary.hip").read_text(encoding="utf-8"))
    assert len(words) > 50
    call = "getattr(mylib.Tensor([1.0]), word)().tolist()"
    code = f"import mylib\nfor word in {sorted(words)}: assert {call} == [0.5], word"
    paths = os.pathsep.join(map(str, (project.output, REPOSITORY / "generated")))
    environment = {**os.environ, "PYTHONPATH": paths, "ROCM_PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
