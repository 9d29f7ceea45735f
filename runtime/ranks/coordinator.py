"""How ranks find each other and notice that one of them has ended: a line to rank 0, on which they exchange texts.

No element of a tensor goes this way. What ranks exchange is how communicators of libraries begin, the groups that they
split into, and, while calls are compared, what each of them calls.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..base.error import BackendUnavailable, CollectiveMismatch, RankLost

# Ports behind the first one where others may listen already.
_PORTS: Final = 16
_GREETING: Final = "tallow"
# A thread that waits for a lost rank inside of a library is not heard of again.
_SECONDS_TO_TELL: Final = 2.0
_SECONDS_TO_START: Final = 300.0
_BYTES: Final = 1 << 16
_KILLED: Final = "ended without a word, as a process that is killed does"


def _seconds_to_start() -> float:
    """How long ranks wait for each other in the beginning."""
    return float(os.environ.get("TALLOW_DISTRIBUTED_TIMEOUT") or _SECONDS_TO_START)


class _Line:
    """A connection on which messages come and go, each a line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._lock = threading.Lock()

    def send(self, **message: object) -> None:
        """Send a message; nothing where the other end is closed, which its reader notices."""
        with contextlib.suppress(OSError), self._lock:
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """End the line: both ends receive None."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that came since the last call; None at the end of the line."""
        try:
            data = self.socket.recv(_BYTES)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:  # of somebody who looks at ports
            return None


class Server(threading.Thread):
    """What rank 0 does for all ranks, itself included."""

    def __init__(self, listener: socket.socket, size: int) -> None:
        super().__init__(name="tallow-ranks-server", daemon=True)
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._size = size
        self._lines: dict[int, _Line] = {}
        self._ended: set[int] = set()
        self._given: dict[str, dict[int, object]] = {}
        self._wanted: dict[str, Sequence[int]] = {}
        # While calls are compared, what each rank that waits for others has called, and under which key.
        self._calls: dict[int, tuple[str, str]] = {}

    def run(self) -> None:
        """Serve until every rank has ended."""
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        ranks: dict[_Line, int] = {}
        while len(self._ended) < self._size:
            for key, _ in selector.select():
                if key.data is None:
                    line = _Line(self._listener.accept()[0])
                    selector.register(line.socket, selectors.EVENT_READ, line)
                    continue
                line = key.data
                messages = line.receive()
                for message in messages or ():
                    if message.get("hello") == _GREETING:
                        ranks[line] = message["rank"]
                        self._lines[message["rank"]] = line
                        line.send(hello=_GREETING)
                    elif line in ranks:
                        self._take(ranks[line], message)
                if messages is None:
                    selector.unregister(line.socket)
                    line.socket.close()
                    if line in ranks:
                        self._end(ranks[line], None, _KILLED)
        # The readers of all ranks wait for that, and ranks for their readers.
        for line in self._lines.values():
            line.close()
            line.socket.close()
        self._listener.close()
        selector.close()

    def absent(self) -> list[int]:
        """The ranks that did not come."""
        return [rank for rank in range(self._size) if rank not in self._lines]

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        if "bye" in message:
            self._end(rank, message["bye"], message["reason"])
            return
        key = message["key"]
        self._wanted[key] = message["ranks"]
        self._given.setdefault(key, {})[rank] = message["value"]
        if message["call"] is not None:
            self._calls[rank] = key, message["call"]
        self._answer(key)
        if rank in self._calls:
            self._part(self._stuck(rank))

    def _answer(self, key: str) -> None:
        given, wanted = self._given[key], self._wanted[key]
        lacking = [rank for rank in wanted if rank not in given]
        lost = [rank for rank in lacking if rank in self._ended]
        if lacking and not lost:
            return
        answer = {"lost": lost[0]} if lost else {"values": [given[rank] for rank in wanted]}
        for rank in given:
            self._lines[rank].send(key=key, **answer)
            if rank in self._calls and self._calls[rank][0] == key:
                del self._calls[rank]
        if not lacking:
            del self._given[key], self._wanted[key]

    def _awaited(self, rank: int) -> set[int]:
        """The ranks that one waits for, of which some may wait too."""
        key = self._calls[rank][0]
        return {other for other in self._wanted[key] if other not in self._given[key]}

    def _stuck(self, rank: int) -> set[int]:
        """The ranks that wait for ever since one made its call: in a circle with it, or for one in that circle."""
        reached: set[int] = set()
        waiting = [rank]
        while waiting:
            for other in self._awaited(waiting.pop()) & self._calls.keys() - reached:
                reached.add(other)
                waiting.append(other)
        if rank not in reached:
            return set()
        stuck = {rank}
        while more := {each for each in self._calls.keys() - stuck if self._awaited(each) & stuck}:
            stuck |= more
        return stuck

    def _part(self, ranks: set[int]) -> None:
        """Tell ranks that their calls do not match, which they have then not made."""
        calls = {rank: self._calls.pop(rank) for rank in sorted(ranks)}
        texts = [[rank, text] for rank, (_, text) in calls.items()]
        for rank, (key, _) in calls.items():
            del self._given[key][rank]
            self._lines[rank].send(key=key, mismatch=texts)

    def _end(self, rank: int, counts: dict[str, int] | None, reason: str) -> None:
        if rank in self._ended:
            return
        self._ended.add(rank)
        for other, line in self._lines.items():
            if other != rank:
                line.send(ended=rank, counts=counts, reason=reason)
        for key in [key for key, wanted in self._wanted.items() if rank in wanted]:
            self._answer(key)


class Coordinator:
    """The line of this process to rank 0."""

    def __init__(self, rank: int, line: _Line, server: Server | None, received: Sequence[dict[str, Any]]) -> None:
        self.rank = rank
        self.counts: dict[str, int] = {}
        """By the names of groups, and of pairs of ranks, how many calls this rank made with the others."""
        self._exchanges: dict[str, int] = {}
        self.members: dict[str, Sequence[int]] = {}
        """By the names of groups, and of pairs of ranks, their ranks."""
        self.at_loss: list[Callable[[], object]] = []
        """What ends the waiting of this process for a rank that is lost."""
        self.at_end: list[Callable[[], object]] = []
        """What has to be done before this rank ends."""
        self._line = line
        self._server = server
        self._process = os.getpid()
        self._answers: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        # By rank, how many calls it made with each group, if it said that, and how it ended.
        self._ends: dict[int, tuple[dict[str, int] | None, str]] = {}
        self._lost: tuple[int, str] | None = None
        self._is_told = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(received,), name="tallow-ranks", daemon=True)
        self._reader.start()
        atexit.register(self._finish)

    def meet(self, name: str, ranks: Sequence[int]) -> None:
        """Wait until all ranks are here. BackendUnavailable where some do not come."""
        seconds = _seconds_to_start()
        if self.exchange("init", name, ranks, None, seconds):
            return
        absent = "some ranks" if self._server is None else f"ranks {', '.join(map(str, self._server.absent()))}"
        reason = f"{absent} did not come within {seconds:g} s; see whether they run, and whether they reach rank 0"
        raise BackendUnavailable("distributed", reason)

    def exchange(
        self,
        op: str,
        name: str,
        ranks: Sequence[int],
        value: object,
        seconds: float | None = None,
        call: str | None = None,
    ) -> list[Any]:
        """The values of all ranks of a group, in their order; none after so many seconds. Raises RankLost.

        With the text of a `call` that was counted, CollectiveMismatch where ranks that make other calls wait for this
        one: then none of them has made its call.
        """
        number = self._exchanges[name] = self._exchanges.get(name, 0) + 1
        key = f"{name} {number}"
        self._line.send(key=key, ranks=list(ranks), value=value, call=call)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._answers or self._lost is not None, seconds):
                return []
            answer = self._answers.pop(key, None)
        if answer is not None and "values" in answer:
            values: list[Any] = answer["values"]
            return values
        if answer is not None and "mismatch" in answer:
            self._exchanges[name] -= 1
            self.counts[name] -= 1
            raise CollectiveMismatch(op, dict(answer["mismatch"]))
        if answer is not None:
            rank = answer["lost"]
            self._lose(rank, self._ends[rank][1])
        self.require_all(op)
        raise AssertionError(f"{key} has no answer")

    def require_all(self, op: str) -> None:
        """RankLost where a rank ended that others need."""
        if self._lost is not None:
            self._is_told.set()
            raise RankLost(op, *self._lost)

    def count(self, op: str, name: str) -> None:
        """Count a call that all ranks of a group make, or both of a pair. Raises RankLost."""
        self.counts[name] = self.counts.get(name, 0) + 1
        for rank, (counts, reason) in self._ends.items():
            self._consider(rank, counts, reason)
        self.require_all(op)

    def _read(self, messages: Sequence[dict[str, Any]] | None) -> None:
        while messages is not None:
            for message in messages:
                if "ended" in message:
                    end = message["counts"], message["reason"]
                    self._ends = {**self._ends, message["ended"]: end}
                    self._consider(message["ended"], *end)
                else:
                    with self._changed:
                        self._answers[message["key"]] = message
                        self._changed.notify_all()
            messages = self._line.receive()
        if 0 not in self._ends:
            self._lose(0, _KILLED)

    def _consider(self, rank: int, counts: dict[str, int] | None, reason: str) -> None:
        """Whether a rank that ended is missing: it was killed, or made fewer calls than this one."""
        if counts is None:
            self._lose(rank, reason)
            return
        for name, members in self.members.items():
            own, made = self.counts.get(name, 0), counts.get(name, 0)
            if rank in members and own > made:
                self._lose(rank, f"ended after {made} calls of '{name}', of which rank {self.rank} made {own}")

    def _lose(self, rank: int, reason: str) -> None:
        with self._changed:
            if self._lost is not None:
                return
            self._lost = rank, reason
            self._changed.notify_all()
        threading.Thread(target=self._give_up, name="tallow-ranks-end", daemon=True).start()

    def _give_up(self) -> None:
        """End the process if it does not notice the loss: a thread that waits inside of a library cannot be woken."""
        for release in self.at_loss:
            release()
        if not self._is_told.wait(_SECONDS_TO_TELL):
            self._tell()
            os._exit(1)

    def _tell(self) -> None:
        if self._lost is not None and not self._is_told.is_set():
            sys.stderr.write(f"tallow: {RankLost(f'rank {self.rank}', *self._lost)}; this process ends too\n")
            sys.stderr.flush()

    def _finish(self) -> None:
        """Say goodbye, with how many calls were made or with what went wrong, before libraries wait for each other."""
        if os.getpid() != self._process:
            return
        error = getattr(sys, "last_value", None)
        if error is not None or self._lost is not None:
            self._tell()
            self._line.send(bye=None, reason=f"ended with {type(error).__name__}: {error}" if error else "gave up")
            self._wait_for_others(_SECONDS_TO_TELL)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            # MPI would wait for ranks that are no more.
            os._exit(1)
        for finish in self.at_end:
            finish()
        self._line.send(bye=self.counts, reason="has ended")
        self._wait_for_others()

    def _wait_for_others(self, seconds: float | None = None) -> None:
        """Stay until all ranks have ended, or for so long: they may still read what this one sent; rank 0 serves."""
        # A thread that still runs when Python ends is stopped wherever it is, which can crash the process.
        self._reader.join(seconds)
        if self._server is not None:
            self._server.join(seconds)


def listen(address: str | None, port: int) -> socket.socket:
    """A socket of rank 0, at the first of some ports that is free. This host alone reaches it by a loopback address."""
    host = address if address in ("127.0.0.1", "localhost") else ""
    error: OSError | None = None
    for candidate in range(port, port + _PORTS) if port else (0,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
        except OSError as caught:
            listener.close()
            error = caught
            continue
        listener.listen(1024)
        return listener
    raise BackendUnavailable(
        "distributed", f"no port from {port} to {port + _PORTS - 1} is free ({error}); set MASTER_PORT"
    )


def connect(rank: int, address: str, port: int, server: Server | None = None) -> Coordinator:
    """The line to rank 0, which may listen at one of some ports; BackendUnavailable where it does not answer."""
    deadline = time.monotonic() + _seconds_to_start()
    ports = range(port, port + (_PORTS if server is None else 1))
    while True:
        for candidate in ports:
            with contextlib.suppress(OSError, ValueError):
                line = _Line(socket.create_connection((address, candidate), timeout=5))
                line.send(hello=_GREETING, rank=rank)
                first, *others = line.receive() or [{}]
                if first.get("hello") == _GREETING:
                    line.socket.settimeout(None)
                    return Coordinator(rank, line, server, others)
                line.socket.close()
        if time.monotonic() > deadline:
            where = f"{address}, ports {ports[0]} to {ports[-1]}"
            raise BackendUnavailable(
                "distributed",
                f"rank 0 does not answer rank {rank} at {where}; see whether it runs, and set MASTER_ADDR",
            )
        time.sleep(0.05)
