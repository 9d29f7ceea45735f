"""Code objects: what is compiled when, by which compiler, and what stays when something goes wrong."""

import asyncio
import itertools
import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opgen.compilers import locate
from opgen.process import run
from opgen.resources import Usage, read_report, table, without_report
from processes import is_running

from .compilation import SETTINGS, Compilation
from .project import OPGEN

ALL = [f"{target}/{family}" for target in ("one", "three", "two") for family in ("scale", "shift")]
REPORT = """\
/there/scale.hip:37:1: remark: Function Name: {kernel} [-Rpass-analysis=kernel-resource-usage]
extern "C" __global__ void scale_f32(Scale arguments) {{
^
/there/scale.hip:37:1: remark:     SGPRs: 18 [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     VGPRs: {vgprs} [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     ScratchSize [bytes/lane]: 0 [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     Dynamic Stack: False [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     Occupancy [waves/SIMD]: 8 [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     SGPRs Spill: {spills} [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     VGPRs Spill: {spills} [-Rpass-analysis=kernel-resource-usage]
/there/scale.hip:37:1: remark:     LDS Size [bytes/block]: 4096 [-Rpass-analysis=kernel-resource-usage]
"""


def test_a_code_object_for_each_target_and_family(compilation: Compilation) -> None:
    result = compilation.succeed()
    assert compilation.built() == ALL
    assert sorted(compilation.code()) == sorted(f"{name}{ending}" for name in ALL for ending in (".co", ".json"))
    assert compilation.code()["two/shift.co"] == b'two\n#include "other.hpp"\n'
    assert "6 code objects in" in result.stdout
    assert result.stdout.endswith("6 compiled, 0 up to date, 0 failed\n")
    record = compilation.record("two/scale")
    assert list(record["sources"]) == ["common.hpp", "nested.hpp", "scale.hip"]
    assert record["compiler"] == "first 1.0"


def test_nothing_is_compiled_twice(compilation: Compilation) -> None:
    compilation.succeed()
    before = compilation.project.times()
    compilation.log()
    result = compilation.succeed()
    assert compilation.built() == []
    assert compilation.project.times() == before
    assert result.stdout.endswith("0 compiled, 6 up to date, 0 failed\n")


@pytest.mark.parametrize(("file", "family"), [("nested.hpp", "scale"), ("other.hpp", "shift"), ("shift.hip", "shift")])
def test_only_what_includes_a_changed_file_is_compiled(compilation: Compilation, file: str, family: str) -> None:
    compilation.succeed()
    compilation.log()
    compilation.source(file, "changed")
    compilation.succeed()
    assert compilation.built() == [f"{target}/{family}" for target in ("one", "three", "two")]


@pytest.mark.parametrize(
    "cause", ["flags", "version", "record", "torn record", "object", "cut object", "strange record"]
)
def test_what_is_out_of_date_is_compiled(compilation: Compilation, cause: str) -> None:
    compilation.succeed()
    compilation.log()
    code = compilation.kernels / "code"
    match cause:
        case "flags":
            compilation.settings(flags=["-O2", "--for={target}"])
        case "version":
            (compilation.tools / "version").write_text("1.1", encoding="utf-8")
        case "record":
            (code / "two/shift.json").unlink()
        case "torn record":
            (code / "two/shift.json").write_bytes((code / "two/shift.json").read_bytes()[:-9])
        case "strange record":
            (code / "two/shift.json").write_text("[1]", encoding="utf-8")
        case "object":
            (code / "two/shift.co").unlink()
        case "cut object":
            (code / "two/shift.co").write_bytes((code / "two/shift.co").read_bytes()[:-9])
    compilation.succeed()
    assert compilation.built() == (ALL if cause in ("flags", "version") else ["two/shift"])


def test_targets_and_families_can_be_chosen(compilation: Compilation) -> None:
    compilation.succeed("--target", "one", "--target", "two", "--family", "shift")
    assert compilation.built() == ["one/shift", "two/shift"]


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--target", "tow", "unknown target 'tow'; did you mean 'two'?"),
        ("--family", "scall", "unknown family 'scall'; did you mean 'scale'?"),
        ("--family", "xyz", "unknown family 'xyz'; known are scale, shift"),
        ("--jobs", "0", "0 is not in the range x>=1"),
    ],
)
def test_errors_on_the_command_line(compilation: Compilation, option: str, name: str, message: str) -> None:
    result = compilation.run(option, name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert compilation.code() == {}


def test_what_the_spec_no_longer_has_is_removed(compilation: Compilation) -> None:
    compilation.succeed()
    (compilation.kernels / "code/one/.opgen-torn").touch()
    compilation.settings(targets=["one", "two"])
    (compilation.project.root / "spec/kernels/shift.yaml").unlink()
    compilation.succeed("--target", "two")
    assert sorted(compilation.code()) == ["one/scale.co", "one/scale.json", "two/scale.co", "two/scale.json"]
    assert not (compilation.kernels / "code/three").exists()


def test_what_another_program_compiled_stays(compilation: Compilation) -> None:
    """The HIP runtime for the CPU keeps its code objects beside opgen's, with records of its own."""
    folder = compilation.kernels / "code/host64"
    folder.mkdir(parents=True)
    (folder / "scale.co").write_bytes(b"machine code")
    (folder / "scale.json").write_text('{"sources": {}, "code": "0"}', encoding="utf-8")
    (folder / "shift.co").write_bytes(b"without a record, nobody uses it")
    compilation.succeed("--target", "one", "--family", "scale")
    assert sorted(compilation.code()) == ["host64/scale.co", "host64/scale.json", "one/scale.co", "one/scale.json"]


def test_a_failure_keeps_the_old_object_and_the_others_go_on(compilation: Compilation) -> None:
    compilation.succeed()
    old = compilation.code()
    compilation.source("scale.hip", "broken")
    compilation.source("shift.hip", "changed")
    result = compilation.run("--target", "one", "--target", "two")
    assert result.exit_code == 1
    for target in ("one", "two"):
        assert f"{target}/scale: {compilation.kernels}/scale.hip:3:1: error: it is broken\n" in result.stderr
    assert result.stdout.endswith("2 compiled, 0 up to date, 2 failed\n")
    new = compilation.code()
    assert new.keys() == old.keys()
    assert {name for name in new if new[name] != old[name]} == {
        f"{target}/shift{ending}" for target in ("one", "two") for ending in (".co", ".json")
    }
    # It is not taken for up to date, and compiles once it is fixed.
    compilation.log()
    assert compilation.run("--target", "one").exit_code == 1
    assert compilation.built() == ["one/scale"]
    (compilation.kernels / "scale.hip").write_text("", encoding="utf-8")
    compilation.succeed("--target", "one")


def test_a_compiler_that_writes_nothing_has_failed(compilation: Compilation) -> None:
    compiler = compilation.tools / "first"
    text = compiler.read_text(encoding="utf-8")
    assert '> "$output"\n' in text
    compiler.write_text(f'{text}: > "$output"\n', encoding="utf-8")
    result = compilation.run("--target", "one")
    assert result.exit_code == 1
    assert f"one/scale: {compiler} ended with code 0, but wrote nothing" in result.stderr
    assert compilation.code() == {}


ODD = (None, 1, "x", [], ["x"], [{}], {}, {"x": 1})


def damaged(record: bytes) -> Iterator[bytes]:
    """A record that was cut short, or that another program wrote."""
    yield from (record[:size] for size in range(0, len(record), max(1, len(record) // 8)))
    content = json.loads(record)
    # Without kernels a record is whole too: not every compiler reports them.
    odd = (value for value in itertools.product([*content, "another"], ODD) if value != ("kernels", []))
    for key, value in odd:
        yield json.dumps({**content, key: value}).encode()
    for field in content["kernels"][0]:
        yield json.dumps(
            {**content, "kernels": [{**content["kernels"][0], field: "\0" if field != "kernel" else 1}]}
        ).encode()
        yield json.dumps(
            {**content, "kernels": [{k: v for k, v in content["kernels"][0].items() if k != field}]}
        ).encode()
    yield from (b"null", b"[]", b"1", b"\xff", b"[" * 100_000, b'{"kernels": ' * 100_000)


def test_a_damaged_record_is_none(compilation: Compilation, full: bool) -> None:
    """What it stands beside is compiled again, whatever is asked of it."""
    (compilation.tools / "report").write_text(REPORT.format(kernel="small", vgprs=8, spills=0), encoding="utf-8")
    arguments = ("--target", "one", "--family", "scale", "--stats")
    compilation.succeed(*arguments)
    file = compilation.kernels / "code/one/scale.json"
    complete = file.read_bytes()
    for content in itertools.islice(damaged(complete), 0, None, 1 if full else 9):
        file.write_bytes(content)
        assert isinstance(compilation.project.run("check").exception, SystemExit)
        result = compilation.succeed(*arguments)
        assert content == complete or "1 compiled" in result.output, content[:200]
        assert file.read_bytes() == complete


def test_a_folder_that_cannot_be_written_to(compilation: Compilation) -> None:
    (compilation.kernels / "code").write_text("in the way", encoding="utf-8")
    result = compilation.run("--family", "scale", "--target", "one")
    assert result.exit_code == 1
    assert f"one/scale: {compilation.kernels}/code" in result.stderr


def test_a_source_that_is_missing(compilation: Compilation) -> None:
    (compilation.kernels / "scale.hip").unlink()
    result = compilation.run()
    assert result.exit_code == 1
    assert result.stderr == f"{compilation.kernels / 'scale.hip'} is missing; run 'opgen generate'\n"


def test_a_project_without_targets(small_without_targets: Compilation) -> None:
    assert "0 code objects in" in small_without_targets.succeed().stdout


@pytest.fixture
def small_without_targets(compilation: Compilation) -> Compilation:
    path = compilation.project.root / "spec/backends/accelerator.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.partition("code_objects:")[0], encoding="utf-8")
    return compilation


def test_the_first_toolchain_that_can_build_a_target_does(compilation: Compilation) -> None:
    (compilation.tools / "targets").unlink()
    compilation.install("first", "one")
    compilation.install("second-1", "one", "two", "three")
    compilation.succeed("--family", "scale")
    assert compilation.log() == [
        "scale one first unset exact",
        "scale three second-1 unset unset",
        "scale two second-1 unset unset",
    ]
    # A newer one comes before it, and the version of another compiler makes another object.
    compilation.install("second-2", "two")
    compilation.install("second-1", "two", "three")
    compilation.succeed("--family", "scale")
    assert compilation.built() == ["two/scale"]


def test_a_toolchain_may_have_targets_of_its_own_and_a_subcommand(compilation: Compilation) -> None:
    only = {**SETTINGS["toolchains"]["first"], "targets": {"two": ["-own", "{target}"]}, "subcommand": "build"}
    compilation.settings(toolchains={"first": only})
    result = compilation.run("--family", "scale")
    assert compilation.built() == ["two/scale"]
    assert compilation.record("two/scale")["flags"] == ["-O3", "--for={target}", "-first", "-own", "{target}"]
    assert (compilation.tools / "first_word").read_text(encoding="utf-8") == "build\n"
    assert "no compiler here builds one, three" in result.output
    compilation.settings(toolchains={"first": {**only, "targets": {"tow": []}}})
    expected = "toolchain 'first' builds 'tow', which is no target of the backend; did you mean 'two'?"
    assert expected in compilation.run().output


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/nowhere/sh\n"])
def test_a_compiler_that_does_not_start_is_passed_over(compilation: Compilation, script: str) -> None:
    (compilation.tools / "first").write_text(script, encoding="utf-8")
    compilation.install("second-1", "one", "two", "three")
    compilation.succeed("--family", "scale")
    assert {line.split()[2] for line in compilation.log()} == {"second-1"}


def test_a_variable_that_leads_nowhere_is_kept_from_the_compiler(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLS", "/nowhere")
    compilation.succeed("--target", "one", "--family", "scale")
    assert compilation.log() == ["scale one first unset exact"]


def test_a_variable_that_leads_to_the_compiler_is_passed_on(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "named").mkdir()
    compilation.tools.rename(tmp_path / "named/bin")
    monkeypatch.setenv("TOOLS", str(tmp_path / "named"))
    moved = Compilation(compilation.project, tmp_path / "named/bin")
    moved.succeed("--target", "one", "--family", "scale")
    assert moved.log() == [f"scale one first {tmp_path}/named exact"]


def test_candidates_are_looked_for_in_order(tmp_path: Path) -> None:
    tool, other, unusable = (tmp_path / name for name in ("tool", "other", "unusable"))
    for path in (tool, other, unusable):
        path.touch()
    for path in (tool, other):
        path.chmod(0o755)
    environment = {"PATH": str(tmp_path), "HERE": str(tmp_path), "THERE": "/nowhere", "EMPTY": ""}
    candidates = [
        "$THERE/tool",
        "$EMPTY/tool",
        "$NONE/tool",
        "$HERE/tool",
        "/nowhere/tool",
        "tool",
        "unusable",
        "other",
    ]
    assert locate(candidates, environment) == [
        (str(tool), {"THERE", "EMPTY", "NONE"}),
        (str(other), {"THERE", "EMPTY", "NONE", "HERE"}),
    ]
    assert locate([str(unusable), "nothing"], environment) == []


def test_what_pip_installed_is_found_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "tool"
    tool.touch()
    tool.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert locate(["tool"], {"PATH": "/nowhere"}) == [(str(tool), set())]


def test_no_compiler_at_all(compilation: Compilation) -> None:
    (compilation.tools / "first").unlink()
    result = compilation.run()
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "no compiler here builds one, two, three; install one that does:\n"
        "  first: the first, from its makers\n"
        "  second: the second, from a shop\n"
    )
    assert compilation.code() == {}


def test_targets_that_no_compiler_builds_are_left_out_and_named(compilation: Compilation) -> None:
    """The others are built. To install a compiler again that is here would not help, so it is not advised."""
    (compilation.tools / "targets").write_text("first two\n", encoding="utf-8")
    left_out = "no compiler here builds one, three; install one that does:\n  second: the second, from a shop\n"
    assert compilation.succeed().stderr.endswith(left_out)
    assert compilation.built() == ["two/scale", "two/shift"]
    assert compilation.succeed("--target", "two").stderr == "compiling\n"
    # It is a failure where the target was asked for by its name.
    assert compilation.run("--target", "three").exit_code == 1
    compilation.install("second-1")
    both = "  first: the first, from its makers\n  second: the second, from a shop\n"
    assert compilation.succeed().stderr.endswith(both)


def test_only_toolchains_that_are_for_a_target_are_advised(compilation: Compilation) -> None:
    first, second = SETTINGS["toolchains"].values()
    compilation.settings(toolchains={"first": {**first, "targets": {"one": ["-1"]}}, "second": second})
    (compilation.tools / "first").unlink()
    said = compilation.run().stderr
    assert "builds one; install one that does:\n  first: the first, from its makers\n  second: " in said
    assert "builds two, three; install one that does:\n  second: the second, from a shop\n" in said


@pytest.mark.parametrize("host", [False, True])
def test_kernels_that_are_out_of_date_are_told(compilation: Compilation, host: bool) -> None:
    """By generate, which makes them so, and by check; not where none were compiled."""
    project = compilation.project
    templates = project.root / "templates/tallow/kernels"
    (templates / "{family}.hip.j2").write_text('#include "other.hpp" // for apply\n', encoding="utf-8")
    if host:
        (templates / "{family}.hip.j2").rename(templates / "{host}.cpp.j2")
        for path in (project.root / "spec/kernels").iterdir():
            path.write_text(f"host: true\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
        second = SETTINGS["toolchains"]["second"]
        compilation.settings(host=True, probe="other.hpp", toolchains={"second": second})
        compilation.install("second-1", "one", "two")
    assert project.run("generate", "--force").stderr == ""
    compilation.succeed("--target", "one", "--target", "two")
    assert project.run("check").stderr == project.run("generate").stderr == ""
    project.edit("runtime/kernels/other.hpp", "void apply() {}", "void apply() { }")
    fix = "opgen compile --host" if host else "opgen compile"
    expected = f"kernels of one, two are out of date (scale, shift); run '{fix}'\n"
    for command in ("generate", "check"):
        result = project.run(command)
        assert (result.exit_code, result.stderr) == (0, expected)
    compilation.succeed("--target", "one", "--target", "two")
    assert project.run("check").stderr == ""
    # A family that is new is missing, where there are others.
    (compilation.kernels / "code/two/shift.json").unlink()
    assert project.run("check").stderr == f"kernels of two are out of date (shift); run '{fix}'\n"
    # Where no compiler is for it, a target's kernels stay as they are.
    for compiler in compilation.tools.iterdir():
        compiler.unlink()
    project.edit("runtime/kernels/other.hpp", "void apply() { }", "void apply() {  }")
    assert (project.run("generate").stderr, project.run("check").stderr) == ("", "")


def test_the_host_gets_the_kernels_of_the_first_target_that_it_is(compilation: Compilation) -> None:
    """Those of other machines with --all; what is out of date of those is removed."""
    project = compilation.project
    for path in (project.root / "spec/kernels").iterdir():
        path.write_text(f"host: true\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    templates = project.root / "templates/tallow/kernels"
    (templates / "{family}.hip.j2").unlink()
    (templates / "{host}.cpp.j2").write_text("void kernels() {} // apply\n", encoding="utf-8")
    probe = 'extern "C" bool is_supported() { return TARGET != 1; }\n'
    (project.root / "runtime/kernels/probe.hpp").write_text(probe, encoding="utf-8")
    compilers = ["g++", "clang++-19", "clang++"]
    toolchain = {
        "install": "a compiler",
        "compilers": compilers,
        "flags": ["-shared", "-fPIC", "-x", "c++"],
        "targets": {"one": ["-DTARGET=1"], "two": ["-DTARGET=2"], "three": ["-DTARGET=3"]},
    }
    compilation.settings(host=True, probe="probe.hpp", flags=[], toolchains={"any": toolchain})
    assert project.run("generate", "--force").exit_code == 0
    assert "2 code objects" in compilation.succeed("--host").stdout
    assert sorted(name for name in compilation.code() if name.endswith(".co")) == ["two/scale.co", "two/shift.co"]
    assert "6 code objects" in compilation.succeed("--host", "--all").stdout
    compilation.source("scale.cpp", "changed")
    compilation.succeed("--host")
    saved = ["one/shift.co", "three/shift.co", "two/scale.co", "two/shift.co"]
    assert sorted(name for name in compilation.code() if name.endswith(".co")) == saved
    compilation.settings(targets=["one"], toolchains={"any": {**toolchain, "targets": {"one": ["-DTARGET=1"]}}})
    assert compilation.succeed("--host").stderr.endswith("this machine is none of one; NumPy does the work\n")
    result = compilation.run("--all")
    assert result.exit_code == 2
    assert "--all belongs to --host; without both, opgen compiles for every target" in result.stderr


@pytest.fixture
def libraries(compilation: Compilation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of device libraries that the project's toolchain wants, with one of the two constants."""
    folder = tmp_path / "share/libraries"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TOOLS", str(tmp_path))
    for name in ("math.bc", "version_one.bc"):
        (folder / name).write_text(name, encoding="utf-8")
    toolchain = {
        **SETTINGS["toolchains"]["first"],
        "flags": ["--libraries={device_libraries}"],
        "device_libraries": {
            "folders": ["$NOTHING/libraries", "/nowhere", "$TOOLS/share/libraries"],
            "text": "the constant {constant}",
            "flags": ["-assemble"],
        },
    }
    compilation.settings(toolchains={"first": toolchain})
    facts = "wave_size: 32, shared_bytes: 1, constants: {version_one.bc: 1, version_two.bc: 2}"
    targets = compilation.project.root / "spec/kernels/targets.yaml"
    targets.write_text(f"targets: {{accelerator: {{one: {{{facts}}}}}}}", encoding="utf-8")
    return folder


def test_constants_that_the_libraries_lack_are_made(compilation: Compilation, libraries: Path) -> None:
    compilation.succeed("--target", "two")
    assert compilation.log() == ["constant first", "scale two first unset exact", "shift two first unset exact"]
    (result,) = (compilation.project.root / "build/device_libraries").iterdir()
    assert {file.name: file.read_text(encoding="utf-8") for file in result.iterdir()} == {
        "math.bc": "math.bc",
        "version_one.bc": "version_one.bc",
        "version_two.bc": "the constant 2\n",
    }
    assert (result / "math.bc").readlink() == libraries / "math.bc"
    compilation.succeed()
    assert "constant first" not in compilation.log()


def test_libraries_that_lack_nothing_are_used_as_they_are(compilation: Compilation, libraries: Path) -> None:
    (libraries / "version_two.bc").touch()
    compilation.succeed("--target", "two", "--family", "scale")
    assert compilation.log() == ["scale two first unset exact"]
    assert not (compilation.project.root / "build").exists()


def test_a_toolchain_without_its_libraries_is_none(compilation: Compilation, libraries: Path) -> None:
    for file in libraries.iterdir():
        file.unlink()
    libraries.rmdir()
    result = compilation.run("--target", "two")
    assert result.exit_code == 1
    assert "no compiler here builds two; install one that does:\n  first: the first, from its makers" in result.stderr


@pytest.mark.parametrize("jobs", [1, 3])
def test_so_many_at_once(compilation: Compilation, jobs: int) -> None:
    for family in ("scale", "shift"):
        compilation.source(f"{family}.hip", "slow")
    compilation.succeed("--jobs", str(jobs))
    running = most = 0
    for line in (compilation.tools / "log").read_text(encoding="utf-8").splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert (running, most) == (0, jobs)


def test_a_compiler_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nsleep 600 &\necho $$ $! > {tmp_path}/started\nwait\n", encoding="utf-8")
    compiler.chmod(0o755)
    answer = asyncio.run(run([str(compiler)], os.environ, 1.0))
    assert (answer.code, answer.errors) == (124, f"{compiler}: had not ended after 1 seconds, and was killed")
    for number in (tmp_path / "started").read_text(encoding="utf-8").split():
        assert not is_running(int(number))


def test_interrupted(compilation: Compilation, tmp_path: Path) -> None:
    """Nothing half-written stays, nor a compiler."""
    compilation.succeed()
    old = compilation.code()
    for family in ("scale", "shift"):
        compilation.source(f"{family}.hip", "wait")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [OPGEN, "compile", "--root", compilation.project.root, "--jobs", "2"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores the signal, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    waiting = compilation.tools / "waiting"
    deadline = time.monotonic() + 60
    while not waiting.is_file() or len(waiting.read_text().split()) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert output == ""
    assert errors.split() == ["compiling", "Aborted!"]
    for number in waiting.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)
    assert compilation.code() == old
    assert list(temporary.iterdir()) == []


def test_without_a_terminal_each_code_object_that_is_compiled_has_a_line(compilation: Compilation) -> None:
    label, *lines = compilation.succeed("--target", "two").stderr.splitlines()
    assert label == "compiling"
    names = {line.removeprefix("compiled ").partition(",")[0] for line in lines}
    assert names == {"two/scale", "two/shift"}
    assert [line.partition(", ")[2] for line in lines] == ["1 of 2", "2 of 2"]
    assert compilation.succeed("--target", "two").stderr == "compiling\n"


def test_progress_on_a_terminal(compilation: Compilation) -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [OPGEN, "compile", "--root", compilation.project.root],
        stdout=end,
        stderr=end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    process.wait()
    os.close(end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert process.returncode == 0, shown
    assert "100%" in shown
    assert "/shift" in shown
    assert "6 compiled" in shown


def test_stats(compilation: Compilation) -> None:
    report = REPORT.format(kernel="small", vgprs=8, spills=0) + REPORT.format(kernel="large", vgprs=100, spills=0)
    (compilation.tools / "report").write_text(report, encoding="utf-8")
    compilation.succeed("--target", "one", "--target", "two", "--family", "scale")
    # What was compiled before is reported as well.
    result = compilation.succeed("--target", "one", "--target", "two", "--family", "scale", "--stats")
    assert result.stdout.splitlines() == [
        "spills  scratch  occupancy  vgprs  agprs  sgprs  sgpr_spills   lds  target  kernel",
        "     0        0          8    100      0     18            0  4096  one     large",
        "     0        0          8    100      0     18            0  4096  two     large",
        "     0        0          8      8      0     18            0  4096  one     small",
        "     0        0          8      8      0     18            0  4096  two     small",
    ]
    assert "0 compiled, 2 up to date, 0 failed" in result.stderr


def test_stats_fail_where_a_kernel_spills(compilation: Compilation) -> None:
    report = REPORT.format(kernel="small", vgprs=8, spills=2) + REPORT.format(kernel="large", vgprs=100, spills=0)
    (compilation.tools / "report").write_text(report, encoding="utf-8")
    compilation.succeed("--target", "one", "--family", "scale")
    result = compilation.run("--target", "one", "--family", "scale", "--stats")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split() == ["2", "0", "8", "8", "0", "18", "2", "4096", "one", "small"]
    assert "1 kernels spill registers" in result.stderr


def test_reports_of_older_and_newer_compilers() -> None:
    old = REPORT.format(kernel="old", vgprs=9, spills=1).replace(
        "/there/scale.hip:37:1: remark:     Dynamic Stack: False [-Rpass-analysis=kernel-resource-usage]\n", ""
    )
    new = REPORT.format(kernel="new", vgprs=9, spills=0).replace(" SGPRs: 18", " TotalSGPRs: 20")
    first, second = read_report(old + new)
    assert first == Usage("old", vgprs=9, sgprs=18, spills=1, sgpr_spills=1, lds=4096, occupancy=8)
    assert second == Usage("new", vgprs=9, sgprs=20, lds=4096, occupancy=8)
    assert read_report("nothing of the kind") == ()
    assert list(table([])) == ["spills  scratch  occupancy  vgprs  agprs  sgprs  sgpr_spills  lds  target  kernel"]


PTXAS_REPORT = """\
ptxas info    : 64 bytes gmem
ptxas info    : Compiling entry function 'scale_f32' for 'sm_90'
ptxas info    : Function properties for scale_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 4096 bytes smem, 8 bytes cmem[2]
ptxas info    : Compile time = 5.241 ms
ptxas info    : Compiling entry function 'scale_f64' for 'sm_90'
ptxas info    : Function properties for scale_f64
    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 40 bytes cumulative stack size
ptxas info    : Function properties for slow_path
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compile time = 9.5 ms
"""


def test_a_report_of_ptxas() -> None:
    first, second = read_report(PTXAS_REPORT)
    assert first == Usage("scale_f32", vgprs=30, lds=4096)
    assert second == Usage("scale_f64", vgprs=255, spills=3, scratch=40)
    error = '/there/scale.hip(5): error: identifier "x" is undefined\n\n1 error detected in the compilation.\n'
    assert without_report(PTXAS_REPORT + error) == error


def test_messages_are_shown_without_the_report() -> None:
    newer = (
        "/there/scale.hip:4:1: remark: Function Name: scale [-Rpass-analysis=kernel-resource-usage]\n"
        '    4 | extern "C" __global__ void scale(Scale arguments) {\n'
        "      | ^\n"
    )
    error = "/there/scale.hip:5:9: error: unused variable\n    5 | int x;\n      |     ^\n1 error generated.\n"
    assert without_report(REPORT.format(kernel="a", vgprs=1, spills=0) + error + newer) == error
