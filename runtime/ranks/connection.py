"""Connections between ranks and rank 0: lines of JSON, a greeting by which the ranks of one job know each other.

The greeting names the job, its size and the rank. Both ends prove that they know the secret of the job, where it has
one, without sending it: each answers the other's random challenge with an HMAC. Without a secret the greeting keeps
neighbouring jobs separate and is no protection.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from typing import Any, Final, NamedTuple

from ..base.error import BackendUnavailable

# How many ports from the first one on rank 0 tries, in case others listen there already.
_PORTS: Final = 16
_MAX_PORT: Final = 65535
_PROTOCOL: Final = "tallow 2"
_RECEIVE_BYTES: Final = 1 << 16
# The longest line of a peer that has not greeted, and of a rank.
_MAX_GREETING: Final = 1 << 12
_MAX_LINE: Final = 1 << 20
_SECONDS_TO_GREET: Final = 5.0
_LOOPBACK: Final = ("127.0.0.1", "localhost")


class Job(NamedTuple):
    """A secret that all ranks of one program share, and no other processes."""

    name: str
    """The launcher's name of the job and its step; empty where it has none."""
    size: int
    secret: str


class ProtocolError(Exception):
    """A peer sent something that no rank sends."""


class Connection:
    """A TCP connection on which each message is a JSON object on a line of its own."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that reads nothing must not block the sender forever.
        connection.settimeout(seconds)
        self.peer = "{}:{}".format(*connection.getpeername())
        self.is_greeted = False
        """Whether the peer has proved to be of this job, and may send longer lines."""
        self._received = b""
        self._lock = threading.Lock()

    def send(self, **message: object) -> None:
        """Send a message; if that fails, close the connection, which both ends notice when they read."""
        try:
            with self._lock:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.close()

    def close(self) -> None:
        """Shut the connection down: both ends receive None."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages received since the last call; None at the end of the connection.

        Raises TimeoutError after the seconds of the connection, and ProtocolError if a line is too long or is no JSON
        object.
        """
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        longest = _MAX_LINE if self.is_greeted else _MAX_GREETING
        if max(map(len, (*lines, self._received))) > longest:
            raise ProtocolError(f"a line of more than {longest:,} bytes")
        return [_message(line) for line in lines]


def parsed(text: Any) -> Any:
    """Return the value of a JSON text; ProtocolError if it is none."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise ProtocolError("a text that is no JSON") from None


def _message(line: bytes) -> dict[str, Any]:
    message = parsed(line)
    if not isinstance(message, dict):
        raise ProtocolError("a message that is no JSON object")
    return message


class Greeting:
    """The server's side of the greeting with one peer: a challenge, then the check of its answer."""

    def __init__(self, connection: Connection) -> None:
        self._challenge = secrets.token_hex(16)
        self.deadline = time.monotonic() + _SECONDS_TO_GREET
        connection.send(hello=_PROTOCOL, challenge=self._challenge)

    def answer(self, message: dict[str, Any], job: Job) -> tuple[int, dict[str, object]]:
        """Return the rank of a peer and what to answer it; ProtocolError, which says why, if it is none of this job."""
        rank, challenge = message.get("rank"), message.get("challenge")
        if message.get("hello") != _PROTOCOL or type(rank) is not int or not isinstance(challenge, str):
            raise ProtocolError("no greeting of a rank, or one of another version of tallow")
        if message.get("job") != job.name:
            raise ProtocolError("a rank of another job")
        if message.get("size") != job.size:
            raise ProtocolError(f"a rank of another job, which has another number of ranks than {job.size}")
        if not _is_proof(message.get("proof"), job, "rank", rank, self._challenge):
            raise ProtocolError("a rank with another TALLOW_DISTRIBUTED_SECRET")
        if not 0 <= rank < job.size:
            raise ProtocolError(f"rank {rank}, where ranks are below {job.size}")
        return rank, {"welcome": rank, "proof": _proof(job, "server", rank, challenge)}


def _proof(job: Job, side: str, rank: int, challenge: str) -> str:
    text = json.dumps([side, job.name, job.size, rank, challenge])
    return hmac.new(job.secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _is_proof(proof: object, job: Job, side: str, rank: int, challenge: str) -> bool:
    # compare_digest takes ASCII alone.
    wanted = _proof(job, side, rank, challenge).encode()
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(errors="replace"), wanted)


def _greet(connection: Connection, rank: int, job: Job) -> list[dict[str, Any]]:
    """Greet what may be rank 0, and return the messages that it sent after its welcome. Raises ProtocolError."""
    deadline = time.monotonic() + _SECONDS_TO_GREET
    hello, *_ = _next_messages(connection, deadline)
    if hello.get("hello") != _PROTOCOL or not isinstance(hello.get("challenge"), str):
        raise ProtocolError("something that is no rank 0 of tallow, or of another version")
    challenge = secrets.token_hex(16)
    proof = _proof(job, "rank", rank, hello["challenge"])
    connection.send(hello=_PROTOCOL, job=job.name, size=job.size, rank=rank, challenge=challenge, proof=proof)
    answer, *others = _next_messages(connection, deadline)
    if "refused" in answer:
        raise ProtocolError(f"a rank 0 that refused this rank as {answer['refused']}")
    if answer.get("welcome") != rank or not _is_proof(answer.get("proof"), job, "server", rank, challenge):
        raise ProtocolError("a rank 0 with another TALLOW_DISTRIBUTED_SECRET")
    connection.is_greeted = True
    return others


def _next_messages(connection: Connection, deadline: float) -> list[dict[str, Any]]:
    while (messages := connection.receive()) is not None:
        if messages:
            return messages
        if time.monotonic() > deadline:
            raise ProtocolError("something that does not greet")
    raise ProtocolError("something that closes the connection")


def listen(address: str | None, port: int) -> socket.socket:
    """Return a listening socket of rank 0, on the first port of several that is free.

    At a loopback address only this host reaches it. Raises BackendUnavailable if no port is free.
    """
    host = "127.0.0.1" if address in _LOOPBACK else ""
    error: OSError | None = None
    candidates = _candidates(port) if port else range(1)
    for candidate in candidates:
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
    reason = f"no port from {candidates[0]} to {candidates[-1]} is free ({error}); set MASTER_PORT"
    raise BackendUnavailable("distributed", reason)


def connect(
    rank: int, job: Job, address: str, port: int, seconds: float, *, is_exact: bool
) -> tuple[Connection, list[dict[str, Any]]]:
    """Connect to rank 0, at `port` or, unless that is exact, one of the next ones, and greet it.

    Returns the connection, and the messages that came after the greeting. Raises BackendUnavailable if no rank 0 of
    this job answers within `seconds`.
    """
    deadline = time.monotonic() + seconds
    ports = range(port, port + 1) if is_exact else _candidates(port)
    refusals: dict[int, str] = {}
    while True:
        for candidate in ports:
            left = max(deadline - time.monotonic(), 0.1)
            with contextlib.suppress(OSError):
                peer = socket.create_connection((address, candidate), timeout=min(_SECONDS_TO_GREET, left))
                try:
                    connection = Connection(peer, min(_SECONDS_TO_GREET, left))
                    others = _greet(connection, rank, job)
                except (ProtocolError, OSError) as error:
                    peer.close()
                    refusals[candidate] = str(error)
                    continue
                connection.socket.settimeout(seconds)
                return connection, others
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    where = f"{address}, port {ports[0]}" if is_exact else f"{address}, ports {ports[0]} to {ports[-1]}"
    others_there = "".join(f"; at port {port} is {reason}" for port, reason in refusals.items())
    raise BackendUnavailable(
        "distributed",
        f"rank 0 does not answer rank {rank} at {where}{others_there}; see whether it runs, and set MASTER_ADDR",
    )


def _candidates(port: int) -> range:
    return range(port, min(port + _PORTS, _MAX_PORT + 1))
