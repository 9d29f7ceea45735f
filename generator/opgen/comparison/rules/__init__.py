"""The rules by which a change of the spec breaks callers, each in the module of its subject.

A rule is a function of a match, decorated with its triggers: it returns how the difference breaks callers, or None.
docs/rules.md consists of their docstrings.
"""

from opgen.comparison.rule import Rule
from opgen.comparison.rules import backends, dtypes, formats, gradients, kernels, methods, ops, package, parameters

_MODULES = (ops, parameters, gradients, methods, backends, dtypes, kernels, formats, package)
RULES = {it.name: it for module in _MODULES for it in vars(module).values() if isinstance(it, Rule)}
"""Every rule by its name."""
