"""`python -m tallow.runtime.compilation` compiles what is missing of the CPU's kernels, and waits for it."""

import sys

from .background import compile_missing, open_cache
from .host_compiler import CannotCompile, cores


def main() -> int:
    """Compile into the cache, with a line for each library. Returns the exit code."""

    def show(family: str) -> None:
        print(f"compiled {family}", file=sys.stderr, flush=True)

    try:
        target = compile_missing(open_cache(), cores(), show)
    except CannotCompile as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"the kernels for the CPU ({target}) are compiled", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
