"""Views of the block formats: their enum, their blocks in C++, how NumPy and C++ decode them, and their page."""

from types import SimpleNamespace as View

from opgen.decoding import Decoding, TableFacts
from opgen.formats import BlockField, Format, Table
from opgen.model.spec import Spec
from opgen.views.python import quoted


def docs_formats(spec: Spec) -> View:
    """The block formats, in the order of the spec."""
    rows = list(map(_row, spec.formats))
    return View(formats=rows, example=rows[0] if rows else None)


ggml_dtype = host_blocks = kernels_blocks = docs_formats


def _row(item: Format) -> View:
    tables = [_table(item, table) for table in item.table]
    return View(
        format=item,
        doc=f"{item.doc}.",
        name=item.name.upper(),  # the member of its enum
        struct=struct_name(item.name.upper()),
        bits=f"{8 * item.bytes / item.elements:g}",  # a weight's
        has_scale=str(item.scale is not None).lower(),
        has_offset=str(item.offset is not None).lower(),
        declarations=[f"{field.facts.cpp} {field.name}{_count(field)};" for field in item.fields],
        numpy=", ".join(map(_numpy, item.fields)),
        shown=", ".join(f"{field.name}: {field.type}{_count(field)}" for field in item.fields),
        parts=[_part(name, decoding) for name, decoding in item.decodings.items()],
        cpp_parts=[
            _part(name, item.decodings[name]) for name in item.decodings if name != "quant" or _calls_quant(item)
        ],
        quads=item.quads if item.scale is not None else None,
        tables=tables,
        grid=next((table for table in tables if table.words), None),
        grid_words=sum(table.words for table in tables),
        rounding=_rounding(item),
        rounded="by conversion"
        if item.scale is None
        else item.rounding.kind
        if item.rounding
        else "never: it is only read",
        list=_list(item),
    )


def struct_name(name: str) -> str:
    """Return the C++ name of a format's block."""
    return f"Block{name}"


def _table(item: Format, table: Table) -> View:
    """A list of numbers, or the words of a grid."""
    facts = item.known[table.name]
    assert isinstance(facts, TableFacts)
    is_grid = table.rows is not None
    spelled = ", ".join([f"0x{word:08x}" for word in facts.words] if is_grid else map(str, facts.numbers))
    values = list(table.values)
    return View(
        name=facts.name,
        constant=facts.name.upper(),
        cpp_type="uint32_t" if is_grid else "int16_t",
        choices=facts.choice_bytes if facts.choices else None,
        words=len(facts.words) if is_grid else 0,
        cpp=spelled,
        initializer=f"{{{spelled}}}",
        numpy=f'grid({values}, {table.columns}, b"{table.digits}")' if is_grid else f"np.array({values}, np.int16)",
    )


def _calls_quant(item: Format) -> bool:
    """Return True if kernels decode one quant by itself."""
    return item.scale is None or item.quads.calls_quant


def _rounding(item: Format) -> str | None:
    """The arguments of what says how weights are rounded."""
    rounding, quant, scale = item.rounding, item.decodings["quant"], item.decodings.get("scale")
    if rounding is None or scale is None:
        return None
    lowest = quant.low if rounding.lowest is None else rounding.lowest
    keys = {"search": rounding.search, "refine": rounding.refine, "error": rounding.error}
    arguments = [f"{key}={quoted(value) if isinstance(value, str) else value}" for key, value in keys.items() if value]
    return ", ".join([quoted(rounding.kind), f"({lowest}, {quant.high})", f"({scale.low}, {scale.high})", *arguments])


def _list(item: Format) -> str | None:
    """The list that quants are of."""
    name = item.quant.partition("[")[0]
    lists = {table.name for table in item.table if table.rows is None}
    return f"{item.name}_{name}".upper() if name in lists and item.quant.endswith("]") else None


def _part(name: str, decoding: Decoding) -> View:
    """Return the view of a part of a weight: its quant, or the scale or the offset of its group."""
    has_place, index = decoding.has_place, "i" if name == "quant" else "g"
    return View(
        name=name,
        text=decoding.text.replace("|", "\\|"),  # for a table
        cpp_type="float" if decoding.is_float else "int",
        cpp_place=f"uint32_t {index}" if has_place else "uint32_t",
        cpp=decoding.cpp,
        numpy_place=index if has_place else "_",
        numpy=decoding.numpy,
    )


def _count(field: BlockField) -> str:
    return "" if field.count is None else f"[{field.count}]"


def _numpy(field: BlockField) -> str:
    module, _, name = field.facts.numpy.rpartition(".")
    return f"({quoted(field.name)}, {quoted(module)}, {quoted(name)}, {field.count})"
