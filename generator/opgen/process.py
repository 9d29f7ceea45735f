"""Runs compilers, and ends all of them."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SECONDS_TO_COMPILE: Final = 1800.0
SECONDS_TO_ANSWER: Final = 60.0
"""How long a compiler may take that compiles nothing, or next to nothing."""


@dataclass(frozen=True)
class Finished:
    """The result of a command."""

    code: int
    output: str
    errors: str


async def run(command: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS_TO_COMPILE) -> Finished:
    """Run a command to its end, for at most this many seconds.

    If it takes longer, or the wait is cancelled, it is killed with every process that it has started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
    except OSError as error:  # as a shell would say it
        return Finished(127, "", f"{command[0]}: {error.strerror}")
    try:
        output, errors = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        return Finished(124, "", f"{command[0]}: had not ended after {seconds:g} seconds, and was killed")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Finished(process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace"))
