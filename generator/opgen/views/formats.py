"""Views of the block formats: their enum, their blocks in C++, how NumPy and C++ decode them, and their page."""

from types import SimpleNamespace as View

from opgen.decoding import Decoding
from opgen.formats import BlockField, Format
from opgen.model import Spec
from opgen.views.python import quoted


def docs_formats(spec: Spec) -> View:
    """The block formats, in the order of the spec."""
    rows = list(map(_row, spec.formats))
    return View(formats=rows, example=rows[0] if rows else None)


ggml_dtype = host_blocks = kernels_blocks = docs_formats


def _row(item: Format) -> View:
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
    )


def struct_name(name: str) -> str:
    """What C++ calls the block of a format."""
    return f"Block{name}"


def _part(name: str, decoding: Decoding) -> View:
    """What makes a weight: its quant, or the scale or the offset of its group."""
    has_place, place = decoding.has_place, "i" if name == "quant" else "g"
    return View(
        name=name,
        text=decoding.text.replace("|", "\\|"),  # for a table
        cpp_type="float" if decoding.is_float else "int",
        cpp_place=f"uint32_t {place}" if has_place else "uint32_t",
        cpp=decoding.cpp,
        numpy_place=place if has_place else "_",
        numpy=decoding.numpy,
    )


def _count(field: BlockField) -> str:
    return "" if field.count is None else f"[{field.count}]"


def _numpy(field: BlockField) -> str:
    module, _, name = field.facts.numpy.rpartition(".")
    return f"({quoted(field.name)}, {quoted(module)}, {quoted(name)}, {field.count})"
