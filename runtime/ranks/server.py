"""The server in rank 0: it passes on messages between ranks, and reports ranks that have ended."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from .connection import Connection, Greeting, Job, ProtocolError

KILLED: Final = "ended without a word, as a process that is killed does"
# How often the server looks for peers that do not greet and ranks that are silent.
_SECONDS_BETWEEN: Final = 0.5
# Peers that have not greeted yet: beyond this number, the oldest one is dropped.
_MAX_PEERS: Final = 256
# A flood of strangers must not flood standard error too.
_MAX_REPORTS: Final = 20
_COUNTS_KEYS: Final = 1 << 16


class Server(threading.Thread):
    """Serves the ranks of a job, rank 0 included, in a thread of rank 0.

    A rank that sends nothing for `seconds`, not even heartbeats, counts as lost. A peer that is no rank of the job is
    dropped, with a line on standard error that names it.
    """

    def __init__(self, listener: socket.socket, job: Job, seconds: float) -> None:
        super().__init__(name="tallow-ranks-server", daemon=True)
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._job = job
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._greetings: dict[Connection, Greeting] = {}
        self._ranks: dict[Connection, int] = {}
        self._connections: dict[int, Connection] = {}
        self._last_heard: dict[int, float] = {}
        self._ended: set[int] = set()
        self._reports = 0
        self._is_abandoned = threading.Event()
        # By key, the values that ranks have sent, and the ranks that must send one.
        self._values: dict[str, dict[int, str]] = {}
        self._wanted: dict[str, Sequence[int]] = {}
        # While calls are compared, what each rank that waits for others has called, and under which key.
        self._calls: dict[int, tuple[str, str]] = {}

    def run(self) -> None:
        """Serve until every rank has ended."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        while len(self._ended) < self._job.size and not self._is_abandoned.is_set():
            for key, _ in self._selector.select(_SECONDS_BETWEEN):
                if key.data is None:
                    self._accept()
                elif key.data in self._greetings or key.data in self._ranks:  # not dropped meanwhile
                    self._read(key.data)
            self._drop_silent_peers()
        # The readers of all ranks wait for that, and ranks for their readers.
        for connection in (*self._ranks, *self._greetings):
            connection.close()
            connection.socket.close()
        self._listener.close()
        self._selector.close()

    def stop(self) -> None:
        """End the service before all ranks have ended, because rank 0 gives up."""
        self._is_abandoned.set()
        # It waits for connections.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def absent(self) -> list[int]:
        """Return the ranks that have not come."""
        return [rank for rank in range(self._job.size) if rank not in self._connections]

    def _accept(self) -> None:
        try:
            peer = self._listener.accept()[0]
            connection = Connection(peer, min(self._seconds, 10.0))
        except OSError:  # too many open files, or a peer that has left already
            time.sleep(0.01)
            return
        if len(self._greetings) >= _MAX_PEERS:
            self._drop(next(iter(self._greetings)), "one of too many peers that do not greet")
        self._greetings[connection] = Greeting(connection)
        self._selector.register(peer, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        try:
            messages = connection.receive()
            for message in messages or ():
                if connection in self._greetings:
                    self._welcome(connection, message)
                else:
                    self._take(self._ranks[connection], message)
            if messages is None:
                self._drop(connection, "closed the connection before it greeted")
        except TimeoutError:
            return
        except ProtocolError as error:
            self._drop(connection, f"sent {error}")

    def _welcome(self, connection: Connection, message: dict[str, Any]) -> None:
        greeting = self._greetings[connection]
        try:
            rank, answer = greeting.answer(message, self._job)
            if rank in self._connections:
                raise ProtocolError(f"rank {rank}, which is here already, from {self._connections[rank].peer}")
        except ProtocolError as error:
            connection.send(refused=str(error))
            raise
        del self._greetings[connection]
        connection.is_greeted = True
        self._ranks[connection] = rank
        self._connections[rank] = connection
        self._last_heard[rank] = time.monotonic()
        connection.send(**answer)
        for other in self._ended:
            connection.send(ended=other, counts=None, reason="ended before this rank came")

    def _drop(self, connection: Connection, reason: str) -> None:
        """Close a connection. A rank has ended then; of another peer a line is printed."""
        self._selector.unregister(connection.socket)
        connection.close()
        connection.socket.close()
        if self._greetings.pop(connection, None) is not None:
            self._report(f"rank 0 dropped {connection.peer}, which {reason}")
            return
        rank = self._ranks.pop(connection)
        self._end(rank, None, KILLED if reason.startswith("closed") else reason)
        self._send_to_others(rank, gone=rank)

    def _report(self, text: str) -> None:
        self._reports += 1
        if self._reports <= _MAX_REPORTS:
            more = "; further ones are not reported" if self._reports == _MAX_REPORTS else ""
            sys.stderr.write(f"tallow: {text}{more}\n")
            sys.stderr.flush()

    def _drop_silent_peers(self) -> None:
        now = time.monotonic()
        for connection in [peer for peer, greeting in self._greetings.items() if now > greeting.deadline]:
            self._drop(connection, "did not greet")
        for rank, last in list(self._last_heard.items()):
            connection = self._connections[rank]
            if rank not in self._ended and connection in self._ranks and now - last > self._seconds:
                reason = f"has been silent for {self._seconds:g} s: it is stopped, or its host cannot be reached"
                self._end(rank, None, reason)

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        self._last_heard[rank] = time.monotonic()
        if "beat" in message:
            self._connections[rank].send(beat=True)
        elif "bye" in message:
            counts, reason = message["bye"], message.get("reason")
            if not isinstance(reason, str) or not (counts is None or are_counts(counts)):
                raise ProtocolError("a goodbye that is none")
            self._end(rank, counts, reason)
        elif "missing" in message:
            other = message["missing"]
            if type(other) is int and other in self._connections:
                self._connections[other].send(missed=rank)
        else:
            self._exchange(rank, message)

    def _exchange(self, rank: int, message: dict[str, Any]) -> None:
        match message:
            case {"key": str(key), "ranks": list(ranks), "value": str(value), "call": str(call) | (None as call)} if (
                self._are_ranks(ranks, rank)
            ):
                pass
            case _:
                raise ProtocolError("an exchange that is none")
        self._wanted[key] = ranks
        self._values.setdefault(key, {})[rank] = value
        if call is not None:
            self._calls[rank] = key, call
        self._answer(key)
        if rank in self._calls:
            self._report_mismatch(self._deadlocked(rank))

    def _are_ranks(self, ranks: list[object], own: int) -> bool:
        if not all(type(rank) is int and 0 <= rank < self._job.size for rank in ranks):
            return False
        return own in ranks and len(set(ranks)) == len(ranks)

    def _answer(self, key: str) -> None:
        values, wanted = self._values[key], self._wanted[key]
        absent = [rank for rank in wanted if rank not in values]
        lost = [rank for rank in absent if rank in self._ended]
        if absent and not lost:
            return
        answer = {"lost": lost[0]} if lost else {"values": [values[rank] for rank in wanted]}
        for rank in values:
            self._connections[rank].send(key=key, **answer)
            if rank in self._calls and self._calls[rank][0] == key:
                del self._calls[rank]
        if not absent:
            del self._values[key], self._wanted[key]

    def _awaited(self, rank: int) -> set[int]:
        """The ranks that one waits for, of which some may wait too."""
        key = self._calls[rank][0]
        return {other for other in self._wanted[key] if other not in self._values[key]}

    def _deadlocked(self, rank: int) -> set[int]:
        """Return the ranks that wait forever since this rank's call: in a cycle with it, or for one in that cycle."""
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

    def _report_mismatch(self, ranks: set[int]) -> None:
        """Report to ranks that their calls do not match; none of these calls takes effect."""
        calls = {rank: self._calls.pop(rank) for rank in sorted(ranks)}
        texts = [[rank, text] for rank, (_, text) in calls.items()]
        for rank, (key, _) in calls.items():
            del self._values[key][rank]
            self._connections[rank].send(key=key, mismatch=texts)

    def _end(self, rank: int, counts: dict[str, int] | None, reason: str) -> None:
        if rank in self._ended:
            return
        self._ended.add(rank)
        # Itself too, in case that it runs on.
        if rank in self._connections and counts is None:
            self._connections[rank].send(ended=rank, counts=None, reason=reason)
        self._send_to_others(rank, ended=rank, counts=counts, reason=reason)
        for key in [key for key, wanted in self._wanted.items() if rank in wanted]:
            self._answer(key)

    def _send_to_others(self, rank: int, **message: object) -> None:
        for connection, other in list(self._ranks.items()):
            if other != rank:
                connection.send(**message)


def are_counts(counts: object) -> bool:
    """Return whether this is a number of calls by the name of each group."""
    return (
        isinstance(counts, dict)
        and len(counts) <= _COUNTS_KEYS
        and all(type(count) is int for count in counts.values())
    )
