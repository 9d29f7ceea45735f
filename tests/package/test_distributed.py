"""Ranks: what they make together, and what becomes of the others when one of them ends or makes another call.

What each rank runs is in `ranks.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tallow as tl
import tallow.launch
from tallow import Tensor
from tallow.runtime.ranks import launch as launch_module
from tallow.runtime.ranks.group import Group
from tallow.runtime.ranks.mpi import _reducible

from .decoders import SENTENCES, metadata, saved, weights

PROGRAM = Path(__file__).with_name("ranks.py")
# Longer than any of these runs takes on a busy machine.
MAX_SECONDS = 400


# RCCL needs no MPI, and neither do the ranks that use it.
WITHOUT_MPI = (
    "import sys; from tallow.runtime.ranks import launch; launch.mpirun = lambda: None; sys.exit(launch.main())"
)


def launch(backend: str, ranks: int, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the ranks, each of which has a GPU of its own where there are real ones."""
    if backend == "cuda" and len([device for device in tl.devices() if device.backend == backend]) < ranks:
        pytest.skip(f"{ranks} ranks need as many GPUs")
    command = [sys.executable, *(("-m", "tallow.launch") if backend == "cpu" else ("-c", WITHOUT_MPI))]
    command += ["-n", str(ranks), str(PROGRAM), backend, *arguments]
    # Ranks that share two cores need no threads of their own.
    environment = {**os.environ, "TALLOW_THREADS": "1", "HIP_HOST_THREADS": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The backend under test; beside the CPU, rocm on the HIP runtime for the CPU, if that is here."""
    backend = str(metafunc.config.getoption("--device")).partition(":")[0]
    backends = [backend, *(["rocm"] if backend == "cpu" and "ROCM_PATH" in os.environ else [])]
    if "ranks" in metafunc.fixturenames:
        pairs = [(name, ranks) for name in backends for ranks in (1, 2, 4, 8) if ranks > 1 or name == backend]
        # Four ranks stand for the others, and two on the HIP runtime for the CPU.
        few = [(backend, 4), *((name, 2) for name in backends[1:])]
        marks = {pair: [] if pair in few else [pytest.mark.full] for pair in pairs}
        metafunc.parametrize(("backend", "ranks"), [pytest.param(*pair, marks=marks[pair]) for pair in pairs])
    elif "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", backends)


def test_ranks_make_what_numpy_makes(backend: str, ranks: int, full: bool) -> None:
    # The HIP runtime for the CPU does in one run all that it can only when somebody waits for it.
    lazy = str(int(ranks == 2))
    done = launch(backend, ranks, *(["--full"] if full else []), HIP_HOST_LAZY=lazy)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of {ranks} made 18 checks" for rank in range(ranks)]


def test_ranks_end_their_communicators(tmp_path: Path) -> None:
    """Threads of NCCL crash a process that ends before them, and a communicator waits for graphs that captured it."""
    if "ROCM_PATH" not in os.environ:
        pytest.skip("the HIP runtime for the CPU logs its calls; set ROCM_PATH to its folder")
    log = tmp_path / "calls"
    done = launch("rocm", 2, "--checks", "graph", HIP_HOST_LOG=str(log))
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line)["call"] for line in log.read_text(encoding="utf-8").splitlines()]
    expected = ["ncclCommInitRank"] * 2, ["hipGraphExecDestroy"] * 2, ["ncclCommDestroy"] * 2
    assert [[call for call in calls if call == each[0]] for each in expected] == list(expected)


def test_calls_that_differ_are_named(backend: str, full: bool, device: tl.Device) -> None:
    if backend != device.backend and not full:
        pytest.skip("the CPU's ranks show it; run it on rocm with --full")
    done = launch(backend, 2, "--scene", "mismatch", TALLOW_DISTRIBUTED_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2 is done", "rank 1 of 2 is done"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        # mpirun ends the others by itself.
        ("killed", r"rank 1 ended without a word|rank 1 with PID[\s\S]*signal 9"),
        ("raised", "rank 1 is done for"),
        ("returned", "rank 1 ended after 1 calls of 'world', of which rank 0 made [23]"),
        ("silent", "rank 1 ended after 0 calls of 'world 1>0', of which rank 0 made 1"),
        pytest.param(
            *("averages", "rank 1 ended after 0 calls of 'world async', of which rank 0 made 1"),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_rank_that_ends_ends_the_others(backend: str, kind: str, reason: str, full: bool, device: tl.Device) -> None:
    if backend != device.backend and kind != "silent" and not full:
        pytest.skip("the CPU's ranks show it; run it on rocm with --full")
    started = time.monotonic()
    done = launch(backend, 3 if kind == "killed" else 2, "--scene", "death", "--kind", kind)
    assert done.returncode != 0
    assert re.search(reason, done.stderr), done.stderr
    assert done.stdout in ("", "rank 1 of 2 is done\n")
    assert time.monotonic() - started < MAX_SECONDS / 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", "x.py"], "-n must be 1 or more, not 0"),
        (["-n", "two", "x.py"], "invalid int value: 'two'"),
        (["-n", "2"], "the following arguments are required: PROGRAM"),
    ],
)
def test_the_launcher_says_what_it_needs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tallow.launch.main(arguments)
    assert message in capsys.readouterr().err


def test_the_launcher_starts_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch_module, "mpirun", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    tmp_path.joinpath("whole.py").write_text("import sys\nprint(__name__, sys.argv[1:])", encoding="utf-8")
    assert launch_module.main(["-n", "1", "-m", "whole", "-n", "x"]) == 0
    assert capfd.readouterr().out == "__main__ ['-n', 'x']\n"


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2].joinpath("docs/distributed.md").read_text(encoding="utf-8")
    program = tmp_path / "total.py"
    program.write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    command = [sys.executable, "-m", "tallow.launch", "-n", "2", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    lines = [f"rank {rank} of 2: [3.0, 3.0, 3.0, 3.0]" for rank in (0, 1)]
    assert sorted(done.stdout.split("\n")) == ["", *lines], done.stderr


def test_devices_that_share_a_model_write_the_same(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.gguf", weights("llama"), metadata("llama") | SENTENCES)
    plain = [sys.executable, "-m", "tallow.run", str(path), "--max-tokens", "8"]
    command = [*plain, "--prompt", "abc"]
    alone = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    # The ranks get what a pipe sends, too.
    shared = subprocess.run(
        [*plain, "--devices", "2"], input="abc\n", capture_output=True, text=True, timeout=MAX_SECONDS, check=False
    )
    assert shared.returncode == 0, shared.stderr
    assert shared.stdout == alone.stdout != ""
    three = subprocess.run([*command, "--devices", "3"], capture_output=True, text=True, check=False)
    assert three.returncode == 1
    assert "3 ranks cannot share heads, which are 4; use a number that divides them" in three.stderr


def test_a_group_of_one_does_nothing() -> None:
    group = tl.distributed.init()
    assert (group.rank, group.size, group.local_rank, group.ranks) == (0, 1, 0, (0,))
    x = Tensor([1.0, 2.0])
    for call in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"):
        assert getattr(tl.distributed, call)(x) is x
    tl.distributed.barrier()
    assert group.split(3).ranks == (0,)
    assert tl.distributed.device("cpu").label == "cpu"
    with pytest.raises(tl.InvalidArgument, match=r"backend is one of .*, not 'gpu'"):
        tl.distributed.device("gpu")
    with pytest.raises(tl.InvalidArgument, match="send: target is rank 0 itself; name another rank"):
        tl.distributed.send(x, 0)
    with pytest.raises(tl.InvalidArgument, match="recv: source is rank 0 itself; name another rank"):
        tl.distributed.recv(3, 0)


@pytest.mark.parametrize(
    ("dtype", "reduction", "message"),
    [
        ("bool", "sum", "all_reduce: the reduction of bool is min or max, not sum; convert with to_dtype first"),
        ("complex64", "max", "all_reduce: the reduction of complex64 is sum or mean, not max; convert"),
        ("i32", "mean", "all_reduce: the reduction of i32 is sum, prod, min or max, not mean; convert"),
        ("f32", "median", "all_reduce: reduction is one of sum, prod, min, max, mean, not 'median'"),
    ],
)
def test_what_no_reduction_is(dtype: str, reduction: str, message: str) -> None:
    x = tl.ones(3, dtype=dtype)
    with pytest.raises(tl.InvalidArgument, match=message):
        x.storage.all_reduce(x.layout, reduction, Group.alone())


@pytest.mark.parametrize("dtype", [dtype for dtype in tl.DType if dtype.is_float], ids=str)
def test_sums_by_mpi_are_rounded_as_those_of_tensors(dtype: tl.DType) -> None:
    """Of all elements of 8 bits with all others, and so with sums that overflow."""
    patterns = np.arange(256).astype(np.uint8)
    elements = patterns.view(dtype.numpy) if dtype.itemsize == 1 else (patterns - 127.5).astype(dtype.numpy) * 250
    inputs = [np.repeat(elements, 256), np.tile(elements, 256)]
    x, y = (tl.Tensor(array).to_dtype(dtype.compute) for array in inputs)
    for reduction, expected in (("sum", x + y), ("mean", (x + y) / 2), ("prod", x * y)):
        (first, finished), (second, _) = (_reducible(array, reduction, 2) for array in inputs)
        with np.errstate(all="ignore"):
            concatenated = first * second if reduction == "prod" else first + second
        actual = finished(concatenated)
        assert actual.dtype == dtype.numpy
        np.testing.assert_array_equal(actual.astype(float), expected.to_dtype(dtype).numpy().astype(float))


def test_averages_are_of_variables() -> None:
    with pytest.raises(tl.InvalidArgument, match="average_gradients: loss must be a Tensor, not of type float"):
        tl.distributed.average_gradients(1.0, [])  # type: ignore[arg-type]
    w = tl.Var(tl.ones(3))
    assert tl.distributed.average_gradients(w.sum(), [w])[w].tolist() == [1.0, 1.0, 1.0]


def test_without_the_library_the_host_makes_the_calls_of_a_gpu(gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a group of one, each three times: the first run of a plan, and what it becomes."""
    for name in ("nccl", "rccl"):
        monkeypatch.setattr(type(gpu), name, None, raising=False)
    gpu.plans.clear()
    group, array = Group.alone(), np.arange(60, dtype=np.float32).reshape(3, 20)
    x = tl.Tensor(array, device=tl.Device(gpu))
    for view, expected in ((x, array), (x.T, array.T)):
        storage, layout = view.storage, view.layout
        calls = {
            **dict.fromkeys(("all_reduce", "reduce_scatter"), ("sum", group)),
            **dict.fromkeys(("all_gather", "all_to_all"), (group,)),
            "broadcast": (0, group),
            "reduce": ("sum", 0, group),
        }
        for _ in range(3):
            for name, arguments in calls.items():
                actual = getattr(storage, name)(layout, *arguments)
                np.testing.assert_array_equal(actual.to_numpy(), expected.ravel(), name)
            assert storage.send(layout, 0, group).length == 0
            np.testing.assert_array_equal(storage.recv(layout, 0, group).to_numpy(), expected.ravel())
    gpu.plans.clear()
