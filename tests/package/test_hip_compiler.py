"""hiprtc, and the targets that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tallow.runtime.base.error import CompilationFailed

pytest.importorskip("hip")

from tallow.compilers import rocm as calls
from tallow.runtime.backends.gpu_backend.driver.run_time_compiler import RunTimeCompiler


class Status(NamedTuple):
    """A status of the library: 0 is none, and false."""

    value: int
    name: str = "HIPRTC_ERROR_COMPILATION"

    def __bool__(self) -> bool:
        return self.value != 0


class Program:
    """What is compiled: its source, and the options that it was given."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.options: list[str] = []

    def createRef(self) -> Program:  # noqa: N802
        return self


class Library:
    """A hiprtc that knows some targets, and gives the options as code."""

    def __init__(self, *targets: str) -> None:
        self.targets = targets
        self.compiled: list[str] = []

    def has_symbol(self, name: str) -> bool:
        return hasattr(self, name)

    def hiprtcVersion(self) -> tuple[Any, ...]:  # noqa: N802
        return Status(0), 9, 0

    def hiprtcCreateProgram(self, source: bytes, *_: object) -> tuple[Any, ...]:  # noqa: N802
        return Status(0), Program(source)

    def hiprtcDestroyProgram(self, _: Program) -> tuple[Any, ...]:  # noqa: N802
        return (Status(0),)

    def hiprtcCompileProgram(self, program: Program, _: int, options: list[bytes]) -> tuple[Any, ...]:  # noqa: N802
        program.options = [option.decode() for option in options]
        target = next(option for option in program.options if option.startswith("--offload-arch=")).partition("=")[2]
        self.compiled.append(target)
        return (Status(target not in self.targets or program.source == b"wrong"),)

    def hiprtcGetProgramLogSize(self, _: Program) -> tuple[Any, ...]:  # noqa: N802
        return Status(0), 3

    def hiprtcGetProgramLog(self, _: Program, log: bytearray) -> tuple[Any, ...]:  # noqa: N802
        log[:] = b"log"
        return (Status(0),)

    def hiprtcGetCodeSize(self, program: Program) -> tuple[Any, ...]:  # noqa: N802
        return Status(0), len(" ".join(program.options))

    def hiprtcGetCode(self, program: Program, code: bytearray) -> tuple[Any, ...]:  # noqa: N802
        code[:] = " ".join(program.options).encode()
        return (Status(0),)


Hiprtc = Callable[..., RunTimeCompiler]


@pytest.fixture
def hiprtc(monkeypatch: pytest.MonkeyPatch) -> Hiprtc:
    """The compiler of rocm, with a hiprtc that knows some targets."""

    def with_targets(*targets: str, wave_size: int = 64) -> RunTimeCompiler:
        monkeypatch.setattr(calls, "binding", Library(*targets))
        return RunTimeCompiler(calls, lambda: "6.4.0", wave_size)

    return with_targets


@pytest.mark.parametrize(
    ("target", "generic"),
    [
        ("gfx906", "gfx9-generic"),
        ("gfx950", "gfx9-4-generic"),
        ("gfx1012", "gfx10-1-generic"),
        ("gfx1036", "gfx10-3-generic"),
        ("gfx1103", "gfx11-generic"),
        ("gfx1153", "gfx11-generic"),
        ("gfx1201", "gfx12-generic"),
    ],
)
def test_what_hiprtc_does_not_know_is_compiled_for_its_family(hiprtc: Hiprtc, target: str, generic: str) -> None:
    compiler = hiprtc("gfx1100", generic)
    library = calls.binding
    assert compiler.version == "hiprtc 9.0 of HIP 6.4.0"
    code = compiler.compile("source", "name", {}, target)
    assert code.split()[-2:] == [f"--offload-arch={generic}".encode(), b"-mcode-object-version=6"]
    assert library.compiled == [target, target, generic, generic]
    # The headers then have the facts of the family.
    assert f"-DTALLOW_TARGET_{generic.replace('-', '_')}".encode() in code.split()
    # That is found out once.
    compiler.compile("source", "name", {}, target)
    assert library.compiled[4:] == [generic]
    assert b"generic" not in compiler.compile("source", "name", {}, "gfx1100")


def test_a_target_without_an_entry_has_the_plainest_facts_of_its_wave_size(hiprtc: Hiprtc) -> None:
    for wave_size, plain in ((64, "gfx900"), (32, "gfx1010")):
        assert f"-DTALLOW_TARGET_{plain}" in hiprtc(wave_size=wave_size).options("gfx9999")
    assert "-DTALLOW_TARGET_gfx1031" in hiprtc(wave_size=32).options("gfx1036")


@pytest.mark.parametrize("target", ["gfx1100", "gfx1101", "gfx908", "gfx90a", "gfx1250"])
def test_a_source_that_does_not_compile_is_told_for_its_own_target(hiprtc: Hiprtc, target: str) -> None:
    """Whether hiprtc knows the target, or knows neither it nor a family of it."""
    with pytest.raises(CompilationFailed) as raised:
        hiprtc("gfx1100", "gfx12-generic").compile("wrong", "name", {}, target)
    assert raised.value.target == target


def test_a_source_that_does_not_compile_for_the_family_is_told_too(hiprtc: Hiprtc) -> None:
    compiler = hiprtc("gfx12-generic")
    for _ in range(2):
        with pytest.raises(CompilationFailed) as raised:
            compiler.compile("wrong", "name", {}, "gfx1201")
        assert raised.value.target == "gfx12-generic"
