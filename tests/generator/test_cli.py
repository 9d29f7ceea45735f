"""The command line: what each command prints, in which format, with which exit code."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import own_spec
import pytest
import yaml
from click.testing import CliRunner
from opgen import __version__
from opgen.cli import main

from .project import OPGEN, REPOSITORY, Project

COMMANDS = ("generate", "check", "list", "matrix", "compile")
# The methods of Candle's storage.rs and device.rs, and one of ours.
METHODS = (
    "try_clone device dtype const_set affine powf elu cmp reduce_op to_dtype apply_op1 apply_op2 apply_op3 "
    "inplace_op1 inplace_op2 inplace_op3 unary_impl binary_impl conv1d conv_transpose1d conv2d conv_transpose2d "
    "avg_pool2d max_pool2d upsample_nearest1d upsample_nearest2d upsample_bilinear2d where_cond gather scatter_set "
    "scatter_add index_add index_select matmul copy_strided_src copy2d "
    "set_seed get_current_seed rand_uniform_f64 rand_normal_f64 zeros alloc_uninit storage_from_slice storage "
    "storage_owned synchronize"
)

Row = dict[str, str | None]


@pytest.fixture(scope="module")
def cells() -> list[Row]:
    result = CliRunner().invoke(main, ["matrix", "--root", str(REPOSITORY), "--format", "json"])
    assert result.exit_code == 0, result.output
    rows: list[Row] = json.loads(result.stdout)
    return rows


def in_spec(pattern: str, key: str) -> dict[str, Any]:
    """What the files of the spec that match say under a key, by the name of the file."""
    files = (REPOSITORY / "spec").glob(pattern)
    return {file.stem: yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).get(key, {}) for file in files}


def is_of_blocks(method: dict[str, Any]) -> bool:
    """Whether a storage method is one of weights in blocks, whose formats are its dtypes."""
    return next(iter(method.get("operands", {}).values()), {}).get("dtypes") in ("blocks", "rounded")


def test_matrix_is_complete_and_says_nothing_twice(cells: list[Row]) -> None:
    functors = in_spec("functors/*[!st].yaml", "ops")
    # opgen finds which gradients are ops.
    for kind in (kind for kind in own_spec.read().functors.values() if kind.name.endswith(("_gradient", "_gradients"))):
        functors[kind.name] = {
            functor.name: dict.fromkeys(["parameters"] * functor.is_method) for functor in kind.functors
        }
    # A functor with parameters, a result of any dtype or operands that it names is a method of its own, and so are ops
    # of rows and scans.
    own = {
        name
        for kind, ops in functors.items()
        for name, functor in ops.items()
        if kind in ("row", "scan") or {"parameters", "operands"} & set(functor) or functor.get("result") == "any"
    }
    methods = {
        name: method for actual in in_spec("storage/*.yaml", "methods").values() for name, method in actual.items()
    }
    device = in_spec("device.yaml", "methods")["device"]
    dtypes = in_spec("dtypes.yaml", "dtypes")["dtypes"]
    formats = [name.upper() for name in in_spec("formats.yaml", "formats")["formats"]]
    expected: set[tuple[str | None, ...]] = set()
    for name, method in {**methods, **{key: {} for key in own}, **device}.items():
        ops = set(functors[method["ops"]]) - own if "ops" in method else [None]
        expected |= set(
            product(
                [name],
                ops,
                in_spec("backends/*.yaml", "doc"),
                formats if is_of_blocks(method) else dtypes if name not in device or "dtypes" in method else [None],
            )
        )
    keys = [tuple(cell[name] for name in ("method", "op", "backend", "dtype")) for cell in cells]
    assert len(keys) == len(set(keys))
    assert set(keys) == expected
    assert {method for method, *_ in keys} >= set(METHODS.split())


def test_cells_have_one_schema(cells: list[Row]) -> None:
    keys = ("method", "op", "backend", "dtype", "status", "via", "reason", "gradient", "source")
    assert {tuple(cell) for cell in cells} == {keys}
    for cell in cells:
        # What is done says how, what is not says why, and both where the spec says so.
        done, reason = (True, False) if cell["status"] == "supported" else (False, True)
        assert cell["status"] in ("supported", "unsupported")
        assert (cell["via"] is not None, cell["reason"] is not None) == (done, reason), cell


def test_each_cell_tells_where_the_spec_says_so(cells: list[Row]) -> None:
    dtypes = {cell["dtype"] for cell in cells}
    for cell in cells:
        file, line, column = (cell["source"] or "").split(":")
        text = (REPOSITORY / file).read_text(encoding="utf-8").splitlines()[int(line) - 1][int(column) - 1 :]
        # The key of a cell, an op or a method, or an element of a cell that is a list.
        key = text.partition(":")[0].rpartition(".")[2]
        # A gradient that is an op has the line of the op that it is of.
        name = cell["op"] or cell["method"]
        names = {cell["method"], cell["op"], *(name.partition(end)[0] for end in ("_gradient", "_row_gradient"))}
        kinds = {
            "unary",
            "binary",
            "ternary",
            "cmp",
            "reduce",
            "unary_gradient",
            "binary_gradient",
            "binary_gradients",
            "row",
            "scan",
        }
        # What a library lacks it may lack for the dtype of the result.
        known = {"runtime", *dtypes, *names, *kinds}
        assert re.match(r"[{&]|\w+\.\w+", text) or key in known, (cell, text)


def test_every_op_has_a_backend_that_works(cells: list[Row]) -> None:
    working = {(cell["method"], cell["op"]) for cell in cells if cell["status"] == "supported"}
    assert working == {(cell["method"], cell["op"]) for cell in cells}


def test_the_matrix_counts_dtypes(small: Project) -> None:
    lines = small.run("matrix").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "op", "powf", "unary_impl.exp", "unary_impl.neg", "elu", "gather", "zeros", "synchronize"
    ]  # fmt: skip
    assert lines[0].split() == ["op", "accelerator_two", "accelerator", "host", "planned", "gradient"]
    cells = [re.split(" {2,}", line) for line in lines]
    assert cells[1][1:] == ["2 of 3", "0 of 3", "2 of 3", "0 of 3", "no"]
    assert cells[3][1:] == ["3 of 3", "2 of 3", "3 of 3", "0 of 3", "yes"]
    assert cells[7][1:] == ["yes", "yes", "yes", "no", "no"]


def test_the_matrix_says_what_has_gradients(cells: list[Row]) -> None:
    results = {(cell["method"], cell["op"], cell["dtype"]) for cell in cells if cell["gradient"]}
    assert {("matmul", None, "bf16"), ("unary_impl", "exp", "f32"), ("reduce_op", "max", "f64")} <= results
    assert {("where_cond", None, "f16"), ("fwd", None, "Q4_0")} <= results
    without = {("matmul", None, "i32"), ("cmp", "lt", "f32"), ("reduce_op", "argmax", "f32"), ("argsort", None, "f32")}
    assert not results & without
    assert all(cell["status"] == "supported" for cell in cells if cell["gradient"])


def test_the_matrix_of_an_op_says_how_each_backend_does_it(small: Project) -> None:
    how = [re.split(" {2,}", line) for line in small.run("matrix", "neg").stdout.splitlines()]
    assert how[0] == ["op", "backend", "dtypes", "how"]
    assert ["unary_impl.neg", "accelerator_two", "all", "elementwise.unary"] in how
    assert ["unary_impl.neg", "accelerator", "f16 f32", "blas: elementwise.negate or elementwise.unary"] in how
    assert how == [re.split(" {2,}", line) for line in small.run("matrix", "unary_impl.neg").stdout.splitlines()]
    both = small.run("matrix", "unary_impl").stdout
    assert "unary_impl.exp" in both and "unary_impl.neg" in both and "powf" not in both


def test_the_matrix_may_be_of_some_backends_and_dtypes(small: Project) -> None:
    inputs = ("--backend", "host", "--backend", "accelerator", "--dtype", "f16", "--dtype", "f32")
    rows = json.loads(small.run("matrix", "neg", "--format", "json", *inputs).stdout)
    expected = list(product(["accelerator", "host"], ["f16", "f32"]))
    assert [(row["backend"], row["dtype"]) for row in rows] == expected
    assert small.run("matrix", *inputs).stdout.splitlines()[0].split() == ["op", "accelerator", "host", "gradient"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ned",), "unknown op 'ned'; did you mean 'neg'?"),
        (("neg", "--backend", "hist"), "unknown backend 'hist'; did you mean 'host'?"),
        (("--dtype", "f64"), "unknown dtype 'f64'; 'opgen new dtype f64' adds it"),
    ],
)
def test_what_the_matrix_has_not_is_told(small: Project, arguments: tuple[str, ...], reason: str) -> None:
    result = small.run("matrix", *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr


def check_width(root: Path, op: tuple[str, ...], columns: int) -> None:
    shown = on_a_terminal([str(OPGEN), "matrix", *op, "--root", str(root)], {"COLUMNS": str(columns)})
    assert max(len(re.sub("\x1b\\[[0-9]*m", "", line)) for line in shown.splitlines()) <= columns


def test_the_matrix_fits_the_terminal(small: Project) -> None:
    check_width(small.root, ("neg",), 40)


@pytest.mark.full
@pytest.mark.parametrize("op", [(), ("conv2d",), ("dequantize",)], ids=str)
def test_the_matrix_of_the_repository_fits_the_terminal(op: tuple[str, ...]) -> None:
    check_width(REPOSITORY, op, 80)


def test_matrix_as_markdown(small: Project) -> None:
    head, rule, *rows = small.run("matrix", "--format", "markdown").stdout.splitlines()
    names = ["op", "accelerator_two", "accelerator", "host", "planned", "gradient"]
    assert [text.strip() for text in head.split("|")] == ["", *names, ""]
    assert set(rule) == set("|-")
    assert len({len(line) for line in (head, rule, *rows)}) == 1
    assert len(rows) == 7


def test_backends_come_in_order_of_preference(small: Project) -> None:
    preferences, prefixes = (in_spec("backends/*.yaml", key) for key in ("preference", "class_prefix"))
    module = (REPOSITORY / "generated/tallow/storage/reduce.py").read_text(encoding="utf-8")
    methods = module.split("        match ")[1:]
    ordered = sorted(preferences, key=lambda name: -preferences[name])
    assert methods
    for branches in methods:
        assert re.findall(r"case (\w+)Storage\(", branches) == [prefixes[name] for name in ordered]
    small.edit("spec/backends/host.yaml", "preference: 0", "preference: 9")
    head = small.run("matrix").stdout.splitlines()[0]
    assert head.split()[1:] == ["host", "accelerator_two", "accelerator", "planned", "gradient"]


def test_list_names_each_output_and_its_template(small: Project) -> None:
    rows = [line.split() for line in small.run("list").stdout.splitlines()]
    assert ["generated/tallow/limits.py", "templates/tallow/limits.py.j2"] in rows
    assert ["generated/tallow/storage/index.py", "templates/tallow/storage/{storage}.py.j2"] in rows
    assert [output.removeprefix("generated/") for output, _ in rows] == sorted(small.files())


def test_check_is_quiet_when_all_is_well(small: Project) -> None:
    for flags in ([], ["--diff"]):
        result = small.run("check", *flags)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "8 files, all up to date\n", "")


def disturb(project: Project) -> None:
    """Make the tree differ in every way: a file changed, one missing, one left over, one edited by hand."""
    project.edit("spec/package.yaml", "max_rank: 8", "max_rank: 9")
    (project.output / "tallow/__init__.py").unlink()
    (project.root / "templates/tallow/kernels/constants.py.j2").unlink()
    edited = project.output / "tallow/storage/index.py"
    edited.write_text(edited.read_text(encoding="utf-8") + "# mine, with no newline at the end", encoding="utf-8")


def test_check_tells_what_differs_and_writes_nothing(small: Project) -> None:
    disturb(small)
    before = small.files(), small.times()
    result = small.run("check")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "missing generated/tallow/__init__.py",
        "left over generated/tallow/kernels/constants.py",
        "differs generated/tallow/limits.py",
        "edited generated/tallow/storage/index.py",
    ]
    assert result.stderr == (
        "4 of 7 files differ; move the edit to templates/, runtime/ or spec/, "
        "or run 'opgen generate --force' to lose it\n"
    )
    assert (small.files(), small.times()) == before


def apply(diff: str, folder: Path) -> None:
    """Apply a unified diff to the files below `folder`, as `patch -p1` does, only strictly."""
    for part in diff.removeprefix("--- ").split("\n--- "):
        header, *lines = part.splitlines(keepends=True)
        old_name, new_name = header.strip(), lines.pop(0).removeprefix("+++ ").strip()
        source = [] if old_name == "/dev/null" else (folder / old_name[2:]).read_text().splitlines(keepends=True)
        result: list[str] = []
        taken = 0
        for line in lines:
            mark, text = line[0], line[1:] if line.endswith("\n") else f"{line[1:]}\n"
            if mark == "@":
                start = int(line.split()[1].split(",")[0].lstrip("-"))
                result += source[taken : max(start - 1, 0)]
                taken = max(start - 1, 0)
            elif mark == "\\":
                # Removed lines precede added ones, and what opgen emits ends in a newline.
                assert not source[-1].endswith("\n")
            elif mark == "+":
                result.append(text)
            else:
                assert source[taken].rstrip("\n") == text.rstrip("\n")
                result += [text] if mark == " " else []
                taken += 1
        result += source[taken:]
        if new_name == "/dev/null":
            assert not result
            (folder / old_name[2:]).unlink()
        else:
            (folder / new_name[2:]).write_text("".join(result))


def test_check_diff_is_what_generate_does(small: Project) -> None:
    disturb(small)
    result = small.run("check", "--diff")
    assert result.exit_code == 1
    apply(result.stdout, small.output)
    patched = small.files()
    assert small.run("generate", "--force").exit_code == 0
    assert small.files() == patched
    assert b"MAX_RANK = 9" in patched["tallow/limits.py"]


def test_generate_counts_what_it_did(small: Project) -> None:
    disturb(small)
    result = small.run("generate", "--force")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "wrote generated/tallow/__init__.py",
        "removed generated/tallow/kernels/constants.py",
        "wrote generated/tallow/limits.py",
        "wrote generated/tallow/storage/index.py",
        "7 files, 4 changed",
    ]


def test_the_root_is_found_upwards(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.root / "spec" / "storage")
    assert CliRunner().invoke(main, ["check"]).stdout == "8 files, all up to date\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [command])
    assert result.exit_code == 2
    assert "no spec/package.yaml here or above; change to the project's folder or give --root" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_root_that_is_not_there(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(main, [command, "--root", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_root_that_is_no_project(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(main, [command, "--root", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{tmp_path} is no project of opgen: it has no folder 'spec'" in result.stderr


@pytest.mark.parametrize("before", [True, False], ids=["before the command", "after it"])
def test_the_root_stands_on_either_side_of_the_command(small: Project, before: bool) -> None:
    root = ["--root", str(small.root)]
    arguments = [*root, "check"] if before else ["check", *root]
    assert CliRunner().invoke(main, arguments).stdout == "8 files, all up to date\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_spec_is_an_error_like_any_other(tmp_path: Path, command: str) -> None:
    (tmp_path / "spec").mkdir()
    result = CliRunner().invoke(main, [command, "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "spec/package.yaml:1:1: the file is missing; write it" in result.stderr


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_opgen(flag: str) -> None:
    result = CliRunner().invoke(main, [flag])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in result.stdout
    assert "_OPGEN_COMPLETE" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_shows_how_it_is_called(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert "--root" in result.stdout
    usage, *remaining = result.stdout.splitlines()
    assert usage.startswith(f"Usage: main {command}")
    assert any(line.startswith(f"  opgen {command}") for line in remaining), result.stdout


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"opgen, version {__version__}\n"


def test_opgen_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "opgen", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"opgen, version {__version__}\n"
    )


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion(shell: str) -> None:
    environment = {**os.environ, "_OPGEN_COMPLETE": f"{shell}_source"}
    result = subprocess.run([OPGEN], env=environment, capture_output=True, text=True, check=False)
    assert "opgen" in result.stdout
    assert "_OPGEN_COMPLETE" in result.stdout


def test_colours_on_a_terminal_alone(small: Project) -> None:
    disturb(small)
    command = [str(OPGEN), "check", "--root", str(small.root)]
    piped = subprocess.run(command, capture_output=True, check=False)
    assert b"\x1b" not in piped.stdout + piped.stderr

    assert "\x1b[31mdiffers\x1b[0m generated/tallow/limits.py" in on_a_terminal(command, {})


@pytest.mark.parametrize("command", [("check",), ("matrix",), ("matrix", "neg")], ids=str)
def test_no_colours_where_they_are_not_wanted(small: Project, command: tuple[str, ...]) -> None:
    disturb(small)
    inputs = [str(OPGEN), "--root", str(small.root), *command]
    assert "\x1b" in on_a_terminal(inputs, {})
    assert "\x1b" not in on_a_terminal(inputs, {"NO_COLOR": "1"})


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints to a terminal."""
    terminal, end = pty.openpty()
    own = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(command, stdout=end, stderr=end, env={**own, "TERM": "xterm", **environment})
    os.close(end)
    parts = []
    # Linux tells an error where no process writes to it any more.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 100_000):
            parts.append(part)
    process.wait()
    os.close(terminal)
    return b"".join(parts).decode()
