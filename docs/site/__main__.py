"""python -m docs.site FOLDER writes FOLDER/source, which Sphinx builds, and FOLDER/notes, for opgen reference."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from opgen.cli import main as opgen
from opgen.matrix import cells
from opgen.project import read_spec

from docs.site import api, commands, pictures, plots, speeds

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
# Where pages and their pictures are, below the repository; and what they only link to.
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/**/*.svg", "generated/docs/*", "spec/**/*",
         "tests/backends/*", "tests/hip_host/**/*")  # fmt: skip
LINKED = ("LICENSE", "README.md", "benchmarks", "examples", "generator", "runtime", "templates")
LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch", "candle": "Candle"}


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
            shutil.copystat(file, copy)
    for page in SITE.glob("*.md"):
        shutil.copy2(page, source)
    for name in LINKED:
        if not (source / name).is_symlink():
            (source / name).symlink_to(ROOT / name)
    facts: dict[str, dict[str, Any]] = yaml.safe_load((SITE / "ops.yaml").read_text(encoding="utf-8"))
    _write(source / "commands.md", commands.page(opgen, "opgen"))
    _write(source / "names.md", _names(facts))
    for path, text in api.texts():
        _write(source / "api" / path, text)
    for name, text in _notes(facts).items():
        _write(folder / "notes" / f"{name}.md", text)


def _names(facts: Mapping[str, Mapping[str, Any]]) -> str:
    head = ["tallow", *LIBRARIES.values()]
    rows = []
    for op, own in sorted(facts.items()):
        names = [f"`{own[library]}`" if library in own else "–" for library in LIBRARIES]
        rows.append([f"[{op}](reference/ops/{op}.md)", *names])
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    text = (
        "What tallow, NumPy, PyTorch and Candle call an op. NumPy's names are below `numpy`, PyTorch's below `torch`; "
        "Candle's are methods of `Tensor`, or paths below `candle_nn`. A dash means that there is no single function."
    )
    return "\n".join(["# Names in other libraries", "", text, "", *table, ""])


def _notes(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What pages of ops say besides what the spec does: a plot, names, speeds."""
    spec, tables = read_spec(ROOT), speeds.read_tables(ROOT / "docs")
    pictures = {
        functor.name: plots.picture(functor, plots.curves(spec, functor, facts.get(functor.name, {}).get("plot", {})))
        for functor in plots.plotted(spec)
    }
    notes = {}
    for op in dict.fromkeys(cell.op or cell.method for cell in cells(spec)):
        own = facts.get(op, {})
        parts = []
        if op in pictures:
            parts.append(f"## Plot\n\n```{{raw}} html\n{pictures[op]}```")
        names = [f"{library} `{own[key]}`" for key, library in LIBRARIES.items() if key in own]
        parts += [f"## In other libraries\n\n{', '.join(names)}; see [all names](../../names.md)."] if names else []
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
