"""The tests of the built site need what `make docs` installs, which runs them."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("playwright") else ["test_site.py"]
