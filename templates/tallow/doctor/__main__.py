"""`python -m tallow.doctor`."""

import os
import sys

from . import doctor

print(doctor().text(has_colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
