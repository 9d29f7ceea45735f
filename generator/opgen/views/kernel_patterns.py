"""The kernels of patterns: their names and the choices of each, over ops, dtypes and widths."""

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace as View
from typing import TypeAlias

from opgen.cache.memo import memoize
from opgen.cpp import camel
from opgen.formats import BLOCKS
from opgen.gradient_ops import row_variants
from opgen.kernels import Kernel
from opgen.model.functors import Functor
from opgen.model.kinds import ANY_RESULT
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.views.formats import struct_name

# A functor of a kernel by what names call it: one whose result is of any dtype, or that has a condition, is one
# for each dtype of it.
_Forms: TypeAlias = Mapping[str, tuple[Functor, str]]


def kernel_rows(spec: Spec, kernel: Kernel) -> Iterator[View]:
    """Every kernel of one pattern."""
    types = element_types(spec)
    if "op" not in kernel.over:
        yield from _rows(spec, types, kernel, None)
        return
    for kind in kernel.over["op"]:
        for functor in spec.functor_kind(kind).functors:
            if kernel.only is None or kernel.only in functor.forms:
                for variant in row_variants(spec, functor) if functor.is_of_rows else (functor,):
                    yield from _rows(spec, types, kernel, variant)


@memoize(lambda spec: (spec.known_elements, spec.widths, spec.formats), size=1)
def element_types(spec: Spec) -> Mapping[str, str]:
    """Return the C++ names of dtypes, widths, block formats and ops, over which kernels range."""
    types = {**spec.cpp_types, **{name: cpp for name, (cpp, _) in spec.widths.items()}}
    types |= {name: struct_name(name) for name in spec.sets[BLOCKS]}
    return types | {name: camel(name) for name in spec.functor_names}


@memoize(lambda _, types, kernel, functor: (types, kernel, functor))
def _rows(spec: Spec, types: Mapping[str, str], kernel: Kernel, functor: Functor | None) -> Sequence[View]:
    """The kernels of one pattern, and of one functor if it has some."""
    return list(_of_pattern(spec, types, kernel, functor))


def _of_pattern(spec: Spec, types: Mapping[str, str], kernel: Kernel, functor: Functor | None) -> Iterator[View]:
    forms = _forms(spec, functor)
    made_from = (kernel.location,) if functor is None else (kernel.location, functor.location)
    for chosen in _choices(spec, kernel.over, forms, {}):
        spelled = {axis: types.get(value, value) for axis, value in chosen.items()}
        if "op" in chosen:
            functor, other = forms[chosen["op"]]
            dtype = chosen["dtype"]
            first = dtype if functor.condition is None else other
            spelled["op"] = camel(functor.name)
            sources = [types[name] for name in (first, *[dtype] * (len(functor.operands) - 1))]
            spelled["sources"], spelled["sources_but_last"] = ", ".join(sources), ", ".join(sources[:-1])
            spelled["result"] = types[spec.result_of(functor, dtype, other)]
        name, call = kernel.name.format(**chosen), kernel.call.format(**spelled)
        yield View(
            made_from=made_from,
            op=forms[chosen["op"]][0].name if "op" in chosen else None,
            dtype=chosen.get("dtype"),
            name=name,
            arguments=kernel.arguments,
            call=call,
        )


def _forms(spec: Spec, functor: Functor | None) -> _Forms:
    if functor is None:
        return {}
    others: Sequence[str] = [""]
    if functor.result == ANY_RESULT:
        others = [f"_{name}" for name in spec.dtype_names]
    elif functor.condition is not None:
        others = [f"_{width}" for width in _widths(spec, functor.condition)]
    return {f"{functor.name}{other}": (functor, other[1:]) for other in others}


def _widths(spec: Spec, names: Names) -> tuple[str, ...]:
    """The widths of dtypes."""
    return tuple(f"b{8 * size}" for size in sorted({spec.sizes[name] for name in spec.resolve(names)}))


def _choices(
    spec: Spec, over: Mapping[str, tuple[str, ...]], forms: _Forms, chosen: dict[str, str]
) -> Iterator[dict[str, str]]:
    if len(chosen) == len(over):
        yield chosen
        return
    axis = list(over)[len(chosen)]
    for value in _range(spec, over[axis], axis, forms, chosen):
        yield from _choices(spec, over, forms, {**chosen, axis: value})


def _range(spec: Spec, texts: tuple[str, ...], axis: str, forms: _Forms, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of a placeholder: the ops of a kind, dtypes that the chosen op has, a group, or a list."""
    if axis == "op":
        return tuple(forms)
    if texts == ("op",):
        functor, other = forms[chosen["op"]]
        if functor.condition is not None:
            # What is only moved has widths alone.
            return _widths(spec, functor.dtypes)
        dtypes = spec.resolve(functor.dtypes)
        return tuple(it for it in dtypes if spec.converts(it, other)) if functor.result == ANY_RESULT else dtypes
    if axis == "dtype" and "op" in chosen:
        own = spec.resolve(forms[chosen["op"]][0].dtypes)
        return tuple(it for it in spec.ranged(texts) if it in own)
    return spec.ranged(texts)
