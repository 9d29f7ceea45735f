"""The environment variables of launchers: the rank of this process, the number of ranks, and the host of rank 0."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.error import InvalidArgument

_SECONDS_TO_START: Final = 300.0
_MAX_PORT: Final = 65535
_MAX_INTEGER: Final = (1 << 32) - 1
# Slurm gives jobs numbers, and programs no port.
_FIRST_SLURM_PORT: Final = 20000
_SLURM_PORTS: Final = 20000
# Steps above this one are no ranks: the shell that salloc opens, a batch script, and what Slurm starts for itself.
_MAX_SLURM_STEP: Final = 0xFFFFFFF0


class _Launcher(NamedTuple):
    """The variables of a launcher. Of several names for one number, the first one that is set counts."""

    rank: str
    size: tuple[str, ...]
    local_rank: str
    hosts: tuple[str, ...] = ()
    """How many hosts there are."""
    local_size: str = ""
    """How many ranks there are on this host."""
    job: tuple[str, ...] = ()
    """Variables that identify the job and its attempt."""

    def matches(self, variables: Mapping[str, str]) -> bool:
        """Return whether this launcher started the process as a rank."""
        return self.rank in variables and any(name in variables for name in self.size)


_SLURM: Final = _Launcher(
    "SLURM_PROCID",
    # The number of tasks of a job is not that of each of its steps.
    ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    "SLURM_LOCALID",
    hosts=("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES"),
    job=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
)
# torchrun comes first, because a launcher may run below another one.
_LAUNCHERS: Final = (
    _Launcher(
        "RANK",
        ("WORLD_SIZE",),
        "LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
        job=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ),
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE",),
    ),
    _Launcher("PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", local_size="MPI_LOCALNRANKS"),
    _SLURM,
)
# Variables that MPI's launchers set for a process that MPI can join to others.
_OF_MPI: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")


class Placement(NamedTuple):
    """The rank of a process, and how to connect to the others."""

    rank: int
    size: int
    local_rank: int
    """Its number among those of its host."""
    address: str | None
    """The host of rank 0; None where the launcher does not say."""
    port: int
    """The first port that rank 0 may listen at; 0 where any will do."""
    has_mpi: bool
    """Whether MPI can join the processes."""
    job: str = ""
    """The job, its step and its attempt; empty if the launcher does not say."""


def placement(variables: Mapping[str, str] = os.environ) -> Placement | None:
    """Where a launcher has put this process; None where no launcher started it.

    Raises InvalidArgument, which names the variable, if a variable has a value that no launcher gives it.
    """
    launcher = next((each for each in _LAUNCHERS if each.matches(variables)), None)
    if launcher is None or (launcher is _SLURM and not _is_slurm_step(variables)):
        return None
    size_name = next(name for name in launcher.size if name in variables)
    rank, size = _integer(variables, launcher.rank), _integer(variables, size_name)
    if not 0 <= rank < size:
        raise InvalidArgument(
            "init", f"{launcher.rank} is {rank}, which must be from 0 to {size_name} - 1 = {size - 1}"
        )
    address, port = _address(variables, is_one_host=_is_one_host(variables, launcher, size))
    local = _integer(variables, launcher.local_rank) if launcher.local_rank in variables else rank
    job = " ".join(f"{name}={variables[name]}" for name in launcher.job if name in variables)
    return Placement(rank, size, local, address, port, any(name in variables for name in _OF_MPI), job)


def timeout(variables: Mapping[str, str] = os.environ) -> float:
    """Return how many seconds ranks wait for each other in the beginning, and for a silent one later."""
    name = "TALLOW_DISTRIBUTED_TIMEOUT"
    text = variables.get(name) or str(_SECONDS_TO_START)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        most = int(threading.TIMEOUT_MAX)
        raise InvalidArgument(
            "init", f"{name} must be a number of seconds above 0, at most {most}, not {_quoted(text)}"
        )
    return seconds


def _is_slurm_step(variables: Mapping[str, str]) -> bool:
    # A batch script of Slurm and the shell that salloc opens have variables of ranks too, but are none.
    return "SLURM_STEP_ID" in variables and _integer(variables, "SLURM_STEP_ID") < _MAX_SLURM_STEP


def _is_one_host(variables: Mapping[str, str], launcher: _Launcher, size: int) -> bool:
    hosts = next((name for name in launcher.hosts if name in variables), None)
    if hosts is not None:
        return _integer(variables, hosts) == 1
    return launcher.local_size in variables and _integer(variables, launcher.local_size) == size


def _address(variables: Mapping[str, str], *, is_one_host: bool) -> tuple[str | None, int]:
    if "MASTER_ADDR" in variables:
        # The agent of torchrun listens at the port itself.
        step = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return variables["MASTER_ADDR"], _integer(variables, "MASTER_PORT", _MAX_PORT - step) + step
    hosts = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST")
    address = "127.0.0.1" if is_one_host else None
    if hosts is not None and "SLURM_STEP_ID" in variables and _is_slurm_step(variables):
        port = _FIRST_SLURM_PORT + _integer(variables, "SLURM_JOB_ID") % _SLURM_PORTS
        return address or _first_host(hosts), port
    return address, 0


def _first_host(hosts: str) -> str:
    """Return the first host of a list of Slurm's, such as `rack[1-2]node[03-07,9]-ib,other`."""
    match = re.match(r"(?:[^,\[\]]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", match[0]) if match else hosts


def _integer(variables: Mapping[str, str], name: str, most: int = _MAX_INTEGER) -> int:
    text = variables.get(name, "")
    # int() takes other digits than ASCII's too, and refuses numbers of thousands of digits.
    number = int(text) if re.fullmatch("[0-9]{1,20}", text) else -1
    if not 0 <= number <= most:
        raise InvalidArgument(
            "init",
            f"the variable {name} must be an integer from 0 to {most}, not {_quoted(text)}; start with a launcher",
        )
    return number


def _quoted(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"
