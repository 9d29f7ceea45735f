"""Stage 7: how emitted Python is laid out. Templates lay out statements; ruff breaks lines and sorts imports."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from opgen.cache.memo import persistent
from opgen.problem import Refusal
from opgen.views.python import LINE_LENGTH

# Imports that nothing uses go, and conditions left empty by it: a template lists what any of its outputs may need. The
# others are sorted afterwards, so that what fits into a line is in one.
_RULES = ("F401,TC005", "I,RUF022")
_SETTINGS = (f"--line-length={LINE_LENGTH}", "--target-version=py311", "--isolated", "--no-cache")

# The layouts of the last run. That of a module depends on nothing else than its text and the names of own packages.
_layouts: dict[tuple[PurePosixPath, str, str], str] = persistent("layouts", {})


class FormatError(Refusal):
    """ruff cannot format what was emitted; the message is its own."""


def formatted(texts: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, str]:
    """The texts by their paths, those of Python as `ruff format` lays them out."""
    python = {path: text for path, text in texts.items() if path.suffix == ".py"}
    # Else ruff looks for the modules of a package, which need not be among those that are laid out.
    first_party = f"lint.isort.known-first-party={json.dumps(sorted({path.parts[0] for path in python}))}"
    keys = {path: (path, text, first_party) for path, text in python.items()}
    new = _laid_out({path: text for path, text in python.items() if keys[path] not in _layouts}, first_party)
    layouts = {path: new[path] if path in new else _layouts[key] for path, key in keys.items()}
    _layouts.clear()
    _layouts.update((keys[path], layout) for path, layout in layouts.items())
    return {path: layouts.get(path, text) for path, text in texts.items()}


def _laid_out(texts: Mapping[PurePosixPath, str], first_party: str) -> dict[PurePosixPath, str]:
    with tempfile.TemporaryDirectory(prefix="opgen-") as name:
        folder = Path(name)
        python = {path: folder / path for path in texts}
        for path, file in python.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(texts[path], encoding="utf-8", newline="")
        if python:
            for rules in _RULES:
                _ruff(
                    "check",
                    f"--select={rules}",
                    "--fix",
                    "--exit-zero",
                    f"--config={first_party}",
                    *_SETTINGS,
                    str(folder),
                )
            _ruff("format", *_SETTINGS, str(folder))
        return {path: file.read_bytes().decode() for path, file in python.items()}


def _ruff(*arguments: str) -> None:
    # The tests on a GPU read the spec with the Python of the machine, which may have no ruff.
    from ruff import find_ruff_bin

    result = subprocess.run([find_ruff_bin(), *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        reason = (result.stderr or result.stdout).strip()
        raise FormatError(f"ruff cannot format what was emitted: {reason}; report this")
