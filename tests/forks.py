"""Scripts in processes of their own, which need not import anew what scripts of a kind import.

One process imports it, and forks itself for each script. So a script starts in a tenth of the time, and has its own
libraries, threads and end; what is imported must leave no thread, and open no device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# What the forked process does not need is gone before the script begins, whose globals are those of its module.
SERVER = """
import json, os, signal, sys, warnings
for line in sys.stdin:
    request = json.loads(line)
    # Newer Pythons warn of every fork beside other threads, and NumPy has threads.
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
os.environ.update(request["settings"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, path in enumerate(request["outputs"], 1):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
# Where it does not end.
signal.alarm(300)
script = compile(request["script"], "<script>", "exec")
del json, os, signal, sys, warnings, line, request, child, number, path
exec(script)
"""


class Forks:
    """A process that has run `imports`, in an environment and with options of Python."""

    def __init__(self, imports: str, folder: Path, *options: str, **settings: str) -> None:
        self._outputs = [folder / name for name in ("stdout", "stderr")]
        command = [sys.executable, *options, "-c", f"{imports}\n{SERVER}"]
        inputs = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=inputs, stdin=pipe, stdout=pipe, text=True)

    def run(self, script: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        for path in self._outputs:
            path.unlink(missing_ok=True)
        request = {"script": script, "settings": settings, "outputs": [*map(str, self._outputs)]}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        output, errors = (path.read_text(encoding="utf-8") for path in self._outputs)
        return subprocess.CompletedProcess(script, code, output, errors)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
