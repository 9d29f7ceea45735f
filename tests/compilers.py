"""Compilers of kernels for the host: those of this machine, and one that compiles nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

# In sh, which starts in no time. It waits while there is a file `hold`, and refuses the source that `broken` names.
_PROGRAM = """\
#!/bin/sh
export PATH=/usr/bin:/bin
for word; do
    case $word in
        --version) echo "a compiler of the tests"; exit ;;
        -DTALLOW_TARGET=*) target=${{word#*=}} ;;
        *.cpp | *.hip) source=${{word##*/}} ;;
    esac
    output=$word
done
target=${{target#?}} target=${{target%?}} name=${{source%.*}}
echo "$name $target $$ $PPID" >> '{folder}/log'
[ "$name" = probe ] || while [ -e '{folder}/hold' ]; do sleep 0.02; done
if [ -e '{folder}/broken' ] && [ "$(cat '{folder}/broken')" = "$name" ]; then
    echo "$source:1:1: error: it is broken"
    exit 1
fi
case $name in probe | empty) name=span ;; esac
exec ln -s "{code}/$target/$name.co" "$output"
"""


class Call(NamedTuple):
    """A call of a compiler."""

    source: str
    target: str
    process: int
    parent: int


def write_compiler(folder: Path, code: Path) -> None:
    """Write `g++` to a folder, which gives the libraries of the folder `code`, and notes its calls in a file `log`."""
    compiler = folder / "g++"
    compiler.write_text(_PROGRAM.format(folder=folder, code=code), encoding="utf-8")
    compiler.chmod(0o755)


def read_calls(folder: Path) -> list[Call]:
    """The calls of a folder's compiler so far."""
    log = folder / "log"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return [Call(source, target, *map(int, numbers)) for source, target, *numbers in map(str.split, lines)]


def take_calls(folder: Path) -> list[Call]:
    """The calls since this was called last."""
    calls = read_calls(folder)
    (folder / "log").unlink(missing_ok=True)
    return calls


def compile_host_kernels() -> None:
    """Compile what the package lacks of the CPU's kernels, where a compiler is: else tests would test NumPy."""
    from tallow.runtime.backends.cpu_backend import host_libraries
    from tallow.runtime.compilation import background
    from tallow.runtime.compilation.host_compiler import CannotCompile, cores

    if os.environ.get("TALLOW_THREADS") != "0" and host_libraries._shipped() is None:
        try:
            background.compile_missing(background.open_cache(), cores())
        except CannotCompile as error:
            print(f"NumPy computes in these tests: {error}")
