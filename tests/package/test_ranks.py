"""How ranks find each other, who is refused, and how they and their launcher end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import tallow as tl
from processes import is_running
from tallow.runtime.ranks import connection as connection_module
from tallow.runtime.ranks import environment
from tallow.runtime.ranks import launch as launch_module
from tallow.runtime.ranks import server as server_module
from tallow.runtime.ranks.connection import Connection, Job, ProtocolError, connect, listen
from tallow.runtime.ranks.coordinator import Coordinator
from tallow.runtime.ranks.environment import Placement
from tallow.runtime.ranks.server import Server

# Longer than any of these runs takes on a busy machine.
MAX_SECONDS = 400
JOB = Job("job 7", 2, "secret")

LAUNCHERS = {
    "torchrun": (
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
         "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "r"},
        Placement(3, 4, 1, "a", 29501, has_mpi=False, job="TORCHELASTIC_RUN_ID=r"),
    ),
    "mpirun": (
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
         "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        Placement(1, 2, 0, None, 0, has_mpi=True),
    ),
    "mpirun on one host": (
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        Placement(1, 2, 1, "127.0.0.1", 0, has_mpi=True),
    ),
    "srun": (
        {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "123456",
         "SLURM_JOB_NODELIST": "node[03-07,9],other"},
        Placement(5, 8, 1, "node03", 23456, has_mpi=False, job="SLURM_JOB_ID=123456 SLURM_STEP_ID=0"),
    ),
    "a step of part of a job": (
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "3",
         "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a[1-4]", "SLURM_STEP_NODELIST": "a[3-4]"},
        Placement(1, 2, 1, "a3", 20001, has_mpi=False, job="SLURM_JOB_ID=1 SLURM_STEP_ID=3"),
    ),
    "srun on one host": (
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "1",
         "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_NODELIST": "a1"},
        Placement(1, 2, 1, "127.0.0.1", 20001, has_mpi=False, job="SLURM_JOB_ID=1 SLURM_STEP_ID=0"),
    ),
    "sbatch": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "node1"}, None),
    "sbatch in a step": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "4294967291"}, None),
    "salloc": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "4294967290"}, None),
    "none": ({}, None),
}  # fmt: skip


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_place_that_a_launcher_gives(launcher: str) -> None:
    variables, index = LAUNCHERS[launcher]
    assert environment.placement(variables) == index


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node[03-07,9],other", "node03"),
        ("nodeA,nodeB[001,003],nodeC", "nodeA"),
        ("linux[1,2]", "linux1"),
        ("d05-[41-42]", "d05-41"),
        ("cn[001-004]-ib0", "cn001-ib0"),
        ("gpu-[1-2].cluster.local,other", "gpu-1.cluster.local"),
        ("rack[1-2]node[01-04]", "rack1node01"),
        ("a[007]b[00-10]c", "a007b00c"),
    ],
)
def test_first_host_of_a_list_of_slurm(hosts: str, first: str) -> None:
    variables, _ = LAUNCHERS["srun"]
    index = environment.placement(variables | {"SLURM_JOB_NODELIST": hosts})
    assert index is not None
    assert index.address == first


NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "9" * 5000, "\u0663", "65536000000", " 1"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_variable_that_is_no_number_is_named(name: str, value: str) -> None:
    variables = {**dict.fromkeys(NUMBERS, "0"), "WORLD_SIZE": "2", "MASTER_ADDR": "a", name: value}
    with pytest.raises(tl.InvalidArgument, match=f"init: (the variable )?{name} (must be|is) ") as error:
        environment.placement(variables)
    assert len(str(error.value)) < 200


def test_a_rank_beyond_the_size_and_a_port_beyond_the_last_are_refused() -> None:
    variables = {"RANK": "2", "WORLD_SIZE": "2"}
    with pytest.raises(tl.InvalidArgument, match="RANK is 2, which must be from 0 to WORLD_SIZE - 1 = 1"):
        environment.placement(variables)
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65536"}
    with pytest.raises(tl.InvalidArgument, match="MASTER_PORT must be an integer from 0 to 65535, not '65536'"):
        environment.placement(variables)
    with listen("127.0.0.1", 65535) as listener:
        assert listener.getsockname()[1] == 65535


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "soon", "1e300", "9" * 5000])
def test_a_timeout_that_is_none_is_named(text: str) -> None:
    with pytest.raises(tl.InvalidArgument, match="TALLOW_DISTRIBUTED_TIMEOUT must be a number of seconds above 0"):
        environment.timeout({"TALLOW_DISTRIBUTED_TIMEOUT": text})


class Service:
    """A server of a job, and what has connected to it."""

    def __init__(self, job: Job = JOB, seconds: float = MAX_SECONDS, port: int = 0) -> None:
        self.job = job
        self.server = Server(listen("127.0.0.1", port), job, seconds)
        self.port = self.server.port
        self.connections: list[Connection] = []

    def __enter__(self) -> Service:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.server.join()
        for connection in self.connections:
            connection.socket.close()

    def join(self, rank: int, seconds: float = MAX_SECONDS) -> Connection:
        """The connection of a rank that has greeted the server."""
        connection, _ = connect(rank, self.job, "127.0.0.1", self.port, seconds, is_exact=True)
        self.connections.append(connection)
        return connection


def received(connection: Connection, count: int = 1) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        more = connection.receive()
        assert more is not None, messages
        messages += [message for message in more if "beat" not in message]
    return messages


def exchange(connections: list[Connection]) -> None:
    """What two ranks give each other comes through."""
    for rank, connection in enumerate(connections):
        connection.send(key="world 1", ranks=[0, 1], value=f"of {rank}", call=None)
    for connection in connections:
        assert received(connection) == [{"key": "world 1", "values": ["of 0", "of 1"]}]


def hello(**changes: object) -> bytes:
    message = {"hello": "tallow 2", "job": JOB.name, "size": JOB.size, "rank": 1, "challenge": "1", "proof": "2"}
    return json.dumps(message | changes).encode() + b"\n"


STRANGERS = {
    "a number": b"1\n",
    "null": b"null\n",
    "a list": b"[]\n",
    "a text": b'"hello"\n',
    "deep JSON": b"[" * 4000 + b"\n",
    "a number of many digits": b'{"rank": ' + b"9" * 4000 + b"}\n",
    "no JSON": b"GET / HTTP/1.1\r\n\r\n",
    "a long line": b"x" * 10_000 + b"\n",
    "no end of a long line": b"x" * 10_000,
    "no UTF-8": b"\xff\xfe\n",
    "an empty line": b"\n",
    "a greeting without a rank": b'{"hello": "tallow 2", "challenge": "1"}\n',
    "a rank that is a text": hello(rank="1"),
    "a rank that is true": hello(rank=True),
    "a rank beyond the size": hello(rank=2),
    "a negative rank": hello(rank=-1),
    "a challenge that is a list": hello(challenge=[]),
    "a proof that is none": hello(),
    "a proof that is no text": hello(proof=None),
    "a proof of other letters": hello(proof="\ud800"),
    "another job": hello(job="job 8"),
    "another size": hello(size=3),
    "an exchange before the greeting": b'{"key": "world 1", "ranks": [0, 1], "value": "1", "call": null}\n',
    "a goodbye before the greeting": b'{"bye": {}, "reason": "x"}\n',
    "nothing": b"",
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_is_dropped_and_named(stranger: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Service() as service:
        ranks = [service.join(0)]
        with socket.create_connection(("127.0.0.1", service.port), timeout=MAX_SECONDS) as peer:
            peer.sendall(STRANGERS[stranger])
            if stranger == "nothing":
                peer.shutdown(socket.SHUT_WR)
            name = "{}:{}".format(*peer.getsockname())
            while peer.recv(4096):
                pass
        ranks.append(service.join(1))
        exchange(ranks)
    assert f"tallow: rank 0 dropped {name}, which " in capfd.readouterr().err


MESSAGES = {
    "no message": {},
    "a key that is a list": {"key": [], "ranks": [0, 1], "value": "1", "call": None},
    "ranks that are none": {"key": "k", "ranks": 1, "value": "1", "call": None},
    "a rank beyond the size": {"key": "k", "ranks": [1, 9], "value": "1", "call": None},
    "a rank twice": {"key": "k", "ranks": [1, 1], "value": "1", "call": None},
    "the ranks of others": {"key": "k", "ranks": [0], "value": "1", "call": None},
    "a value that is no text": {"key": "k", "ranks": [0, 1], "value": [], "call": None},
    "no value": {"key": "k", "ranks": [0, 1], "call": None},
    "a call that is a number": {"key": "k", "ranks": [0, 1], "value": "1", "call": 3},
    "a goodbye of a number": {"bye": 3, "reason": "x"},
    "counts that are texts": {"bye": {"world": "1"}, "reason": "x"},
    "a goodbye without a reason": {"bye": {}},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_rank_that_sends_what_no_rank_sends_is_lost(message: str) -> None:
    with Service() as service:
        first, second = service.join(0), service.join(1)
        second.send(**MESSAGES[message])
        (ended,) = [each for each in received(first, 2) if "ended" in each]
        assert ended["ended"] == 1
        assert ended["counts"] is None
        assert ended["reason"].startswith("sent ")


def test_values_of_any_depth_end_no_server() -> None:
    """The server neither parses nor writes values, whose depth its stack may not allow."""
    with Service() as service:
        ranks = [service.join(0), service.join(1)]
        for depth in (10, *range(sys.getrecursionlimit() - 50, sys.getrecursionlimit()), 5000):
            value = "[" * depth + "]" * depth
            ranks[1].send(key=f"k {depth}", ranks=[1], value=value, call=None)
            assert received(ranks[1]) == [{"key": f"k {depth}", "values": [value]}]
        exchange(ranks)


FROM_RANK_0 = {
    "no message": {},
    "the end of a text": {"ended": "1", "counts": {}, "reason": "x"},
    "an end without a reason": {"ended": 1, "counts": {}},
    "an end with counts that are texts": {"ended": 1, "counts": {"world": "1"}, "reason": "x"},
    "a rank that is a list": {"gone": []},
    "a key that is a list": {"key": [], "values": []},
    "values that are a number": {"key": "k", "values": 1},
    "values that are no texts": {"key": "k", "values": [1]},
    "values that are no JSON": {"key": "k", "values": ["x"]},
    "values that are deep": {"key": "k", "values": ["[" * 5000 + "]" * 5000]},
    "calls that are none": {"key": "k", "mismatch": [1]},
    "calls without ranks": {"key": "k", "mismatch": [["x", "y"]]},
    "a lost rank that has not ended": {"key": "k", "lost": 1},
    "an answer without anything": {"key": "k"},
}


@pytest.mark.parametrize("message", FROM_RANK_0)
def test_a_message_that_rank_0_does_not_send_is_refused(message: str) -> None:
    coordinator = Mock(_ends={}, _answers={})
    with pytest.raises(ProtocolError):
        Coordinator._take(coordinator, FROM_RANK_0[message])
    assert not coordinator._answers


def test_a_peer_that_was_dropped_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that greets just when one more than may wait arrives: the server sees both at once."""
    monkeypatch.setattr(server_module, "_MAX_PEERS", 1)
    with listen("127.0.0.1", 0) as listener:
        server = Server(listener, JOB, MAX_SECONDS)
        peers = [socket.create_connection(("127.0.0.1", server.port), timeout=MAX_SECONDS)]
        select = server._selector.select

        def both(seconds: float) -> Any:
            if server._greetings and len(peers) == 1:
                peers.append(socket.create_connection(("127.0.0.1", server.port), timeout=MAX_SECONDS))
                peers[0].sendall(b"{")
                time.sleep(0.05)
            elif len(peers) > 1:
                server.stop()
            return select(seconds)

        monkeypatch.setattr(server._selector, "select", both)
        server.run()
    for peer in peers:
        peer.close()


def test_no_one_takes_the_place_of_a_rank_that_is_here() -> None:
    with Service() as service:
        ranks = [service.join(0), service.join(1)]
        with pytest.raises(tl.BackendUnavailable, match="refused this rank as rank 1, which is here already, from 127"):
            service.join(1, seconds=0.3)
        exchange(ranks)


def test_a_flood_of_strangers_keeps_no_rank_away() -> None:
    with Service() as service:
        first = service.join(0)
        strangers = [socket.create_connection(("127.0.0.1", service.port), timeout=MAX_SECONDS) for _ in range(300)]
        exchange([first, service.join(1)])
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job("job 8", 2, "secret"), "refused this rank as a rank of another job"),
        (Job("job 7", 3, "secret"), "refused this rank as a rank of another job, which has another number"),
        (Job("job 7", 2, ""), "refused this rank as a rank with another TALLOW_DISTRIBUTED_SECRET"),
        (Job("job 7", 2, "Secret"), "refused this rank as a rank with another TALLOW_DISTRIBUTED_SECRET"),
    ],
)
def test_a_rank_joins_no_other_job(job: Job, reason: str) -> None:
    """Not one that its ports reach first, while rank 0 of its own job is not there yet, nor when it is."""
    with Service() as service:
        with pytest.raises(tl.BackendUnavailable, match=rf"at port {service.port} is a rank 0 that {reason}"):
            connect(1, job, "127.0.0.1", service.port, 0.3, is_exact=False)
        with Service(job, port=service.port) as neighbour:
            connection, _ = connect(1, job, "127.0.0.1", service.port, MAX_SECONDS, is_exact=False)
            neighbour.connections.append(connection)
            assert connection.peer == f"127.0.0.1:{neighbour.port}"
            assert neighbour.server.absent() == [rank for rank in range(job.size) if rank != 1]
            assert service.server.absent() == [0, 1]


def test_a_server_that_does_not_know_the_secret_gets_no_rank() -> None:
    """One that claims to be rank 0 sees a proof of this one greeting, and cannot make its own."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        attempt = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from tallow.runtime.ranks.connection import Job, connect\n"
                f"connect(1, Job('j', 2, 'secret'), '127.0.0.1', {port}, 0.2, is_exact=True)",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        # It is tried once before the time is up, and may be tried again.
        listener.settimeout(0.5)
        answered = 0
        while attempt.poll() is None:
            try:
                connection = Connection(listener.accept()[0], MAX_SECONDS)
            except TimeoutError:
                continue
            connection.send(hello="tallow 2", challenge="0")
            greeting = connection.receive() or [{}]
            assert "secret" not in str(greeting)
            connection.send(welcome=1, proof=greeting[0].get("proof"))
            connection.socket.close()
            answered += 1
        assert answered > 0
        assert "is a rank 0 with another TALLOW_DISTRIBUTED_SECRET" in attempt.communicate()[1]


def test_a_server_that_greets_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_SECONDS_TO_GREET", 0.2)
    with listen("127.0.0.1", 0) as listener:

        def drip() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer = listener.accept()[0]
                    with peer, contextlib.suppress(OSError):
                        while True:
                            peer.sendall(b" ")
                            time.sleep(0.02)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(tl.BackendUnavailable, match="is something that does not greet"):
            connect(1, JOB, "127.0.0.1", listener.getsockname()[1], 0.3, is_exact=True)
        listener.shutdown(socket.SHUT_RDWR)


def test_all_ranks_that_wait_for_each_other_are_told_what_they_called() -> None:
    """Rank 2 receives from rank 0, which does not send; rank 1 waits for both; rank 3 computes, and may send yet."""
    job = JOB._replace(size=4)
    with Service(job) as service:
        connections = [service.join(rank) for rank in range(4)]
        calls = {1: ("half 1", [0, 1], "barrier()"), 0: ("world 1", [0, 2, 3], "all_reduce()")}
        calls[2] = "world 0>2 1", [0, 2], "recv(from 0)"
        for rank, (key, ranks, call) in calls.items():
            connections[rank].send(key=key, ranks=ranks, value="1", call=call)
            if rank != 2:
                # The server has read that when it answers what follows.
                connections[rank].send(key=f"after {rank}", ranks=[rank], value="2", call=None)
                assert received(connections[rank]) == [{"key": f"after {rank}", "values": ["2"]}]
        mismatch = [[0, "all_reduce()"], [1, "barrier()"], [2, "recv(from 0)"]]
        for rank, (key, _, _) in calls.items():
            assert received(connections[rank]) == [{"key": key, "mismatch": mismatch}]
        for connection in connections:
            connection.send(bye={}, reason="has ended")
        service.server.join()


def test_a_silent_rank_is_named_and_one_that_beats_is_not() -> None:
    with Service(seconds=3.0) as service:
        first, _ = service.join(0), service.join(1)
        ended: list[dict[str, Any]] = []
        deadline = time.monotonic() + MAX_SECONDS
        first.socket.settimeout(0.5)
        while not ended and time.monotonic() < deadline:
            first.send(beat=True)
            try:
                ended = [message for message in first.receive() or () if "ended" in message]
            except TimeoutError:
                continue
        assert ended[0]["ended"] == 1
        assert ended[0]["reason"].startswith("has been silent for 3 s: it is stopped")


# Each rank has loaded all modules before any of them waits for the others.
MEET = """
import os, signal, sys, time
from pathlib import Path
import tallow as tl
import tallow.runtime.ranks.mpi
Path(sys.argv[1], os.environ["RANK"]).touch()
while len(os.listdir(sys.argv[1])) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
group = tl.distributed.init()
print(group.rank, "is here", flush=True)
"""


def program(folder: Path, text: str) -> list[str]:
    """The arguments that start a program of ranks, which meet in a folder."""
    folder.joinpath("met").mkdir()
    path = folder / "program.py"
    path.write_text(MEET + textwrap.dedent(text), encoding="utf-8")
    return [str(path), str(folder / "met")]


WITHOUT_MPI = (
    "import sys; from tallow.runtime.ranks import launch; launch.mpirun = lambda: None;"
    "launch._SECONDS_TO_END = 2.0; sys.exit(launch.main())"
)


@pytest.mark.parametrize(("stopped", "other"), [(0, 1), (1, 0)])
def test_a_stopped_rank_is_noticed(stopped: int, other: int, tmp_path: Path) -> None:
    text = f"""
    if group.rank == {stopped}:
        os.kill(os.getpid(), signal.SIGSTOP)
    tl.distributed.barrier()
    """
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MPI, "-n", "2", *program(tmp_path, text)],
        env={**os.environ, "TALLOW_DISTRIBUTED_TIMEOUT": "3"},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"RankLost: barrier: rank {stopped} has been silent for 3 s" in done.stderr
    assert f"tallow.launch: rank {other} ended with exit code 1" in done.stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_gave_up_waiting_ends(rank: int) -> None:
    """With the exit code that it chooses, and without waiting for those that did not come."""
    text = """
    import sys, tallow as tl
    for _ in range(2):
        try:
            tl.distributed.init()
        except tl.BackendUnavailable as error:
            print(error)
    sys.exit(7)
    """
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, **variables, "TALLOW_DISTRIBUTED_TIMEOUT": "0.5"},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    reasons = "ranks 1 did not come within 0.5 s; see", "rank 0 does not answer rank 1 at 127.0.0.1"
    assert done.stdout.count(reasons[rank]) == 2, done.stdout


# Whether MPI starts the ranks.
STARTERS = {"mpi": ["-m", "tallow.launch"], "alone": ["-c", WITHOUT_MPI]}


@pytest.mark.parametrize("starter", STARTERS)
def test_the_exit_code_of_a_rank_is_that_of_the_launcher(starter: str, tmp_path: Path) -> None:
    """Where the others end because they have lost it, too."""
    path = tmp_path / "program.py"
    path.write_text(
        "import sys, tallow as tl\n"
        "group = tl.distributed.init()\n"
        "if group.rank == 1: raise SystemExit(7)\n"
        "tl.distributed.barrier()",
        encoding="utf-8",
    )
    command = [sys.executable, *STARTERS[starter], "-n", "3", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    assert done.returncode == 7, done.stderr
    assert "rank 1 ended after 0 calls of 'world'" in done.stderr


# One handler takes all of them.
@pytest.mark.parametrize(
    "number",
    [pytest.param(it, marks=[pytest.mark.full] * (place > 1)) for place, it in enumerate(launch_module._ENDING)],
    ids=lambda number: number.name,
)
@pytest.mark.parametrize("starter", STARTERS)
def test_a_signal_ends_the_ranks_and_what_they_started(starter: str, number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import subprocess, sys, time, tallow as tl\n"
        "rank = tl.distributed.init().rank\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path)!r} + f'/{{rank}}', 'w').write(f'{{child.pid}} {{__import__(\"os\").getpid()}}')\n"
        "tl.distributed.barrier()\n"
        "__import__('os').write(1, b'up\\n')\n"
        "time.sleep(600)",
        encoding="utf-8",
    )
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, *STARTERS[starter], "-n", "2", str(path)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    assert [launcher.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    processes = [int(pid) for rank in "01" for pid in tmp_path.joinpath(rank).read_text(encoding="utf-8").split()]
    launcher.send_signal(number)
    launcher.communicate(timeout=MAX_SECONDS)
    assert launcher.returncode == 128 + number
    deadline = time.monotonic() + MAX_SECONDS / 10
    # Other tests may use shared memory for a while.
    left: set[object] = {None}
    while left and time.monotonic() < deadline:
        left = {pid for pid in processes if is_running(pid)} | (set(os.listdir("/dev/shm")) - before)
        time.sleep(0.05)
    assert left == set()


@pytest.mark.parametrize("number", launch_module._OTHERS, ids=lambda number: number.name)
@pytest.mark.parametrize("starter", STARTERS)
def test_ranks_get_the_signals_that_are_theirs_to_handle(starter: str, number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import signal, time\n"
        f"signal.signal({int(number)}, lambda *_: exit(5))\n"
        "__import__('os').write(1, b'up\\n')\n"
        "time.sleep(600)",
        encoding="utf-8",
    )
    command = [sys.executable, *STARTERS[starter], "-n", "2", str(path)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    assert [launcher.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    launcher.send_signal(number)
    launcher.communicate(timeout=MAX_SECONDS)
    assert launcher.returncode == 5


@pytest.mark.parametrize("code", [0, 3])
def test_the_launcher_gives_the_exit_code_of_the_ranks(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch_module, "mpirun", lambda: None)
    program = tmp_path / "program.py"
    program.write_text(
        f"import os, sys, time\nif os.environ['RANK'] == '1': sys.exit({code})\ntime.sleep({60 * (code > 0)})",
        encoding="utf-8",
    )
    # The others would have some seconds to notice.
    monkeypatch.setattr(launch_module, "_SECONDS_TO_END", 0.1)
    assert launch_module.main(["-n", "2", str(program)]) == code
    assert ("rank 1 ended with exit code 3" in capfd.readouterr().err) is (code > 0)
