"""`python -m tallow.doctor`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Final

from ..core.extensions import extensions
from .report import doctor

_EXAMPLES: Final = """\
examples:
  python -m {package}.doctor         what works here, and what is missing otherwise
  python -m {package}.doctor {backend:6}  one backend alone; exit code 1 if it cannot be used
  python -m {package}.doctor --json  the same for programs, and for reports

exit codes:
  0  every backend that was named can be used; without names, at least one can
  1  one cannot, and the report says why
  2  the command line is wrong

Nothing in the report names the user or the host."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings of all backends, or of those that are named. Returns the exit code."""
    options = _parser().parse_args(arguments)
    report = doctor(*options.backends)
    if options.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        print(report.text(has_colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    states = [each.is_available for each in report.backends]
    return 0 if (all(states) if options.backends else any(states)) else 1


def _parser() -> argparse.ArgumentParser:
    names = [*extensions.device_class.backends()]
    package = __name__.partition(".")[0]
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}.doctor",
        description="Say which backends can be used here and, where one cannot, what is missing and how to get it.",
        epilog=_EXAMPLES.format(package=package, backend=names[0]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "backends",
        nargs="*",
        metavar="backend",
        type=_backend,
        help=f"{', '.join(names)}; all of them if none is named",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def _backend(text: str) -> str:
    names = extensions.device_class.backends()
    if text not in names:
        raise argparse.ArgumentTypeError(f"unknown backend '{text}'; choose from {', '.join(names)}")
    return text
