"""What launchers tell a process: its rank, how many there are, and where rank 0 is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.error import InvalidArgument

# The variables of each launcher: rank, number of ranks, and rank on the host. Those of torchrun come first, because a
# launcher may run below another one.
_LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
# Variables that MPI's launchers set for a process that MPI can join to others.
_OF_MPI: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
# Slurm gives jobs numbers, and programs no port.
_FIRST_PORT: Final = 20000
_PORTS: Final = 20000


class Place(NamedTuple):
    """Where a process stands among others."""

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


def place(variables: Mapping[str, str] = os.environ) -> Place | None:
    """Where a launcher has put this process; None where no launcher started it."""
    for rank, size, local in _LAUNCHERS:
        # A batch script of Slurm has these variables too, but is no rank.
        if rank not in variables or size not in variables or (rank.startswith("SLURM") and not _in_step(variables)):
            continue
        number, count = _integer(variables, rank), _integer(variables, size)
        if not 0 <= number < count:
            raise InvalidArgument("init", f"{rank} is {number}, which must be from 0 to {size} - 1 = {count - 1}")
        address, port = _address(variables)
        own = _integer(variables, local) if local in variables else number
        return Place(number, count, own, address, port, any(name in variables for name in _OF_MPI))
    return None


def _in_step(variables: Mapping[str, str]) -> bool:
    return "SLURM_STEP_ID" in variables


def _address(variables: Mapping[str, str]) -> tuple[str | None, int]:
    if "MASTER_ADDR" in variables:
        port = _integer(variables, "MASTER_PORT")
        # The agent of torchrun listens at the port itself.
        return variables["MASTER_ADDR"], port + (variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True")
    if _in_step(variables) and "SLURM_JOB_NODELIST" in variables:
        job = _integer(variables, "SLURM_JOB_ID")
        return _first_host(variables["SLURM_JOB_NODELIST"]), _FIRST_PORT + job % _PORTS
    return None, 0


def _first_host(hosts: str) -> str:
    """The first host of a list of Slurm's, such as `node[03-07,9],other`."""
    match = re.match(r"([^\[,]+)(?:\[(\w+))?", hosts)
    return "".join(filter(None, match.groups())) if match else hosts


def _integer(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not text.isdecimal():
        raise InvalidArgument("init", f"the variable {name} must be an integer, not '{text}'; start with a launcher")
    return int(text)
