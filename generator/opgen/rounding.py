"""Block formats that weights cannot be rounded to: the support matrix says that each can."""

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from opgen.model import Spec
from opgen.problem import Problems
from opgen.sources import RUNTIME, Sources

_MODULE: Final = RUNTIME / "host" / "quantize.py"
_FUNCTIONS: Final = "ROUNDED"


def check_rounding(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note formats that the runtime has no function for, and numbers of no dtype."""
    if not spec.formats or _MODULE not in sources.paths:
        return
    rounded = {*_keys(sources.tree(_MODULE) or [])}
    floats = {dtype.name: dtype.bytes for dtype in spec.dtypes if dtype.kind == "float"}
    for block in spec.formats:
        what = f"format '{block.name}'"
        if block.location.is_of_base:
            continue
        if block.scale is None and floats.get(block.name) != block.bytes:
            same = ", ".join(name for name, size in floats.items() if size == block.bytes)
            message = f"{what} has no scale, so that weights are converted to the dtype of its name, which is no float"
            problems.note(
                block.location, f"{message} of {block.bytes} bytes; name it {same or 'like one'}, or add 'scale'"
            )
        if block.scale is not None and block.name.upper() not in rounded:
            message = f"nothing rounds weights to {what}; add GgmlDType.{block.name.upper()} to {_FUNCTIONS}"
            problems.note(block.location, f"{message} in {_MODULE}")


def _keys(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the formats that the table of functions has."""
    for node in body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)) if name == _FUNCTIONS:
                yield from (key.attr for key in keys if isinstance(key, ast.Attribute))
