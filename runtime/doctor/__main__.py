"""`python -m tallow.doctor`."""

import os
import sys

from .report import doctor


def main() -> int:
    """Print what was found of all backends. Returns the exit code."""
    print(doctor().text(has_colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return 0
