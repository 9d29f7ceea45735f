"""The views of dtype.py and promotion.py."""

from types import SimpleNamespace as View

from opgen.dtypes import DType
from opgen.model.spec import Spec
from opgen.promotion import promotions
from opgen.views.python import quoted


def dtype(spec: Spec) -> View:
    """The enum DType and the groups."""
    groups = {}
    for name, members in spec.groups.items():
        items = "".join(f"DType.{member.upper()}, " for member in members)
        groups[name.upper()] = items
    rows = [View(dtype=each, doc=f"{each.doc}.", member=each.name.upper(), facts=_facts(each)) for each in spec.dtypes]
    return View(dtypes=rows, groups=groups, example=spec.dtypes[0])


def promotion(spec: Spec) -> View:
    """Which dtypes two dtypes have together."""
    dtypes = {each.name: each for each in spec.dtypes}
    rows = [
        View(made_from=(dtypes[name].location,), member=name.upper(),
             others=[f"DType.{other.upper()}: DType.{promoted.upper()}" for other, promoted in others.items()])
        for name, others in promotions(spec)
    ]  # fmt: skip
    return View(rows=rows)


def docs_promotion(spec: Spec) -> View:
    """The table of the page, in which two dtypes that do not go together have a dash."""
    names = [each.name for each in spec.dtypes]
    rows = [
        View(name=name, cells=[name if other == name else others.get(other, "–") for other in names])
        for name, others in promotions(spec)
    ]
    return View(names=names, rules=["---"] * len(names), rows=rows)


def _facts(each: DType) -> str:
    module, _, name = (each.numpy or "").rpartition(".")
    numpy = f"({quoted(module)}, {quoted(name)})" if module else "None"
    # Libraries of collectives have those short floats alone that matrix cores multiply.
    reduced_as = each.joined_as or (each.compute if each.is_short and each.multiplicand is None else None)
    it = each.format
    facts = {
        "real": _or_none(each.real),
        "joined_as": _or_none(reduced_as),
        "format": f"FloatFormat({it.exponent}, {it.fraction}, {it.bias}, {quoted(it.specials)})" if it else "None",
        "multiplicand": _or_none(each.multiplicand),
    }
    shared = [quoted(each.kind), str(each.bytes), numpy, quoted(each.compute), str(each.index_mark)]
    shared += [_or_none(each.safetensors), str(each.dlpack), quoted(each.cpp)]
    return ", ".join([*shared, *(f"{key}={value}" for key, value in facts.items() if value != "None")])


def _or_none(text: str | None) -> str:
    return quoted(text) if text else "None"
