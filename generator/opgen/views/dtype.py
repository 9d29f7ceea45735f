"""The view of dtype.py."""

from types import SimpleNamespace as View

from opgen.model import DType, Spec
from opgen.views.python import quoted


def dtype(spec: Spec) -> View:
    """The enum DType and the groups."""
    groups = {}
    for name, members in spec.groups.items():
        items = "".join(f"DType.{member.upper()}, " for member in members)
        groups[name.upper()] = items
    return View(dtypes=[View(dtype=each, member=each.name.upper(), facts=_facts(each)) for each in spec.dtypes],
                groups=groups)  # fmt: skip


def _facts(each: DType) -> str:
    module, _, name = each.numpy.rpartition(".")
    numpy = [quoted(module), quoted(name), quoted(each.compute), str(each.index_mark)]
    return ", ".join([quoted(each.kind), str(each.bytes), *numpy, quoted(each.safetensors), str(each.dlpack),
                      quoted(each.cpp)])  # fmt: skip
