"""Block formats that weights cannot be rounded to: without a scale they are numbers of a dtype."""

from typing import Final

from opgen.folders import RUNTIME
from opgen.model.spec import Spec
from opgen.problem import Problems
from opgen.sources import Sources

_MODULE: Final = RUNTIME / "host" / "quantize.py"


def check_rounding(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note formats without a scale that are called after no dtype."""
    if not spec.formats or _MODULE not in sources.paths:
        return
    floats = {dtype.name: dtype.bytes for dtype in spec.dtypes if dtype.kind == "float"}
    for block in spec.formats:
        if block.scale is None and not block.location.is_of_base and floats.get(block.name) != block.bytes:
            same = ", ".join(name for name, size in floats.items() if size == block.bytes)
            message = f"format '{block.name}' has no scale, so that weights are converted to the dtype of its name,"
            fix = f"name it {same or 'like one'}, or add 'scale'"
            problems.note(block.location, f"{message} which is no float of {block.bytes} bytes; {fix}")
