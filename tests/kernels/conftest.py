"""The compilers of this machine, and kernels compiled with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import own_spec
import pytest
from opgen.code_objects import CodeObject, code_objects
from opgen.compile import choose_compilers
from opgen.compilers import Compiler
from tallow.runtime.kernels.code_cache import CodeCache, cache_folder

REPOSITORY = Path(__file__).parent.parent.parent
KERNELS = REPOSITORY / "generated" / "tallow" / "kernels"
HEADERS = REPOSITORY / "runtime" / "kernels"
# A kernel of an emitted source, and its name.
KERNEL = re.compile(r"^TALLOW_KERNEL\((\w+), .*\n", re.MULTILINE)
# Targets that the compilers of continuous integration do not know yet.
NEWER = {"gfx950": "clang 20 is the first that builds it"}
DISASSEMBLERS = (*(f"llvm-objdump-{version}" for version in (22, 21, 20, 19)), "/opt/rocm/llvm/bin/llvm-objdump")
FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+)>:\n((?:[ \t].*\n|\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Compilation:
    """The compiled kernels, and the compiler's messages."""

    file: Path
    messages: str


class Machine:
    """The compilers installed here. A target that none of them builds is skipped, or fails in CI."""

    @cached_property
    def objects(self) -> dict[tuple[str, str], CodeObject]:
        """Every code object by its target and family, kept from one run of the tests to the next."""
        objects = code_objects(own_spec.read(), KERNELS, (HEADERS,), REPOSITORY / "build" / "code_objects")
        return {(code_object.target, code_object.family): code_object for code_object in objects}

    @cached_property
    def _compilers(self) -> tuple[dict[str, Compiler], list[str]]:
        return choose_compilers(own_spec.read(), self.objects.values(), REPOSITORY / "build", jobs=2)

    def compiler(self, target: str) -> Compiler:
        """The compiler of a target."""
        compilers, mends = self._compilers
        if target not in compilers:
            if target.startswith("sm_"):
                # No package of the system brings nvcc. NVRTC, which comes as a wheel, compiles the same sources in
                # tests/package/test_cuda_compiler.py.
                pytest.skip("nvcc is not installed")
            if target in NEWER:
                pytest.skip(f"the compilers here are older than {target}: {NEWER[target]}")
            absent("\n".join(mends))
        return compilers[target]

    def shared(self, targets: Iterable[str]) -> list[list[str]]:
        """Those of the targets that are built here, together where one compiler builds them."""
        built = self._compilers[0]
        here = [target for target in targets if target in built]
        groups = [[other for other in here if built[other] == built[target]] for target in here]
        return [group for target, group in zip(here, groups, strict=True) if group[0] == target]

    def compile(self, target: str, source: Path, folder: Path) -> Compilation:
        """Compile a source, which must succeed, to a file in `folder`; once, as long as all sources are the same."""
        compiler = self.compiler(target)
        output = folder / f"{source.stem}-{target}.co"
        command = compiler.command(target, source, output, (KERNELS, HEADERS))

        def compiled() -> bytes:
            result = subprocess.run(command, env=compiler.environment, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            # A byte that no message has ends them.
            return result.stderr.encode() + b"\0" + output.read_bytes()

        read = [*sorted(folder.glob("*.h*")), *sorted(HEADERS.glob("*.hpp"))]
        made_of = [path.read_text(encoding="utf-8") for path in read]
        made_of += [compiler.version, *(word.replace(str(folder), "") for word in command)]
        messages, _, code = CodeCache(cache_folder()).get(made_of, compiled, bytes).partition(b"\0")
        output.write_bytes(code)
        return Compilation(output, messages.decode())


def absent(what: str) -> None:
    """Skip the test, or fail where everything has to be installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def names(family: str) -> list[str]:
    """The kernels of a family."""
    return KERNEL.findall((KERNELS / f"{family}.hip").read_text(encoding="utf-8"))


def machine_code(file: Path) -> dict[str, str]:
    """The instructions of each function in a code object for AMD."""
    tool = next(filter(None, map(shutil.which, DISASSEMBLERS)), None)
    if tool is None:
        absent(f"no disassembler: none of {', '.join(DISASSEMBLERS)}; in Debian 'apt-get install llvm-19'")
    command = [str(tool), "--disassemble", "--no-show-raw-insn", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(FUNCTION.findall(text))


def check_addresses(target: str, file: Path) -> None:
    """Each access of memory says in which it is, as those that do not are slower: none of AMD's is flat."""
    if target.startswith("gfx"):
        for kernel, code in machine_code(file).items():
            assert not re.search(r"\bflat_(?:load|store|atomic)", code), (target, kernel)


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


@pytest.fixture
def reduced(tmp_path: Path) -> Callable[[str, Iterable[str]], Path]:
    """Makes the source of a family with only some of its kernels."""
    for header in KERNELS.glob("*.hpp"):
        (tmp_path / header.name).symlink_to(header)

    def make(family: str, kept: Iterable[str]) -> Path:
        expected = set(kept)
        text = (KERNELS / f"{family}.hip").read_text(encoding="utf-8")
        source = tmp_path / f"{family}.hip"
        source.write_text(KERNEL.sub(lambda match: match[0] if match[1] in expected else "", text), encoding="utf-8")
        return source

    return make
