"""Kernels for the host in a package that came without them: compiled in the background, and missed aloud."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import tallow as tl
from compilers import Call, read_calls, take_calls, write_compiler
from processes import is_running, wait_until
from tallow.kernels.host_arguments import FAMILIES, TARGETS
from tallow.kernels.toolchains import TOOLCHAINS
from tallow.runtime.compilation import background, host_compiler
from tallow.runtime.compilation.host_compiler import HostCompiler
from tallow.runtime.kernels.code_cache import CodeCache

CODE = Path(tl.__file__).parent / "kernels" / "code"
BUILT = [target for target in TARGETS if (CODE / target / "span.json").is_file()]
pytestmark = pytest.mark.skipif(not BUILT, reason="the package has no kernels for the CPU; run 'opgen compile --host'")
# Computes as a program does, whose Python has no compilers beside it.
PROGRAM = """
import os, sys, tallow as tl
sys.executable = os.environ["INTERPRETER"]
print(tl.Device.cpu().inner.kernels is not None, tl.Tensor([1.0, 3.0]).exp().sum().item(), flush=True)
"""
EXAMINE = """
import os, sys, tallow as tl
sys.executable = os.environ["INTERPRETER"]
for _ in sys.stdin:
    print(*(finding[1:4] for finding in tl.CpuDevice.diagnose() if "kernels" in finding.part), flush=True)
"""
LINE = "tallow: NumPy computes in this process, for most ops many times slower: "


@dataclass(frozen=True)
class Fresh:
    """A package without compiled kernels, a cache of its own, and the compilers that are installed."""

    folder: Path

    @property
    def kernels(self) -> Path:
        return self.folder / "package/tallow/kernels"

    @property
    def environment(self) -> Mapping[str, str]:
        own = {
            "PYTHONPATH": self.folder / "package",
            "PATH": self.folder / "tools",
            "TALLOW_CACHE": self.folder / "cache",
            "TMPDIR": self.folder / "temporary",
            "INTERPRETER": self.folder / "interpreter/python3",
        }
        return {**os.environ, **{name: str(value) for name, value in own.items()}}

    def start(self, program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program]
        inputs = {**self.environment, **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=inputs, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, program: str = PROGRAM, text: str = "", **environment: str) -> tuple[str, str]:
        process = self.start(program, **environment)
        output, errors = process.communicate(text, timeout=120)
        assert process.returncode == 0, errors
        return output, errors

    def install(self) -> None:
        write_compiler(self.folder / "tools", CODE)

    def hold(self) -> None:
        """Let compilers wait until `release`."""
        (self.folder / "tools/hold").touch()

    def release(self) -> None:
        (self.folder / "tools/hold").unlink()

    def calls(self) -> list[Call]:
        """What compilers were asked for since the last call, but for what finds out about the machine."""
        return [call for call in take_calls(self.folder / "tools") if call.source != "probe"]

    def compiled(self) -> list[str]:
        return sorted(call.source for call in self.calls())

    @property
    def cache(self) -> CodeCache:
        return CodeCache(self.folder / "cache")

    def wait(self) -> None:
        """Wait until nothing is compiled in the background, and something was."""
        log = self.folder / "tools/log"
        wait_until(lambda: log.is_file() and not background.is_running(self.cache))

    def leftovers(self) -> list[Path]:
        """What is left in the folder of temporary files."""
        return [*(self.folder / "temporary").iterdir()]


def append(path: Path, text: str) -> None:
    """Append to a file, which is copied first if it is a link."""
    content, mode = path.read_text(encoding="utf-8"), path.stat().st_mode
    path.unlink()
    path.write_text(content + text, encoding="utf-8")
    path.chmod(mode)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    # Hundreds of files, most of which stay as they are.
    ignored = shutil.ignore_patterns("code")
    shutil.copytree(CODE.parents[1], tmp_path / "package/tallow", ignore=ignored, copy_function=os.symlink)
    for name in ("tools", "cache", "temporary", "interpreter"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "interpreter/python3").symlink_to(Path(sys.executable).resolve())
    fresh = Fresh(tmp_path)
    # Beside tests that take all processors, what has the lowest priority takes minutes.
    append(fresh.kernels.parent / "runtime/compilation/background.py", "_lower_priority = lambda: None\n")
    yield fresh
    (tmp_path / "cache").chmod(0o700)
    wait_until(lambda: not background.is_running(fresh.cache))


def test_a_program_without_kernels_computes_with_numpy_and_the_next_one_has_them(fresh: Fresh) -> None:
    fresh.install()
    fresh.hold()
    # The compiler cannot have ended, nor holds the streams of the program that it outlives.
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    compiler = fresh.folder / "tools/g++"
    assert errors == f"{LINE}{compiler} compiles its kernels in the background, for programs that start later\n"
    fresh.release()
    fresh.wait()
    assert fresh.compiled() == sorted(FAMILIES)
    assert fresh.leftovers() == []
    output, errors = fresh.run()
    assert output.startswith("True 22.80") and errors == ""
    assert fresh.compiled() == []


def test_what_compiles_in_the_background_has_the_lowest_priority() -> None:
    program = """
import os
from tallow.runtime.compilation import background
background._lower_priority()
print(os.nice(0))
"""
    command = [sys.executable, "-c", program]
    # Linux lowers the priority of a session, which must not be that of the tests.
    ended = subprocess.run(command, capture_output=True, start_new_session=True, check=True)
    assert ended.stdout == b"19\n"


def test_a_program_keeps_its_bits_when_kernels_appear(fresh: Fresh) -> None:
    fresh.install()
    program = """
import os, sys, tallow as tl
from multiprocessing import get_context
sys.executable = os.environ["INTERPRETER"]
x = tl.arange(1000, dtype=tl.DType.F32)

def bits(_=None):
    return tl.Device.cpu().inner.kernels is None, (x * 0.37).exp().sum().item().hex(), (x.sin() * x).mean().item().hex()

first = bits()
print("first", flush=True)
input()
assert bits() == first and first[0]
if not os.fork():
    assert bits() == first
    os._exit(0)
assert os.wait()[1] == 0
"""
    process = fresh.start(program)
    assert process.stdout is not None and process.stdout.readline() == "first\n"
    fresh.wait()
    assert fresh.run()[0].startswith("True")
    _, errors = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0, errors
    assert errors.startswith(LINE) and len(errors.splitlines()) == 1


@pytest.mark.full
def test_programs_that_start_together_let_each_library_be_compiled_once(fresh: Fresh) -> None:
    fresh.install()
    fresh.hold()
    processes = [fresh.start() for _ in range(3)]
    ends = [process.communicate(timeout=120) for process in processes]
    assert all(output.startswith("False") and len(errors.splitlines()) == 1 for output, errors in ends)
    fresh.release()
    fresh.wait()
    assert fresh.compiled() == sorted(FAMILIES)


@pytest.mark.full
def test_a_compilation_that_is_ended_leaves_nothing_and_is_begun_again(fresh: Fresh) -> None:
    fresh.install()
    fresh.hold()
    fresh.run()
    wait_until(lambda: any(call.source != "probe" for call in read_calls(fresh.folder / "tools")))
    calls = take_calls(fresh.folder / "tools")
    os.kill(calls[-1].parent, signal.SIGTERM)
    wait_until(lambda: not background.is_running(fresh.cache))
    assert not any(is_running(call.process) for call in calls)
    assert fresh.leftovers() == []
    # A process that is killed cannot clean up: the next one does.
    fresh.run()
    wait_until(lambda: any(call.source != "probe" for call in read_calls(fresh.folder / "tools")))
    os.kill(take_calls(fresh.folder / "tools")[-1].parent, signal.SIGKILL)
    wait_until(lambda: not background.is_running(fresh.cache))
    fresh.release()
    fresh.run()
    fresh.wait()
    assert fresh.run()[0].startswith("True")
    assert fresh.leftovers() == []


@pytest.mark.full
def test_threads_that_start_together_have_the_same_kernels(fresh: Fresh) -> None:
    fresh.install()
    program = """
import os, sys, tallow as tl
sys.executable = os.environ["INTERPRETER"]
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(len({id(kernels) for kernels in pool.map(lambda _: tl.Device.cpu().inner.kernels, range(8))}))
"""
    output, errors = fresh.run(program)
    assert output == "1\n" and len(errors.splitlines()) == 1
    fresh.wait()
    assert fresh.run(program) == (output, "")


@pytest.mark.full
def test_only_what_changed_is_compiled_where_kernels_were_built_ahead(fresh: Fresh) -> None:
    fresh.install()
    shutil.copytree(CODE, fresh.kernels / "code", copy_function=os.symlink)
    append(fresh.kernels.parent / "runtime/kernels/fold.hpp", "// changed\n")
    target = BUILT[0]
    changed = [
        family
        for family in FAMILIES
        if "fold.hpp" in json.loads((CODE / target / f"{family}.json").read_text(encoding="utf-8"))["sources"]
    ]
    assert fresh.run()[0].startswith("False")
    fresh.wait()
    assert fresh.compiled() == sorted(changed) and changed != sorted(FAMILIES)
    assert fresh.run()[0].startswith("True")


def test_a_library_is_checked_and_loaded_at_its_first_use(fresh: Fresh) -> None:
    shutil.copytree(CODE, fresh.kernels / "code", copy_function=os.symlink)
    damaged = fresh.kernels / "code" / BUILT[0] / "host_scan.co"
    content = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(content[:-1])
    program = """
import tallow as tl
x = tl.Tensor([1.0, 3.0])
libraries = x.device.inner.kernels._libraries
print(x.exp().sum().item(), *sorted(libraries))
try:
    x.cumsum(0)
except tl.BackendUnavailable as error:
    print(error)
print(x.softmax(0).shape, *sorted(libraries))
"""
    output, errors = fresh.run(program)
    before, message, after = output.splitlines()
    assert before.endswith(" fold span") and after.endswith(" fold host_row span") and not errors
    assert str(damaged) in message and "damaged" in message and "opgen compile --host" in message


def test_without_a_compiler_one_line_names_the_fix(fresh: Fresh) -> None:
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert (
        errors.startswith(f"{LINE}no compiler was found for its kernels; install ") and "pip install ziglang" in errors
    )
    assert len(errors.splitlines()) == 1


def test_a_failure_is_remembered_until_a_compiler_changes(fresh: Fresh) -> None:
    fresh.install()
    (fresh.folder / "tools/broken").write_text("fold", encoding="utf-8")
    assert "compiles its kernels in the background" in fresh.run()[1]
    fresh.wait()
    assert "fold" in fresh.compiled()
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert "g++ does not compile fold.cpp for" in errors and "error: it is broken" in errors
    assert len(errors.splitlines()) == 1
    said, _ = fresh.run(EXAMINE, "\n")
    assert (
        "g++ does not compile fold.cpp for" in said and "the next try is in a day, or when a compiler changes" in said
    )
    assert fresh.compiled() == [] and fresh.leftovers() == []
    # What did compile is kept, and a compiler that works does the rest.
    (fresh.folder / "tools/broken").unlink()
    append(fresh.folder / "tools/g++", "# another version\n")
    assert "compiles its kernels in the background" in fresh.run()[1]
    fresh.wait()
    assert "fold" in fresh.compiled()
    assert fresh.run()[0].startswith("True")


@pytest.mark.parametrize(
    "executable",
    ["/opt/program/editor", *(pytest.param(path, marks=pytest.mark.full) for path in ("/nowhere/python3", ""))],
)
def test_a_program_that_is_no_python_is_not_started_again(fresh: Fresh, executable: str) -> None:
    fresh.install()
    output, errors = fresh.run(INTERPRETER=executable)
    assert output.startswith("False 22.80")
    assert errors.startswith(LINE) and len(errors.splitlines()) == 1
    assert "start" in errors and fresh.compiled() == []


@pytest.mark.full
def test_the_command_compiles_at_once(fresh: Fresh) -> None:
    fresh.install()
    program = """
import os, sys, runpy
sys.executable, sys.argv = os.environ["INTERPRETER"], ["compilation"]
runpy.run_module("tallow.runtime.compilation", run_name="__main__")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=fresh.environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and len(ended.stderr.splitlines()) == len(FAMILIES) + 1
    assert fresh.compiled() == sorted(FAMILIES)
    assert fresh.run()[0].startswith("True")


def test_a_compiler_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nsleep 600 &\necho $$ $! > {tmp_path}/started\nwait\n", encoding="utf-8")
    compiler.chmod(0o755)
    with pytest.raises(subprocess.TimeoutExpired):
        host_compiler._run([str(compiler)], os.environ, 1.0)
    for number in (tmp_path / "started").read_text(encoding="utf-8").split():
        assert not is_running(int(number))


def test_what_a_compiler_that_hangs_leaves_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> NoReturn:
        raise subprocess.TimeoutExpired("g++", 60)

    monkeypatch.setattr(host_compiler, "_run", run)
    compiler = host_compiler.Compiler(TOOLCHAINS[0], "/usr/bin/g++", next(iter(TOOLCHAINS[0].targets)))
    message = "does not compile probe.cpp for .*: error: it had not ended after 60 seconds, and was killed; install"
    with pytest.raises(host_compiler.CannotCompile, match=message):
        compiler.compile("", "probe.cpp")


def test_nothing_is_compiled_that_cannot_be_kept(fresh: Fresh) -> None:
    fresh.install()
    (fresh.folder / "cache").chmod(0o777)
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert "others can write to it" in errors and "set TALLOW_CACHE to a folder of your own" in errors
    assert fresh.compiled() == []


def test_nothing_is_compiled_where_numpy_is_to_do_everything(fresh: Fresh) -> None:
    fresh.install()
    output, errors = fresh.run(TALLOW_THREADS="0")
    assert output.startswith("False 22.80") and errors == ""
    assert fresh.compiled() == []


def test_a_source_that_is_missing_is_told(fresh: Fresh) -> None:
    fresh.install()
    (fresh.kernels.parent / "runtime/kernels/fold.hpp").unlink()
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert "fold.hpp is missing; reinstall tallow" in errors


def test_the_doctor_tells_of_the_kernels_and_compiles_nothing(fresh: Fresh) -> None:
    doctor = fresh.start(EXAMINE)

    def diagnose() -> str:
        assert doctor.stdin is not None and doctor.stdout is not None
        doctor.stdin.write("\n")
        doctor.stdin.flush()
        return doctor.stdout.readline()

    assert "(None, 'none in the package', '') (False, 'NumPy computes: no compiler was found" in diagnose()
    fresh.install()
    assert f"(None, 'not compiled yet; {fresh.folder}/tools/g++ does it in the background" in diagnose()
    assert fresh.compiled() == []
    fresh.hold()
    fresh.run()
    wait_until(lambda: background.is_running(fresh.cache))
    assert f"(None, '{fresh.folder}/tools/g++ compiles them at this moment" in diagnose()
    fresh.release()
    fresh.wait()
    assert "(True, 'compiled for " in diagnose()
    shutil.copytree(CODE, fresh.kernels / "code", copy_function=os.symlink)
    assert "(True, 'built ahead for " in diagnose()
    append(fresh.kernels.parent / "runtime/kernels/parts.hpp", "// changed\n")
    assert "(False, 'out of date for " in diagnose()
    assert doctor.communicate(timeout=60) == ("", "") and doctor.returncode == 0
    said, _ = fresh.run(EXAMINE, "\n", TALLOW_THREADS="0")
    assert "(None, 'NumPy does everything, as TALLOW_THREADS=0 says'" in said


def test_a_compiler_of_this_machine_takes_the_flags(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    if not any(True for target in TARGETS for _ in host_compiler.compilers(target)):
        pytest.skip("no compiler is installed")
    assert HostCompiler(CodeCache(tmp_path)).target() in TARGETS
