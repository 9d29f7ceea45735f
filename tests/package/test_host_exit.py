"""The end of a process while a daemon thread is in a kernel of the CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tallow.runtime.backends.cpu_backend.kernels import HostKernels

pytestmark = pytest.mark.skipif(
    HostKernels.open() is None, reason="no kernels for this machine; run 'opgen compile --host'"
)

# Python and tallow start once; each process that ends is a fork. Daemon threads repeat a call there, and the main
# thread ends at another moment of it in each process. What Python deletes last sleeps, without the GIL, so that a
# thread which comes out of a kernel then asks for the GIL while Python ends.
PROGRAM = """
import gc, json, os, signal, sys, threading, time, types
import numpy as np, tallow as tl

states, processes = json.loads(sys.argv[1])
x = tl.Tensor(np.ones((300, 1000), np.float32))
square = tl.Tensor.ones((2000, 2000), dtype="bf16")
calls = {
    "short": [lambda: x.gelu(), lambda: x.copy_(x.t().contiguous().t()), lambda: x.layer_norm(None, None)],
    # Longer than the end of a process.
    "long": [lambda: square @ square],
}

class Slow:
    def __init__(self, sleep):
        self.sleep = sleep

    def __del__(self, sleep_for=time.sleep):
        sleep_for(self.sleep)

def end(number, threads, several, sleep, length):
    # A daemon thread keeps what is global here.
    sys.modules["last"] = types.ModuleType("last")
    sys.modules["last"].slow = Slow(sleep)
    # Where it does not end.
    signal.alarm(30)
    tl.set_threads(threads)
    started = threading.Semaphore(0)
    for thread in range(several):
        call = calls[length][(number + thread) % len(calls[length])]

        def work():
            started.release()
            while True:
                call()

        threading.Thread(target=work, daemon=True).start()
        started.acquire()
    time.sleep(number % 10 * 0.001)
    sys.exit(0)

# No thread is left behind, and there are plans of all calls.
tl.set_threads(1)
for call in calls["short"] + calls["long"]:
    call(), call()
# The end of a process takes a third of the time then.
gc.freeze()
ended = {}
for name, state in states.items():
    statuses, running = [], 0
    for number in range(processes):
        if os.fork() == 0:
            end(number, *state)
        running += 1
        while running == 4 or (running and number == processes - 1):
            statuses.append(os.wait()[1])
            running -= 1
    ended[name] = statuses
print(json.dumps(ended))
"""
# Threads of a call, calls at once, seconds that the end of Python takes besides, and how long a call takes.
STATES = {
    "comes back from a kernel": (1, 1, 0.01, "short"),
    "comes back from a kernel that waited for helpers": (2, 1, 0.01, "short"),
    "is in a kernel with helpers at work": (2, 1, 0.0, "long"),
    "one of several has the helpers": (3, 3, 0.01, "short"),
}


def test_a_process_ends_whatever_its_daemon_threads_do(full: bool) -> None:
    # Each begins to end at one of ten moments of a call.
    processes = 50 if full else 10
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, json.dumps((STATES, processes))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {name: [0] * processes for name in STATES}
