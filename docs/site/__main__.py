"""python -m docs.site FOLDER writes FOLDER/source, which Sphinx builds, and FOLDER/notes, for opgen reference."""

import shutil
import sys
from pathlib import Path

from opgen.cli import main as opgen
from opgen.matrix import cells
from opgen.project import read_spec

from docs.site import api, commands, names, pictures, plots, speeds
from docs.site.api import PACKAGE

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
# Where pages and their pictures are, below the repository; and what they only link to.
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/**/*.svg", "generated/docs/*", "spec/**/*",
         "tests/backends/*", "tests/hip_host/**/*")  # fmt: skip
LINKED = ("LICENSE", "README.md", "benchmarks", "examples", "generator", "runtime", "templates")


def stage(folder: Path) -> None:
    """Write what the site is built from, where it has changed."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    # All lies as in the repository, so that links between pages lead where they do there. Sphinx follows links of the
    # file system, and does not know pages that it finds so.
    for folder_of_pages in ("docs", "generated", "spec", "tests"):
        shutil.rmtree(source / folder_of_pages, ignore_errors=True)
    for file in (file for pattern in PAGES for file in ROOT.glob(pattern)):
        if file.is_dir() or file.is_relative_to(SITE):
            continue
        copy = source / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
        if file.suffix == ".md" and (text := file.read_text("utf-8")) != (drawn := pictures.inline(text, file.parent)):
            copy.write_text(drawn, encoding="utf-8")
    for page in SITE.glob("*.md"):
        _write(source / page.name, pictures.inline(page.read_text(encoding="utf-8"), ROOT))
    for name in LINKED:
        if not (source / name).is_symlink():
            (source / name).symlink_to(ROOT / name)
    _write(source / "commands.md", commands.page(opgen, "opgen"))
    _write(source / "names.md", names.page())
    for path, text in api.texts():
        _write(source / "api" / path, text)
    for op, text in _notes().items():
        _write(folder / "notes" / f"{op}.md", text)


def _notes() -> dict[str, str]:
    """Return what the page of each op shows besides the spec: a plot, names, speeds."""
    facts, spec, tables = names.facts(), read_spec(ROOT), speeds.read_tables(ROOT / "docs")
    curves = {
        functor.name: plots.picture(functor, plots.curves(spec, functor, facts.get(functor.name, {}).get("plot", {})))
        for functor in plots.plotted(spec)
    }
    notes = {}
    for op in dict.fromkeys(cell.op or cell.method for cell in cells(spec)):
        own = facts.get(op, {})
        parts = []
        if op in curves:
            parts.append(f'## Plot\n\n```{{raw}} html\n<figure class="wide">\n{curves[op]}</figure>\n```')
        if name := names.public_name(op):
            entry = f"The public name is {{py:obj}}`{name} <{PACKAGE}.{name}>`."
            others = names.line(name)
            line = f"{entry} {others}; see [all names](../../names.md)." if others else entry
            parts.append(f"## In other libraries\n\n{line}")
        parts.append(speeds.note(tables, [op, *own.get("timed", ())]))
        if text := "\n\n".join(filter(None, parts)):
            notes[op] = f"{text}\n"
    return notes


def _write(file: Path, text: str) -> None:
    """Write a file if it changes, so that Sphinx reads only what did."""
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
