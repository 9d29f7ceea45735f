"""Kernels for the host in a package that came without them: compiled once where a compiler is, and missed aloud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import tallow as tl
from processes import is_running
from tallow.kernels.host_arguments import FAMILIES, TARGETS
from tallow.kernels.toolchains import TOOLCHAINS
from tallow.runtime.backends.cpu_backend import host_compiler
from tallow.runtime.backends.cpu_backend.host_compiler import HostCompiler
from tallow.runtime.kernels.code_cache import CodeCache

CODE = Path(tl.__file__).parent / "kernels" / "code"
BUILT = [target for target in TARGETS if (CODE / target / "span.json").is_file()]
# The compiler of these tests gives what was built ahead.
pytestmark = pytest.mark.skipif(not BUILT, reason="the package has no kernels for the CPU; run 'opgen compile --host'")
# Gives what `opgen compile --host` made, and writes down what it was asked for.
COMPILER = """\
import shutil, sys
from pathlib import Path
folder = Path(__file__).parent
target = next(word for word in sys.argv if word.startswith("-DTALLOW_TARGET="))[17:-1]
source, output = Path(sys.argv[-3]), sys.argv[-1]
with (folder / "log").open("a") as log:
    log.write(f"{{target}} {{source.stem}}\\n")
if (folder / "broken").is_file() and source.stem == (folder / "broken").read_text():
    sys.exit(f"{{source.name}}:1:1: error: it is broken")
shutil.copy(Path({code!r}, target, f"{{'span' if source.stem == 'probe' else source.stem}}.co"), output)
"""
PROGRAM = """
import sys, tallow as tl
sys.executable = "/nowhere/python"
print(tl.Device.cpu().inner.kernels is not None, tl.Tensor([1.0, 3.0]).exp().sum().item())
"""


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
        }
        return {**os.environ, **{name: str(value) for name, value in own.items()}}

    def start(self, program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program]
        given = {**self.environment, **environment}
        return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program: str = PROGRAM, **environment: str) -> tuple[str, str]:
        process = self.start(program, **environment)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output, errors

    def install(self) -> None:
        compiler, program = self.folder / "tools/g++", self.folder / "tools/compiler.py"
        program.write_text(COMPILER.format(code=str(CODE)), encoding="utf-8")
        compiler.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{program}' \"$@\"\n", encoding="utf-8")
        compiler.chmod(0o755)

    def compiled(self) -> list[str]:
        """What was compiled since the last call, but for what finds out about the machine."""
        log = self.folder / "tools/log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        log.unlink(missing_ok=True)
        return sorted(line.split()[1] for line in lines if not line.endswith(" probe"))


@pytest.fixture
def fresh(tmp_path: Path) -> Fresh:
    shutil.copytree(CODE.parents[1], tmp_path / "package/tallow", ignore=shutil.ignore_patterns("code"))
    for name in ("tools", "cache"):
        (tmp_path / name).mkdir(mode=0o700)
    return Fresh(tmp_path)


def test_kernels_are_compiled_at_the_first_use_once_on_a_machine(fresh: Fresh) -> None:
    fresh.install()
    output, errors = fresh.run()
    assert output.startswith("True 22.80")
    assert "tallow compiles its kernels for the CPU" in errors and len(errors.splitlines()) == 1
    assert fresh.compiled() == sorted(FAMILIES)
    assert fresh.run() == (output, "")
    assert fresh.compiled() == []


def test_processes_that_start_together_compile_each_library_once(fresh: Fresh) -> None:
    fresh.install()
    processes = [fresh.start() for _ in range(3)]
    assert [process.communicate(timeout=120)[0][:4] for process in processes] == ["True"] * 3
    assert fresh.compiled() == sorted(FAMILIES)


def test_threads_that_start_together_have_the_same_kernels(fresh: Fresh) -> None:
    fresh.install()
    program = """
import tallow as tl
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(len({id(kernels) for kernels in pool.map(lambda _: tl.Device.cpu().inner.kernels, range(8))}))
"""
    output, errors = fresh.run(program)
    assert output == "1\n" and len(errors.splitlines()) == 1


def test_only_what_changed_is_compiled_where_kernels_were_built_ahead(fresh: Fresh) -> None:
    fresh.install()
    shutil.copytree(CODE, fresh.kernels / "code")
    with (fresh.kernels / "fold.hpp").open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    target = BUILT[0]
    changed = [
        family
        for family in FAMILIES
        if "fold.hpp" in json.loads((CODE / target / f"{family}.json").read_text(encoding="utf-8"))["sources"]
    ]
    assert fresh.run()[0].startswith("True")
    assert fresh.compiled() == sorted(changed) and changed != sorted(FAMILIES)


def test_without_a_compiler_one_warning_names_the_fix(fresh: Fresh) -> None:
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert errors.count("RuntimeWarning: NumPy does the CPU's work, for most ops many times slower: ") == 1
    assert "no compiler was found" in errors and "pip install ziglang" in errors


def test_what_a_compiler_refuses_is_told(fresh: Fresh) -> None:
    fresh.install()
    (fresh.folder / "tools/broken").write_text("fold", encoding="utf-8")
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert "g++ does not compile fold.cpp for" in errors and "error: it is broken" in errors
    # What did compile is kept, and a compiler that works does the rest.
    fresh.compiled()
    (fresh.folder / "tools/broken").unlink()
    assert fresh.run()[0].startswith("True")
    assert "fold" in fresh.compiled()


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
    (fresh.kernels / "fold.cpp").unlink()
    output, errors = fresh.run()
    assert output.startswith("False 22.80")
    assert "fold.cpp is missing; reinstall tallow" in errors


def test_the_doctor_tells_of_the_kernels_and_compiles_nothing(fresh: Fresh) -> None:
    program = """
import sys, tallow as tl
sys.executable = "/nowhere/python"
print(*(finding[1:] for finding in tl.CpuDevice.examine() if "kernels" in finding.part))
"""
    said, _ = fresh.run(program)
    assert "(None, 'none in the package', '') (False, 'NumPy does the work: no compiler was found" in said
    fresh.install()
    said, errors = fresh.run(program)
    assert f"(None, 'not compiled yet; {fresh.folder}/tools/g++ makes them at the first use" in said and errors == ""
    assert fresh.compiled() == []
    fresh.run()
    assert "(True, 'compiled for " in fresh.run(program)[0]
    shutil.copytree(CODE, fresh.kernels / "code")
    assert "(True, 'built ahead for " in fresh.run(program)[0]
    with (fresh.kernels / "parts.hpp").open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    assert "(False, 'out of date for " in fresh.run(program)[0]
    assert "(None, 'NumPy does everything, as TALLOW_THREADS=0 says'" in fresh.run(program, TALLOW_THREADS="0")[0]


def test_a_compiler_of_this_machine_takes_the_flags(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    if not any(True for target in TARGETS for _ in host_compiler.compilers(target)):
        pytest.skip("no compiler is installed")
    assert HostCompiler(CodeCache(tmp_path)).target() in TARGETS
