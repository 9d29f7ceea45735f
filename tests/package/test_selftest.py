"""The self-test: it tries all that the support matrix has, finds what is wrong, and outlives crashes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow.runtime.doctor.support import SupportCell
from tallow.runtime.selftest import plan, program, report, trial, worker
from tallow.selftest import main

ROOT = Path(__file__).parents[2]
BACKENDS = list(tl.Device.backends())
# A worker that tries few families, after something was done to the package.
SCRIPT = """
import os, signal, sys, time
import tallow as tl
from tallow.runtime.selftest import plan, programs, speed, worker

every = plan.families
plan.families = lambda backend: [each for each in every(backend) if each.name in {families}]
plan.views = lambda backend, name: plan.Family(name, (), 0)
programs.programs = lambda backend: []
speed.times = lambda device: iter(())
home = next(base for base in tl.Storage.__mro__ if "softmax" in vars(base))
softmax = home.softmax

def broken(self, layout, dim):
    result = softmax(self, layout, dim)
    if self.inner.device is not trusted[0]:
        {fault}
    return result

reference = worker.trial.reference
trusted = []

def remembered():
    device = reference()
    trusted.append(device.inner)
    return device

worker.trial.reference = remembered
home.softmax = broken
sys.exit(worker.main())
"""
FAMILIES = ["fft", "lifecycle", "pool", "row", "sort"]


def supported(backend: str) -> list[SupportCell]:
    return [cell for cell in tl.support() if cell.backend == backend and cell.status == "supported"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_op_each_dtype_and_each_function_is_tried(backend: str) -> None:
    actual = [*plan.families(backend), plan.views(backend, worker.VIEWS)]
    tried = {id(cell): cell for family in actual for cell in family.cells}.values()
    expected = [
        cell for cell in supported(backend) if plan.is_call(cell) and plan.family_of(cell) not in plan.NOT_TRIED
    ]
    traits: tuple[Callable[[SupportCell], Any], ...] = (
        lambda cell: (cell.method, cell.op),
        lambda cell: (cell.method, cell.via),
        lambda cell: (plan.family_of(cell), cell.dtype),
        lambda cell: (cell.method, cell.dtype) if cell.op is None else None,
    )
    for trait in traits:
        assert {trait(cell) for cell in tried} == {trait(cell) for cell in expected}
    assert sum(family.count for family in actual[:-1]) == len(expected)
    assert {cell.dtype for cell in tried if cell.method == "matmul"} >= {
        cell.dtype for cell in expected if cell.method == "matmul"
    }
    # What is no call and no attribute is run by a program.
    methods = {cell.method for cell in supported(backend)} - {cell.method for cell in expected}
    assert {"graph", "compile"} & methods == {program.needs for program in worker.programs.programs(backend)} - {None}
    assert {*plan.NOT_TRIED} <= {plan.family_of(cell) for cell in supported(backend) if plan.is_call(cell)}


def run(device: tl.Device, *families: str) -> dict[str, dict[str, Any]]:
    """What the worker sends of families, in this process."""
    messages: list[dict[str, Any]] = []
    others = {name for name, *_ in worker._families(device)} - {*families}
    worker.run(device.label, frozenset({*others, worker.TIMES}), lambda **message: messages.append(message))
    assert messages[-1] == {"event": "end"}
    return {message["family"]: message for message in messages if message["event"] == "done"}


@pytest.mark.parametrize("method", ["softmax", "argsort", "sgd_step", "rand_uniform_f64", "dequantize"])
def test_a_kernel_that_is_wrong_is_found(method: str, device: tl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = next(cell for cell in supported(device.backend) if cell.method == method)
    family = plan.family_of(cell)
    owner = next(base for base in plan.owner_of(cell).__mro__ if method in vars(base))
    right, trusted = getattr(owner, method), trial.reference()
    monkeypatch.setattr(trial, "reference", lambda: trusted)

    def broken(self: Any, *arguments: Any) -> Any:
        result = right(self, *arguments)
        inner = self.inner if isinstance(self, tl.Device) else self.inner.device
        if inner is not trusted.inner:
            spoiled = self if result is None else result
            elements = spoiled.to_numpy()
            elements[0] += elements.dtype.type(1)
            wrong, layout = tl.Device(inner).storage(elements), tl.Layout.contiguous((len(elements),))
            if result is None:
                self.assign(layout, wrong, layout)
            else:
                result = wrong
        return result

    monkeypatch.setattr(owner, method, broken)
    done = run(device, family)[family]
    assert done["failed"] > 0 and all(failure["name"].startswith(method) for failure in done["failures"])
    assert re.search(r"\d+ of \d+ elements are wrong: element \d+ is .* instead of ", done["failures"][0]["text"])


def test_the_reference_runs_no_kernels(device: tl.Device) -> None:
    trusted = trial.reference()
    assert trusted.inner.kernels is None
    assert trusted.inner is not tl.Device.cpu().inner, "the device of users still has its kernels"


def test_what_differs_by_rounding_alone_is_right() -> None:
    values = np.linspace(-2, 2, 1000, dtype=np.float32)
    assert trial.different(values, values) is None
    assert trial.different(np.nextafter(values, np.float32(9)), values) is None
    assert trial.different(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) is None
    assert trial.different(values[::-1], values) is not None
    assert trial.different(values + np.float32(1e-3), values) is not None
    for wrong in (-np.inf, 1e30, np.nan):
        assert trial.different(np.array([wrong]), np.array([np.inf])) is not None
        assert trial.different(np.array([np.inf]), np.array([wrong])) is not None
    assert (
        trial.different(np.array([1, 2]), np.array([1, 3])) == "1 of 2 elements are wrong: element 1 is 2 instead of 3"
    )
    assert "instead of" in str(trial.different(values[:3], values))


def test_an_element_that_is_half_too_large_is_seen_in_every_cell() -> None:
    trusted, unseen = trial.reference(), []
    cells = [cell for backend in BACKENDS for family in plan.families(backend) for cell in family.cells]
    for name, cell in {trial.name_of(cell): cell for cell in cells}.items():
        result = trial.run(cell, trusted)
        assert isinstance(result, list) and result and result[0].size, name
        right = result[0].reshape(-1)
        wrong, dtype = right.copy(), tl.DType.from_numpy(right.dtype)
        if dtype.is_inexact:
            wide = right.astype(np.complex128 if dtype.is_complex else np.float64)
            magnitudes = np.where(np.isfinite(wide) & (wide != 0), np.abs(wide), np.inf)
            ordinary = magnitudes[np.isfinite(magnitudes)]
            if not ordinary.size:
                assert cell.method == "zeros", name
                continue
            index = int(np.argmin(np.abs(magnitudes - np.median(ordinary))))
            # Floats of 8 bits have no number in between.
            wide[index] *= 2 if dtype.itemsize == 1 else 1.5
            wrong = wide.astype(right.dtype)
        else:
            wrong[0] ^= 1
        if trial.different(wrong, right, trial.slack(cell)) is None:
            unseen.append(name)
    assert not unseen, unseen


def selftest(folder: Path, device: tl.Device, fault: str) -> program.Selftest:
    """A self-test of few families, in which softmax has a fault."""
    script = folder / "worker.py"
    script.write_text(SCRIPT.format(families=FAMILIES, fault=fault))
    test = program.Selftest(device.label, [sys.executable, str(script)], report.Text(has_colours=False))
    test.run()
    test.end()
    return test


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("result.const_set(0.5, layout.dense)", "elements are wrong: element 0 is 0.5 instead of"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process that ran it was ended by SIGSEGV"),
        pytest.param(
            "time.sleep(600)",
            "the process that ran it gave no answer within 20 seconds and was ended",
            marks=pytest.mark.full,
        ),
        ("def lost(self): raise OSError('lost')\n        tl.Device.synchronize = lost", "OSError: lost"),
    ],
    ids=["wrong", "crashes", "hangs", "loses the device"],
)
def test_a_family_that_fails_does_not_end_the_others(
    fault: str, text: str, device: tl.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    if "sleep" in fault:
        # Longer than the start of a process takes on a busy machine.
        monkeypatch.setattr(program, "PATIENCE", 20.0)
    test = selftest(tmp_path, device, fault)
    states = {family.family: family.status for family in test.report.families}
    assert states.pop("row") == report.FAILED
    assert {name for name, state in states.items() if state == report.PASSED} >= {*FAMILIES} - {"row"}
    assert report.FAILED not in states.values()
    failed = next(family for family in test.report.families if family.family == "row")
    assert failed.failures[0]["name"].startswith("softmax ") and text in failed.failures[0]["text"]
    assert (test.report.result, test.report.exit_code) == (report.FAILED, 1)
    said = capsys.readouterr().out
    assert "  FAILED   row" in said and "FAILED: 1 of" in said and ": row\n" in said
    assert "send this report to" in said.splitlines()[-1]


@pytest.mark.full
def test_a_kernel_with_a_wrong_formula_is_found(tmp_path: Path) -> None:
    if not tl.Device.is_available("rocm"):
        pytest.skip("no HIP runtime")
    script = tmp_path / "worker.py"
    script.write_text(
        """
import sys
from tallow.runtime.backends.gpu_backend.execute import kernels
from tallow.runtime.selftest import plan, programs, speed, worker

every, read = plan.families, kernels._source

def wrong(family):
    text = read(family)
    return text.replace("x > 0 ? x : slope * x", "x > 0 ? x : slope + x") if family == "unary" else text

kernels._source = wrong
kernels.Kernels._prebuilt_module = lambda self, family: None
cells = [cell for family in every("rocm") for cell in family.cells if cell.method in ("leaky_relu", "elu")]
plan.families = lambda backend: [plan.Family("elementwise", tuple(cells), len(cells))]
plan.views = lambda backend, name: plan.Family(name, (), 0)
programs.programs = lambda backend: []
speed.times = lambda device: iter(())
sys.exit(worker.main())
""",
        encoding="utf-8",
    )
    test = program.Selftest("rocm", [sys.executable, str(script)], None)
    test.run()
    failures = [failure["name"] for family in test.report.families for failure in family.failures]
    assert test.report.exit_code == 1 and {name.split()[0] for name in failures} == {"leaky_relu"}, failures


SYSTEM_KEYS = ["package", "python", "os", "cpu", "instructions"]
PARTS = ["backend", "families", "times", "reports_to"]
KEYS = ["schema", "result", "reason", "device", "description", *SYSTEM_KEYS, *PARTS]
FAMILY_KEYS = ["family", "status", "tried", "supported", "seconds", "failed", "failures", "reason"]
TIME_KEYS = ["kernel", "seconds", "gigabytes_per_second", "of_copy", "teraflops"]


def program_of(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tallow.selftest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def check_device(label: str, **environment: str) -> None:
    """Everything that a device has is right; the report is JSON of one schema, and names nobody."""
    done = program_of("--device", label, "--json", HOME=str(ROOT), **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    actual = json.loads(done.stdout)
    assert [*actual] == KEYS and actual["schema"] == report.SCHEMA == 1
    assert (actual["result"], actual["device"].partition(":")[0]) == ("passed", label.partition(":")[0])
    assert all([*family] == FAMILY_KEYS for family in actual["families"])
    assert {family["status"] for family in actual["families"]} == {"passed", "skipped"}
    assert all([*time] == TIME_KEYS and time["seconds"] > 0 for time in actual["times"])
    assert actual["times"][0]["of_copy"] == 1 and any(time["teraflops"] for time in actual["times"])
    assert actual["backend"]["available"] and str(ROOT) not in done.stdout


def test_everything_that_a_device_has_is_right(device: tl.Device) -> None:
    check_device(device.label)


@pytest.mark.full
@pytest.mark.parametrize("wave", ["32", "64"])
def test_both_sizes_of_waves_are_right(wave: str) -> None:
    if not tl.Device.is_available("rocm"):
        pytest.skip("no HIP runtime")
    check_device("rocm", HIP_HOST_WAVE=wave)


@pytest.mark.full
def test_metal_is_right_on_the_cpu_of_its_library() -> None:
    pytest.importorskip("mlx.core")
    check_device("metal", TALLOW_METAL_CPU="1")


def test_what_cannot_be_tested_says_why(capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--device", "vulkan"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "unknown backend 'vulkan'" in said and all(backend in said for backend in BACKENDS)
    done = program_of("--device", "cpu:7")
    assert done.returncode == 2 and "not usable: " in done.stdout and "no number 7" in done.stdout
    assert "\ncpu: available\n" in done.stdout and done.stderr == ""
    done = program_of("--device", "cuda", "--json", CUDA_VISIBLE_DEVICES="")
    actual = json.loads(done.stdout)
    assert done.returncode == 2 and actual["result"] == "unusable" and actual["reason"] and actual["backend"]


def test_a_library_that_ends_the_process_is_reported_with_what_it_wrote(capsys: Any) -> None:
    script = "import os, sys; print('rocBLAS error: no kernels', file=sys.stderr, flush=True); os.abort()"
    test = program.Selftest("cpu", [sys.executable, "-c", script], report.Text(has_colours=False))
    test.run()
    test.end()
    assert (test.report.result, test.report.exit_code) == (report.UNUSABLE, 2)
    assert (
        "not usable: the process that opened the device was ended by SIGABRT: rocBLAS error" in capsys.readouterr().out
    )


def test_a_device_that_cannot_be_opened_again_is_lost() -> None:
    lost = report.SelftestReport("")
    lost.lose(["softmax"], "gone")
    assert (lost.result, lost.exit_code, lost.families) == (report.UNUSABLE, 2, [])
    lost.families.append(report.FamilyResult("reduce", report.FAILED))
    lost.lose(["reduce", "softmax"], "gone")
    assert (lost.result, lost.exit_code, lost.reason) == (report.FAILED, 1, "gone")
    assert [(family.family, family.status) for family in lost.families[1:]] == [("softmax", report.SKIPPED)]
    assert "FAILED: 1 of 1 families: reduce (gone)" in "\n".join(report.Text(has_colours=False).end(lost))


def test_a_device_without_a_description_is_named_once() -> None:
    for description, expected in (("cpu", "kernels on cpu, compared"), ("GPU", "kernels on cpu, GPU, compared")):
        own = report.SelftestReport("", "cpu")
        own.description = description
        assert expected in "".join(report.Text(has_colours=False).families(own))


def test_reports_go_to_the_page_of_issues(monkeypatch: pytest.MonkeyPatch) -> None:
    described = Message()
    monkeypatch.setattr(metadata, "metadata", lambda _: described)
    assert program.reports_to() == "to where you got tallow from"
    described["Project-URL"] = "Homepage, https://example.org"
    described["Project-URL"] = "Issues, https://example.org/issues"
    assert program.reports_to() == "to https://example.org/issues"


def test_progress_is_shown_on_a_terminal_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, expected in ((Terminal(), "\r\033[Kone\r\033[Ktwo\r\033[K"), (io.StringIO(), "")):
        progress = program.Progress(stream)
        progress.clear()
        progress.show("one")
        progress.show("two")
        progress.clear()
        assert stream.getvalue() == expected


def test_help_has_examples_and_exit_codes(capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "python -m tallow.selftest --json > report.json" in said and "  130  " in said
    parser = program._parser()
    examples = re.findall(r"^  python -m tallow\.selftest(.*?) {2,}", said, re.MULTILINE)
    assert [parser.parse_args(each.partition(">")[0].split()).device for each in examples] == [None, BACKENDS[0], None]
    ends = {len(line) - len(line.split("  ")[-1].lstrip()) for line in said.splitlines() if "python -m" in line[:12]}
    assert len(ends) == 1, "the explanations are not aligned"


def test_ctrl_c_ends_quietly_with_what_was_found() -> None:
    command = [sys.executable, "-m", "tallow.selftest", "--device", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("  ok       attention "):
                # As a terminal does, to both processes.
                os.killpg(process.pid, signal.SIGINT)
                break
        remaining, errors = process.communicate()
    assert process.returncode == 130 and errors == ""
    assert "interrupted: " in remaining and "send this report to" in remaining
