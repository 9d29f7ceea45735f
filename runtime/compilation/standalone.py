"""Runs the compilation without the package around it, whose import takes NumPy and longer than this.

A script: its argument is the package's name, its folders and Python's search path, as JSON.
"""

import json
import sys
from importlib import import_module
from types import ModuleType

if __name__ == "__main__":
    name, folders, sys.path[:] = json.loads(sys.argv[1])
    package = ModuleType(name)
    package.__path__ = folders
    sys.modules[name] = package
    import_module(f"{name}.runtime.compilation.background").main()
