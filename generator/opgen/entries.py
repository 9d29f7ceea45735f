"""The entries of a new op, dtype or storage method, with every choice marked."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from opgen.additions import Additions
from opgen.aliases import dtype_name
from opgen.dtypes import MAX_BYTES
from opgen.folders import PACKAGE_FILE
from opgen.formula.nodes import COMPARISONS, Call, FormulaError, Number, names, walk
from opgen.formula.parsing import parse
from opgen.model.kinds import ROW, ROW_GRADIENT, SCAN
from opgen.problem import Refusal

COMPOSED: Final = "composed"
KINDS = ("map", "reduction", ROW, SCAN, COMPOSED)
"""The kinds of ops that are one entry each."""
# What a dtype's name says: its kind and its bits.
_NAMED: Final = {
    "unsigned": re.compile(r"(u)(8|16|32|64)"),
    "signed": re.compile(r"(i)(8|16|32|64)"),
    "float": re.compile(r"(f|bf(?=16))(8(?=e)|16|32|64)(?:e\d+m\d+(?:fn|fnuz)?)?"),
    "complex": re.compile(r"(complex)(64|128)"),
}
_DTYPES, _PRIMITIVES = Path("spec", "dtypes.yaml"), Path("spec", "primitives.yaml")
_FORMULAS = {"unary": "x", "binary": "x + y", "cmp": "x == y", ROW: "x / sum(x)"}


def functor_kind(kind: str, formula: str | None) -> str:
    """The file of spec/functors that has ops of a kind: of a map that of its operands, or that of comparisons."""
    if kind != "map":
        return {"reduction": "reduce"}.get(kind, kind)
    try:
        node = parse(formula or "x")
    except FormulaError:  # which is reported later
        return "unary"
    if isinstance(node, Call) and node.primitive in COMPARISONS:
        return "cmp"
    return "binary" if "y" in names(node) else "unary"


def add_op(additions: Additions, name: str, kind: str, formula: str | None, gradient: str | None) -> list[Path]:
    """Add an op to the file of its kind, and a cell to backends that have none for all ops of the kind; the files."""
    path = Path("spec", "functors", f"{kind}.yaml")
    lines = [*_op(name, kind, formula, gradient, additions)]
    others: list[Path] = []
    if additions.is_own(path):
        _require_new(additions, path, "ops", name, "op")
        additions.append(path, ("ops",), lines)
    elif kind == ROW:
        others = _create_rows(additions, path, lines)
    else:
        others = _create_kind(additions, path, lines)
    if kind in (ROW, SCAN):
        return [path, *others, *_add_cells(additions, "functors", kind, name)]
    # Ops that no method chooses between have no cells.
    return [path, *(_add_cells(additions, "functors", kind, name) if has_method(additions, kind) else ())]


def _create_kind(additions: Additions, path: Path, lines: list[str]) -> list[Path]:
    """Create the file of a kind of ops, and what a project needs to have their kernels: the other files."""
    head = ["unsupported: the op is not defined for this dtype  # why an op of this file lacks a dtype", "ops:"]
    others = []
    methods = Path("spec", "storage", f"{SCAN}.yaml")
    if path.stem == SCAN:
        head = [f"family: {SCAN}  # the file of spec/storage that the methods join", *head]
        if not additions.is_own(methods):
            additions.create(methods, "doc: Scans along a dim.  # the docs of their module say it\n")
            others.append(methods)
    additions.create(path, _file(head, lines))
    if additions.has(PACKAGE_FILE, "base", "kernels"):
        additions.add_item(PACKAGE_FILE, ("base", "kernels"), path.stem)
        others.append(PACKAGE_FILE)
    return others


def _create_rows(additions: Additions, path: Path, lines: list[str]) -> list[Path]:
    """Create the file of ops of rows, and those of their gradients and of the methods that both become: these files."""
    head = [
        f"family: {ROW}  # the file of spec/storage that the methods join",
        "unsupported: ops of rows are of floating-point numbers  # why an op of this file lacks a dtype",
        "ops:",
    ]
    additions.create(path, _file(head, lines))
    others = {
        path.with_stem(ROW_GRADIENT): f"family: {ROW}  # opgen finds the gradients of ops of rows\n",
        Path("spec", "storage", f"{ROW}.yaml"): "doc: Functions of rows.  # the docs of their module say it\n",
    }
    created = [file for file in others if not additions.is_own(file)]
    for file in created:
        additions.create(file, others[file])
    return created


def has_method(additions: Additions, kind: str) -> bool:
    """Whether a storage method chooses between the ops of a kind."""
    files = (file for file in additions.documents if file.parts[:2] == ("spec", "storage"))
    methods = (method for file in files for method in additions.entries(file, "methods"))
    return any(
        isinstance(it.content, dict) and "ops" in it.content and it.content["ops"].content == kind for it in methods
    )


def _file(head: Iterable[str], entry: Iterable[str]) -> str:
    """A new file, whose last key holds one entry."""
    return "".join(f"{line}\n" for line in (*head, *(f"  {line}" for line in entry)))


def _has_gradients(additions: Additions) -> bool:
    return not additions.has(PACKAGE_FILE, "without_gradients")


def _dtypes_of(formula: str, additions: Additions) -> str:
    """Return the dtypes that a formula's numbers and primitives have; all if it is invalid, as reported later."""
    try:
        parts = [*walk(parse(formula))]
    except FormulaError:
        return "real"
    content = additions.documents[_PRIMITIVES].root.content
    entries = content["primitives"].content if isinstance(content, dict) else {}
    kinds = {
        call.partition("(")[0]: str(value.content["kind"].content)
        for call, value in (entries.items() if isinstance(entries, dict) else ())
        if isinstance(value.content, dict) and "kind" in value.content
    }
    named = {kinds.get(getattr(part, "primitive", "")) for part in parts}
    has_fraction = any(isinstance(part, Number) and isinstance(part.value, float) for part in parts)
    return "float" if has_fraction or "float" in named else "integer" if "integer" in named else "real"


def _op(name: str, kind: str, formula: str | None, gradient: str | None, additions: Additions) -> Iterator[str]:
    truth = "bool" if additions.has(_DTYPES, "dtypes", "bool") else "u8"
    yield f"{name}:"
    yield f"  doc: what {name} gives  # the docs say it"
    dtypes = "float" if kind == ROW else _dtypes_of(formula or "x", additions)
    others = [each for each in ("all", "number", "real", "integer", "float") if each != dtypes]
    yield f"  dtypes: {dtypes}  # or {', '.join(others)}, or a list: [f16, f32]"
    if kind in ("reduce", SCAN):
        yield "  identity: 0  # what no elements give: a number, or highest or lowest"
        yield f"  combine: {_quoted(formula or 'x + y')}  # what two contributions x and y join to"
        yield "  # element: square(x)  # what an element x contributes, if it is not x"
        if kind == SCAN:
            yield "  # of: sum  # instead of both: an op of reduce.yaml, which reduces the elements up to each"
            yield "  # finish: element - x  # each result from the accumulated x, the element and the count"
            yield "  # positions: true  # whether it also gives those of the elements that it finds"
        else:
            yield "  # finish: x / count  # what all of them come to"
        yield "  # accumulate: f64  # the dtype in which array libraries join floats"
    else:
        yield f"  formula: {_quoted(formula or _FORMULAS[kind])}  # of the primitives of primitives.yaml"
    if kind == "cmp":
        yield f"  result: {truth}  # the dtype of the result"
    elif kind != ROW:
        yield f"  # result: {truth}  # the dtype of the result, if it is not that of x"
    if kind == ROW:
        yield "  # operands: [x, weight]  # the operands by name, which are broadcast, if there are several"
        yield "  # let: {e: exp(x - detach(max(x)))}  # named parts of the formula"
    if kind in ("unary", "binary", ROW):
        yield "  # parameters: {slope: 0.01}  # numbers besides the operands, with their defaults, or null"
    if gradient is not None:
        yield f"  gradient: {{x: {json.dumps(gradient)}}}  # of an operand, over g, the gradient of the result"
    elif _has_gradients(additions) and kind != "cmp":
        slopes = "{x: g, y: g}  # of combine" if kind == SCAN else "{x: g}  # of an operand"
        yield f"  # gradient: {slopes}, if it does not follow from the formula"
    if kind == ROW:
        return
    yield f"  # edges: {{{name}(nan): nan}}  # calls and what they give, which tests make"


def add_dtype(additions: Additions, name: str, kind: str | None, size: int | None) -> list[Path]:
    """Add a dtype to spec/dtypes.yaml, and to the backends that say which of a library's dtypes is which; the files."""
    path = _DTYPES
    _require_new(additions, path, "dtypes", name, "dtype")
    additions.append(path, ("dtypes",), [*_dtype(name, kind, size)])
    changed = [path]
    for backend in sorted(file for file in additions.documents if file.parts[:2] == ("spec", "backends")):
        # Short floats are stored as their bits.
        if _is_mapping(additions, backend, "array", "dtypes") and not re.match(r"b?f(8|16)", name):
            lack = f"{{unsupported: {name} is not written yet; use another dtype}}"
            additions.append(backend, ("array", "dtypes"), [f"{name}: {lack}  # or the library's dtype"])
            changed.append(backend)
    return changed


def _dtype(name: str, kind: str | None, size: int | None) -> Iterator[str]:
    named = [(each, int(match[2])) for each, written in _NAMED.items() if (match := written.fullmatch(name))]
    if named:
        ((kind, bits),) = named
    elif kind is not None and size is not None:
        bits = 8 * size
    else:
        known = dtype_name(name)
        fix = f"write '{known}' for it, or give" if known is not None else "give"
        raise Refusal(f"what '{name}' is does not follow from its name; {fix} --kind and --bytes")
    is_integer = kind in ("unsigned", "signed")
    yield f"{name}:"
    yield f"  doc: {kind} {bits}-bit {'integer' if is_integer else 'number'}"
    yield f"  kind: {kind}  # unsigned, signed, float or complex"
    if kind == "float":
        exponent, fraction, specials = _float_bits(name, bits)
        yield f"  exponent: {exponent}  # the bits of the exponent"
        yield f"  fraction: {fraction}  # those of the fraction: with the sign {bits} bits"
        yield f"  {'' if specials else '# '}specials: {specials or 'fn'}  # fn or fnuz, where it has no infinity"
        if name in ("f16", "bf16"):
            yield f"  multiplicand: {name}  # matrix cores multiply it"
    else:
        yield f"  bytes: {bits // 8}  # of an element"
    compute = "f32" if kind == "float" and bits <= 16 else name
    yield f"  compute: {compute}  # the dtype in which arithmetic is done, before one rounding back"
    safetensors = {"complex64": "C64", "complex128": "null"}.get(name, name.upper())
    yield f"  safetensors: {safetensors}  # its name in that format, or null"
    if kind == "complex":
        yield f"  real: f{bits // 2}  # the dtype of its parts"
    if is_integer:
        mark = (1 << bits - (kind == "signed")) - 1
        comment = "" if bits == 8 * MAX_BYTES else "# "
        yield f"  {comment}index_mark: {mark}  # of a dtype that may index: the number that means no row"


def _quoted(text: str) -> str:
    """A text for YAML, which takes most formulas as they are."""
    return text if re.fullmatch(r"[\w(][\w+*/(). -]*", text) else json.dumps(text)


def _float_bits(name: str, bits: int) -> tuple[int, int, str]:
    """The bits of exponent and fraction that a float's name says, or that are usual, and its suffix."""
    named = re.fullmatch(r"f\d+e(\d+)m(\d+)(fn|fnuz)?", name)
    if named is not None:
        return int(named[1]), int(named[2]), named[3] or ""
    exponent = 8 if name == "bf16" else {8: 4, 16: 5, 32: 8}.get(bits, 11)
    return exponent, bits - 1 - exponent, ""


def add_composed(additions: Additions, name: str, body: str | None) -> list[Path]:
    """Add a storage method that is composed of others to spec/storage/composed.yaml; the file."""
    return [_add_to_family(additions, name, COMPOSED, [*_composed(name, body)])]


def _composed(name: str, body: str | None) -> Iterator[str]:
    yield f"{name}:"
    yield f'  signature: "{name}(layout: Layout) -> Storage"  # its parameters: operands and their layouts first'
    yield "  doc: |"
    yield f"    What {name} gives."
    yield "  operands: {self: {layout: layout, dtypes: float}}  # the storages that it reads"
    yield f"  unsupported: {name} is of floats  # why it lacks dtypes"
    yield '  # result: "self.dtype[self.shape[:-1]]"  # if it has another dtype or shape than the first of them'
    yield f'  tensor: "{name}() -> Tensor"  # the tensor method: parameters may have defaults'
    yield "  # example: [{self: [4, 3]}]  # calls, where it has parameters: shapes of operands, values"
    yield '  # let: {x: "self.to_dtype(self.dtype.compute)"}  # named parts of the body, in Tensor\'s methods'
    yield f"  body: {json.dumps(body or 'self * self')}  # the result; gradients and batches follow from it"


def _add_to_family(additions: Additions, name: str, family: str, lines: list[str]) -> Path:
    """Add an entry to a file of spec/storage, which is created if it is new."""
    path = Path("spec", "storage", f"{family}.yaml")
    if additions.is_own(path):
        _require_new(additions, path, "methods", name, "method")
        additions.append(path, ("methods",), lines)
    else:
        doc = f"doc: What the methods of {family} have in common.  # the docs of their module say it"
        additions.create(path, _file([doc, "methods:"], lines))
    return path


def add_method(additions: Additions, name: str, family: str) -> list[Path]:
    """Add a storage method to a file of spec/storage, and to each backend a cell that says it lacks it; the files."""
    path = _add_to_family(additions, name, family, [*_method(name, _has_gradients(additions))])
    return [path, *_add_cells(additions, "storage", name, name)]


def _add_cells(additions: Additions, part: str, key: str, name: str) -> list[Path]:
    """Add a cell to each backend where neither it nor what it extends has one by `key`; the files."""
    changed: dict[Path, None] = {}
    for backend in sorted(file for file in additions.documents if file.parts[:2] == ("spec", "backends")):
        chain = _chain(additions, backend)
        own = [file for file in chain if additions.is_own(file)]
        is_run = not additions.has(backend, "runtime", "missing")
        if is_run and own[-1] not in changed and not any(additions.has(file, part, key) for file in chain):
            cell = f"{key if part == 'storage' else f'{key}.{name}'}: {{unsupported: {name} is not written yet}}"
            additions.append(own[-1], (part,), [f"{cell}  # module.function"])
            changed[own[-1]] = None
    return [*changed]


def _chain(additions: Additions, backend: Path) -> list[Path]:
    """The files of a backend and of what it extends."""
    owners = [file for file in additions.documents if file.parts[:2] in (("spec", "families"), ("spec", "backends"))]
    extended = {file.stem: file for file in owners}
    chain = [backend]
    while (following := extended.get(_text(additions, chain[-1], "extends"))) is not None and following not in chain:
        chain.append(following)
    return chain


def _method(name: str, has_gradients: bool) -> Iterator[str]:
    yield f"{name}:"
    yield f'  signature: "{name}(layout: Layout) -> Storage"  # its parameters, and what it gives'
    yield "  doc: |"
    yield f"    What {name} gives."
    yield "  operands: {self: {layout: layout, dtypes: all}}  # the storages that it reads"
    yield '  # result: "self.dtype[self.shape[:-1]]"  # if it has another dtype or shape than the first of them'
    if has_gradients:
        yield "  gradient: {none: it is not written yet}  # of each operand, over g, the gradient of the result"
    yield '  # checks: ["dim_in_range(layout, dim)"]  # calls of functions of core/check.py, before the branch'
    yield "  # example: [{self: [4], dim: 0}]  # calls, where it has parameters: shapes of operands, values"
    yield "  # unsupported: why it lacks dtypes  # where its operands do not have all"
    yield f'  # tensor: "{name}() -> Tensor"  # the tensor method that is this method alone'


def _text(additions: Additions, file: Path, key: str) -> str:
    content = additions.documents[file].root.content
    value = content.get(key) if isinstance(content, dict) else None
    return str(value.content) if value is not None else ""


def _is_mapping(additions: Additions, file: Path, *keys: str) -> bool:
    value = additions.documents[file].root
    for key in keys:
        content = value.content
        if not isinstance(content, dict) or key not in content:
            return False
        value = content[key]
    return isinstance(value.content, dict)


def _require_new(additions: Additions, path: Path, key: str, name: str, what: str) -> None:
    if additions.has(path, key, name):
        raise Refusal(f"{path.as_posix()} has the {what} '{name}' already; choose another name, or edit it")
