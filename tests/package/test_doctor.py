"""What `tallow.doctor` reports of each backend: what is here, and what is missing where it is not available."""

from __future__ import annotations

import getpass
import json
import os
import platform
import pty
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tallow as tl
from tallow.doctor.__main__ import main
from tallow.runtime.base.error import InvalidArgument
from tallow.runtime.doctor import machine
from tallow.runtime.doctor.finding import Finding
from tallow.runtime.doctor.report import Report

ROOT = Path(__file__).parents[2]
BACKENDS = list(tl.Device.backends())


@pytest.fixture(scope="module")
def report() -> Report:
    return tl.doctor()


def test_every_backend_is_told_of(report) -> None:
    assert [each.backend for each in report.backends] == BACKENDS
    assert {*BACKENDS} == {cell.backend for cell in tl.support()}
    assert report.system.package == f"tallow {tl.__version__}"
    assert platform.python_version() in report.system.python and platform.machine() in report.system.cpu
    for each in report.backends:
        assert each.is_available == tl.Device.backends()[each.backend].is_available()
        # What is not available lacks something, and what lacks something says what.
        assert each.is_available or any(finding.is_present is False for finding in each.findings), each
        assert all(finding.part and finding.text for finding in each.findings)


def test_people_read_it_as_text(report) -> None:
    text = report.text()
    assert repr(report) == str(report) == text
    assert "\ncpu: available\n  ok       numpy  " in text
    assert "\033" not in text
    assert "\033[1mcpu\033[0m: \033[32mavailable\033[0m\n" in report.text(has_colours=True)


def test_packages_that_are_missing_are_named_with_what_installs_them() -> None:
    program = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name.split(".")[0] in ("hip", "cuda", "mlx") else find_spec(name)
import tallow
for report in tallow.doctor().backends[:-1]:
    print(report.backend, report.is_available, *[finding[:4] for finding in report.findings])
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    extras = tomllib.loads((ROOT / "generated/pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for backend, module in (("rocm", "hip"), ("cuda", "cuda.bindings"), ("metal", "mlx.core")):
        finding = module, False, "the module is not installed", shlex.join(["pip", "install", *extras[backend]])
        assert f"{backend} False {finding}\n" in said


def test_whatever_a_broken_installation_raises_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagnose(cls: type) -> list[Finding]:
        raise ValueError("the library is broken")

    monkeypatch.setattr(tl.CpuDevice, "diagnose", classmethod(diagnose))
    actual = tl.doctor().backends[-1]
    assert actual.backend == "cpu" and not actual.is_available
    assert actual.findings == (Finding("runtime", False, "ValueError: the library is broken"),)


def test_a_gpu_is_told_of_with_its_compiler_its_kernels_and_its_libraries(
    device: tl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(device.inner)
    if not hasattr(kind, "library_classes"):
        pytest.skip("no GPU")
    actual = {finding.part: finding for finding in kind.diagnose()}
    libraries = kind.library_classes()
    assert [*actual] == [*kind.modules, "runtime", "devices", "compiler", "kernels", "cache", *libraries]
    assert actual["runtime"].text == kind.runtime_version()
    driver = kind.open(0).driver
    assert f"the first one {driver.name} ({driver.target})" in actual["devices"].text
    for name, library in libraries.items():
        monkeypatch.setattr(kind, name, None)
        lacking = next(finding for finding in kind.diagnose() if finding.part == name)
        assert lacking.is_present is None and lacking.fix == f"it needs {library.needs}"
    # What compiles kernels may be missing where a device is.
    monkeypatch.setattr(type(driver), "compiler_version", property(lambda _: unavailable(device.backend)))
    compiler = next(finding for finding in kind.diagnose() if finding.part == "compiler")
    assert compiler.is_present is not True and compiler.text == "it does not load; install it"


def unavailable(backend: str) -> str:
    raise tl.BackendUnavailable(backend, "it does not load; install it")


def test_a_runtime_that_does_not_load_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [kind for kind in tl.Device.backends().values() if hasattr(kind, "library_classes")]
    if not kinds:
        pytest.skip("no package of a GPU is installed")
    for kind in kinds:
        monkeypatch.setattr(kind, "runtime_version", staticmethod(lambda: unavailable("this")))
        assert [*kind.diagnose()][-1] == Finding("runtime", False, "it does not load; install it")


def test_json_has_what_the_text_has(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [*said] == ["package", "python", "os", "cpu", "instructions", "backends"]
    assert [each["backend"] for each in said["backends"]] == BACKENDS
    for each, its in zip(said["backends"], report.backends, strict=True):
        assert [*each] == ["backend", "available", "findings"] and each["available"] == its.is_available
        for finding, expected in zip(each["findings"], its.findings, strict=True):
            assert [*finding] == ["part", "state", "text", "fix", "files"]
            assert finding["part"] == expected.part and finding["state"] in ("ok", "missing", "optional")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_exit_code_says_whether_a_backend_that_was_named_can_be_used(
    backend: str, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {each.backend: each.is_available for each in report.backends}
    assert main([backend]) == (0 if states[backend] else 1)
    said = capsys.readouterr().out
    assert f"\n{backend}: " in said and not any(f"\n{other}: " in said for other in states if other != backend)
    assert main([backend, "cpu"]) == (0 if states[backend] else 1)


def test_unknown_backends_are_refused_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["vulkan"])
    assert caught.value.code == 2
    assert f"unknown backend 'vulkan'; choose from {', '.join(BACKENDS)}" in capsys.readouterr().err
    with pytest.raises(InvalidArgument, match="unknown backend 'vulkan'"):
        tl.doctor("vulkan")
    assert [each.backend for each in tl.doctor("cpu").backends] == ["cpu"]


def test_help_has_examples_that_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    ends = {line.rindex("  ") for line in lines if line.startswith("python -m tallow.doctor")}
    assert len(ends) == 1, "the explanations are not aligned"
    examples = [line.partition("  ")[0].split()[3:] for line in lines if line.startswith("python -m tallow.doctor")]
    assert examples
    for arguments in examples:
        assert main(arguments) in (0, 1)


def test_libraries_are_named_with_their_files(report: Report) -> None:
    cpu = next(each for each in report.backends if each.backend == "cpu")
    files = [file for finding in cpu.findings if finding.part == "BLAS" for file in finding.files]
    assert files and all(Path(file).is_file() for file in files)
    assert machine.library_files("no_such_library") == ()
    if sys.platform == "linux":
        assert any(Path(file).name.startswith("libc.") for file in machine.library_files("c"))


def test_nothing_in_a_report_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr(getpass, "getuser", lambda: "somebody")
    monkeypatch.setattr(platform, "node", lambda: "a-host")
    finding = Finding(
        "cache", True, "kept in /home/somebody/.cache", "look at /home/somebody", ("/mnt/somebody/lib.so",)
    )
    monkeypatch.setattr(tl.CpuDevice, "diagnose", classmethod(lambda _: iter([finding])))
    result = tl.doctor("cpu")
    for said in (result.text(), json.dumps(result.as_dict())):
        assert "kept in ~/.cache" in said and "look at ~" in said and "/mnt/USER/lib.so" in said
        assert "somebody" not in said and "a-host" not in said
    assert machine.anonymous("/data/a-host/x of /home/somebody2") == "/data/HOST/x of /home/somebody2"


@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_program_has_colours_on_a_terminal_alone(no_color: str) -> None:
    command = [sys.executable, "-m", "tallow.doctor"]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": no_color}
    here, end = pty.openpty()
    process = subprocess.Popen(command, stdout=end, stderr=end, env=environment)
    os.close(end)
    said = b""
    while part := read(here):
        said += part
    os.close(here)
    assert process.wait() == 0
    assert b"cpu" in said and b"Warning" not in said
    assert (b"\033[" in said) == (not no_color)
    if not no_color:
        piped = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "\ncpu: available\n" in piped.stdout and piped.stderr == ""


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""
