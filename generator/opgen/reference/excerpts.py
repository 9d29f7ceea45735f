"""The lines of emitted files that pages include."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from opgen.kernels import KernelFamily
from opgen.project import Project


@dataclass(frozen=True)
class Excerpt:
    """Lines of an emitted file; they count from 1, and the last one is among them."""

    file: Path
    first: int
    last: int

    @property
    def language(self) -> str:
        """As highlighters call it."""
        return "python" if self.file.suffix == ".py" else "cpp"

    @property
    def length(self) -> int:
        """How many lines it has."""
        return self.last - self.first + 1


def emitted(project: Project, placeholder: str, member: str) -> Path | None:
    """The file that a template with a placeholder gives for one of its members; None where none is written."""
    for output in project.outputs:
        if f"{{{placeholder}}}" in str(output.template) and output.path.stem == member:
            file = project.root / "generated" / output.path
            return file if file.is_file() else None
    return None


def of_method(project: Project, family: str, method: str) -> Excerpt | None:
    """The dispatch of a storage method: its branch for each backend."""
    file = emitted(project, "storage", family)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file is not None else ():
        if file is not None and isinstance(node, ast.FunctionDef) and node.name == method and node.end_lineno:
            return Excerpt(file, node.lineno, node.end_lineno)
    return None


def of_functor(project: Project, family: KernelFamily, struct: str) -> Excerpt | None:
    """Return the code that computes a functor in the kernels of a family, with the comment above it."""
    file = emitted(project, "host" if family.host else "family", family.name)
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    opening = re.compile(rf"struct {struct}(Formulas)?\b|template <.*> using {struct}\b")
    first = next((number for number, line in enumerate(lines) if opening.match(line)), None)
    if file is None or first is None:
        return None
    last = lines.index("", first)
    while first and lines[first - 1].startswith("//") and "clang-format" not in lines[first - 1]:
        first -= 1
    return Excerpt(file, first + 1, last)
