"""How the ranks of a job find each other, and notice that one of them has ended: a connection to rank 0.

Elements of tensors take other routes. Ranks exchange how communicators of libraries begin, the groups that they
split into, and, while calls are compared, what each of them calls.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..base.error import BackendUnavailable, CollectiveMismatch, RankLost
from .connection import Connection, Job, ProtocolError, connect, parsed
from .server import KILLED, Server, are_counts

# A thread that waits for a lost rank inside of a library does not return.
_SECONDS_TO_GIVE_UP: Final = 2.0
# Between the end of a process's connection and the moment when its parent knows its exit code.
_SECONDS_TO_EXIT: Final = 0.2
# A stopped rank is noticed after the seconds of the job; a thread of its own sends heartbeats while others compile.
_MAX_SECONDS_OF_BEAT: Final = 5.0


class Coordinator:
    """The connection of this process to rank 0."""

    def __init__(
        self,
        rank: int,
        connection: Connection,
        received: Sequence[dict[str, Any]],
        server: Server | None,
        seconds: float,
    ) -> None:
        self.rank = rank
        self.counts: dict[str, int] = {}
        """The number of calls of this rank, by the names of groups and of pairs of ranks."""
        self._exchanges: dict[str, int] = {}
        self.members: dict[str, Sequence[int]] = {}
        """By the names of groups, and of pairs of ranks, their ranks."""
        self.at_loss: list[Callable[[], object]] = []
        """Functions that end the waiting of this process for a lost rank."""
        self.at_end: list[Callable[[], object]] = []
        """Functions that are called before this rank ends."""
        self.after_end: list[Callable[[], object]] = []
        """Functions that are called when all ranks have ended, unless others have lost this one."""
        self._connection = connection
        # Never closed: the connection ends with the process, by which others see that its exit code is known.
        os.dup(connection.socket.fileno())
        self._server = server
        self._seconds = seconds
        self._process = os.getpid()
        # By key, what rank 0 answered: the values of all, calls that do not match, or the rank that is lost.
        self._answers: dict[str, list[Any] | dict[int, str] | int] = {}
        self._changed = threading.Condition()
        # By rank, the number of its calls with each group, if it reported that, and how it ended.
        self._ends: dict[int, tuple[dict[str, int] | None, str]] = {}
        self._lost: tuple[int, str] | None = None
        # The ranks whose processes are no more.
        self._gone: set[int] = set()
        # Whether another rank waits for a call that this one, which is ending, did not make.
        self._is_missed = False
        self._is_finishing = False
        self._is_reported = threading.Event()
        self._has_left = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(received,), name="tallow-ranks", daemon=True)
        self._heart = threading.Thread(target=self._beat, name="tallow-ranks-heartbeat", daemon=True)
        self._reader.start()
        self._heart.start()
        atexit.register(self._finish)

    @classmethod
    def start(cls, rank: int, job: Job, address: str, port: int, server: Server | None, seconds: float) -> Coordinator:
        """Connect to rank 0; BackendUnavailable if it does not answer within `seconds`."""
        connection, received = connect(rank, job, address, port, seconds, is_exact=server is not None)
        return cls(rank, connection, received, server, seconds)

    def meet(self, name: str, ranks: Sequence[int]) -> None:
        """Wait until all ranks are here. BackendUnavailable if some do not come."""
        try:
            if self.exchange("init", name, ranks, None, self._seconds):
                return
        except BaseException as error:
            self._leave(f"gave up: {type(error).__name__}")
            raise
        absent = "some ranks" if self._server is None else f"ranks {', '.join(map(str, self._server.absent()))}"
        reason = (
            f"{absent} did not come within {self._seconds:g} s; see whether they run, and whether they reach rank 0"
        )
        self._leave("gave up waiting for the others")
        raise BackendUnavailable("distributed", reason)

    def _leave(self, reason: str) -> None:
        """Tell the others that this rank is none of theirs any more, and wait for none of them at the end."""
        atexit.unregister(self._finish)
        self._connection.send(bye=None, reason=reason)
        self._has_left.set()
        if self._server is not None:
            self._server.stop()
            self._server.join(_SECONDS_TO_GIVE_UP)
        self._connection.close()

    def exchange(
        self,
        op: str,
        name: str,
        ranks: Sequence[int],
        value: object,
        seconds: float | None = None,
        call: str | None = None,
    ) -> list[Any]:
        """The values of all ranks of a group, in their order; none after `seconds`. Raises RankLost.

        With the text of a `call` that was counted, CollectiveMismatch where ranks that make other calls wait for this
        one: then none of the calls has begun.
        """
        number = self._exchanges[name] = self._exchanges.get(name, 0) + 1
        key = f"{name} {number}"
        # Rank 0 passes values on as texts: what is in them is no concern of its.
        self._connection.send(key=key, ranks=list(ranks), value=json.dumps(value), call=call)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._answers or self._lost is not None, seconds):
                return []
            answer = self._answers.pop(key, None)
        if isinstance(answer, list):
            return answer
        if isinstance(answer, dict):
            self._exchanges[name] -= 1
            self.counts[name] -= 1
            raise CollectiveMismatch(op, answer)
        if answer is not None:
            self._lose(answer, self._ends[answer][1])
        self.require_all(op)
        raise AssertionError(f"{key} has no answer")

    def require_all(self, op: str) -> None:
        """RankLost where a rank ended that others need."""
        if self._lost is not None:
            self._is_reported.set()
            raise RankLost(op, *self._lost)

    def count(self, op: str, name: str) -> None:
        """Count a call that all ranks of a group make, or both of a pair. Raises RankLost."""
        self.counts[name] = self.counts.get(name, 0) + 1
        for rank, (counts, reason) in self._ends.items():
            self._consider(rank, counts, reason)
        self.require_all(op)

    def _read(self, messages: Sequence[dict[str, Any]] | None) -> None:
        reason = KILLED
        try:
            while messages is not None:
                for message in messages:
                    self._take(message)
                messages = self._connection.receive()
        except TimeoutError:
            reason = f"has been silent for {self._seconds:g} s: it is stopped, or its host cannot be reached"
        except ProtocolError as error:
            reason = f"sent {error}"
        if 0 not in self._ends and not self._has_left.is_set():
            self._lose(0, reason)
        with self._changed:
            self._gone.add(0)
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        """Take a message of rank 0. Raises ProtocolError if it is none."""
        match message:
            case {"ended": int(rank), "counts": counts, "reason": str(reason)} if counts is None or are_counts(counts):
                self._ends = {**self._ends, rank: (counts, reason)}
                self._consider(rank, counts, reason)
                return
            case {"gone": int(rank)}:
                self._gone.add(rank)
            case {"missed": int()}:
                self._is_missed = True
            case {"key": str(key), "values": list(texts)}:
                self._answers[key] = [parsed(text) for text in texts]
            case {"key": str(key), "mismatch": list(calls)} if all(map(_is_call, calls)):
                self._answers[key] = dict(calls)
            case {"key": str(key), "lost": int(rank)} if rank in self._ends:
                self._answers[key] = rank
            case {"beat": True}:
                return
            case _:
                raise ProtocolError("a message that rank 0 does not send")
        with self._changed:
            self._changed.notify_all()

    def _beat(self) -> None:
        """Say that this process runs, which rank 0 answers."""
        while not self._has_left.wait(min(_MAX_SECONDS_OF_BEAT, self._seconds / 4)):
            self._connection.send(beat=True)

    def _consider(self, rank: int, counts: dict[str, int] | None, reason: str) -> None:
        """Report a rank that ended too early: it was killed, or made fewer calls than this one."""
        if counts is None:
            self._lose(rank, reason)
            return
        for name, members in self.members.items():
            own, count = self.counts.get(name, 0), counts.get(name, 0)
            if rank in members and own > count:
                self._lose(rank, f"ended after {count} calls of '{name}', of which rank {self.rank} made {own}")

    def _lose(self, rank: int, reason: str) -> None:
        with self._changed:
            if self._lost is not None:
                return
            self._lost = rank, reason
            self._changed.notify_all()
        if not self._is_finishing:
            threading.Thread(target=self._give_up, name="tallow-ranks-end", daemon=True).start()

    def _give_up(self) -> None:
        """End the process if it does not notice the loss: a thread that waits inside of a library cannot be woken."""
        for release in self.at_loss:
            release()
        if not self._is_reported.wait(_SECONDS_TO_GIVE_UP):
            self._report_loss()
            self._release_lost_rank()
            os._exit(1)

    def _report_loss(self) -> None:
        if self._lost is not None and not self._is_reported.is_set():
            sys.stderr.write(f"tallow: {RankLost(f'rank {self.rank}', *self._lost)}; this process ends too\n")
            sys.stderr.flush()

    def _finish(self) -> None:
        """Say goodbye, with the number of calls or with the error, before libraries wait for each other."""
        if os.getpid() != self._process:
            return
        self._is_finishing = True
        error = getattr(sys, "last_value", None)
        if error is not None or self._lost is not None:
            self._fail(error)
        for finish in self.at_end:
            finish()
        self._connection.send(bye=self.counts, reason="has ended")
        # Others may still read what this rank sent, and rank 0 serves. But if one of them misses a call of this rank,
        # the exit code of this process should be the first that a launcher sees.
        self._wait(lambda: self._is_missed)
        if not self._is_missed:
            for finish in self.after_end:
                finish()
        self._has_left.set()
        self._heart.join()

    def _fail(self, error: BaseException | None) -> None:
        """End the process, which MPI would have wait for ranks that are no more."""
        self._report_loss()
        self._release_lost_rank()
        reason = f"ended with {type(error).__name__}: {error}" if error else "gave up"
        self._connection.send(bye=None, reason=reason)
        self._wait(lambda: False, _SECONDS_TO_GIVE_UP)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(1)

    def _release_lost_rank(self) -> None:
        """Let the rank that is to blame exit first, so that its exit code is the first that a launcher sees.

        It may be ending, and wait for this one. mpirun ends the others as soon as one has failed, so the loss has been
        reported before.
        """
        if self._lost is None:
            return
        rank = self._lost[0]
        self._connection.send(missing=rank)
        self._wait(lambda: rank in self._gone, _SECONDS_TO_GIVE_UP)
        time.sleep(_SECONDS_TO_EXIT)

    def _wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something is over, all ranks have ended, or `seconds` have passed."""
        with self._changed:
            self._changed.wait_for(lambda: is_over() or 0 in self._gone, seconds)
        if 0 in self._gone:
            # A thread that still runs when Python ends is stopped wherever it is, which can crash the process.
            self._reader.join(seconds)
            if self._server is not None:
                self._server.join(seconds)


def _is_call(pair: object) -> bool:
    return isinstance(pair, list) and [*map(type, pair)] == [int, str]
