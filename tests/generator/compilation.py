"""A project with kernels, and compilers that are shell scripts: what they were asked is written down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from .project import Project

# The types of the small project's dtypes, and what its kernels call.
HEADER = """\
using uint8_t = unsigned char;
struct f16 {};
template <typename T> void apply() {}
"""
KERNELS = """\
doc: {name} each element.
headers: [{header}]
arguments:
  {name}:
    result: address
kernels:
  - name: "{name}_{{dtype}}"
    over: {{dtype: all}}
    arguments: {name}
    call: "apply<{{dtype}}>"
"""
# Says what it is given, then does what the source and the folder of the compilers tell it to.
COMPILER = """\
#!/bin/sh
tools=$(dirname "$0")
echo "$1" > "$tools/first_word"
for output; do :; done
if [ "$output" = --version ]; then
  echo "$(basename "$0") $(cat "$tools/version")"
  exit 0
fi
shift $(($# - 3)) # leaves: source -o output
source=$1
case $source in *.ll) cp "$source" "$output"; echo "constant $(basename "$0")" >> "$tools/log"; exit 0;; esac
target=$(basename "$output" | cut -d- -f1)
grep -qx "$(basename "$0") $target" "$tools/targets" || { echo "no such target" >&2; exit 1; }
case $source in */empty.hip) : > "$output"; exit 0;; esac
echo "start $(basename "$source" .hip) $target $(basename "$0") ${TOOLS-unset} ${MODE-unset}" >> "$tools/log"
echo "half of it" > "$output"
: > "$TMPDIR/aside"
if grep -q wait "$source"; then echo $$ >> "$tools/waiting"; sleep 60 & wait; fi
if grep -q slow "$source"; then sleep 0.3; fi
echo "end" >> "$tools/log"
if grep -q broken "$source"; then echo "$source:3:1: error: it is broken" >&2; exit 1; fi
cat "$tools/report" >&2
{ echo "$target"; cat "$source"; } > "$output"
"""


@dataclass(frozen=True)
class Compilation:
    """A project whose kernels are families `scale` and `shift`, for targets one, two and three."""

    project: Project
    tools: Path

    @property
    def kernels(self) -> Path:
        """The folder of the sources."""
        return self.project.output / "tallow" / "kernels"

    def run(self, *arguments: str) -> Result:
        """Run `opgen compile`."""
        return self.project.run("compile", *arguments)

    def succeed(self, *arguments: str) -> Result:
        """Run `opgen compile`, which must do it all."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result

    def install(self, compiler: str, *targets: str) -> None:
        """Put a compiler that knows these targets where it is looked for."""
        path = self.tools / compiler
        path.write_text(COMPILER, encoding="utf-8")
        path.chmod(0o755)
        with (self.tools / "targets").open("a", encoding="utf-8") as file:
            file.writelines(f"{compiler} {target}\n" for target in targets)

    def log(self) -> list[str]:
        """The compilations since the last call: family, target, compiler, and the environment that it saw."""
        path = self.tools / "log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        path.unlink(missing_ok=True)
        return sorted(line.removeprefix("start ") for line in lines if line.startswith(("start ", "constant ")))

    def built(self) -> list[str]:
        """The compilations since the last call, as target/family."""
        return sorted("/".join(reversed(line.split()[:2])) for line in self.log())

    def code(self) -> dict[str, bytes]:
        """Every file beside the sources that was made, with its content."""
        results = sorted(path for path in (self.kernels / "code").rglob("*") if path.is_file())
        return {path.relative_to(self.kernels / "code").as_posix(): path.read_bytes() for path in results}

    def record(self, name: str) -> dict[str, Any]:
        """Return the record of a code object."""
        record: dict[str, Any] = json.loads((self.kernels / "code" / f"{name}.json").read_bytes())
        return record

    def source(self, name: str, text: str) -> None:
        """Add a line to a source or a header."""
        folder = self.project.root / "runtime/kernels" if name.endswith(".hpp") else self.kernels
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(f"// {text}\n")

    def settings(self, **changes: object) -> None:
        """Change keys of `code_objects` in the backend's file."""
        path = self.project.root / "spec/backends/accelerator.yaml"
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        spec["code_objects"].update(changes)
        path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


SETTINGS: dict[str, Any] = {
    "targets": ["one", "two", "three"],
    "flags": ["-O3", "--for={target}"],
    "toolchains": {
        "first": {
            "install": "the first, from its makers",
            "compilers": ["$TOOLS/bin/first", "first"],
            "environment": {"MODE": "exact"},
            "flags": ["-first"],
        },
        "second": {"install": "the second, from a shop", "compilers": ["second-2", "second-1"], "flags": ["-second"]},
    },
}


@pytest.fixture
def compilation(small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilation:
    """The project, with the first of its two toolchains installed."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    for name in ("TOOLS", "MODE"):
        monkeypatch.delenv(name, raising=False)
    (tools / "version").write_text("1.0", encoding="utf-8")
    (tools / "report").touch()
    result = Compilation(small, tools)
    result.install("first", "one", "two", "three")
    path = small.root / "spec/backends/accelerator.yaml"
    spec = {**yaml.safe_load(path.read_text(encoding="utf-8")), "code_objects": SETTINGS}
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    (small.root / "spec/kernels").mkdir()
    result.kernels.mkdir(parents=True, exist_ok=True)
    # Names are looked up in the headers; sources are compiled from what was generated.
    (small.root / "templates/tallow/kernels/{family}.hip.j2").write_text("// apply\n", encoding="utf-8")
    headers = small.root / "runtime/kernels"
    headers.mkdir()
    for name, header in (("Scale", "common.hpp"), ("Shift", "other.hpp")):
        (headers / header).write_text(f"// {name}: kernels that nothing launches.\n{HEADER}", encoding="utf-8")
        text = KERNELS.format(name=name, header=header)
        (small.root / f"spec/kernels/{name.lower()}.yaml").write_text(text, encoding="utf-8")
        (result.kernels / f"{name.lower()}.hip").write_text(f'#include "{header}"\n', encoding="utf-8")
    with (headers / "common.hpp").open("a", encoding="utf-8") as stream:
        stream.write('#include "nested.hpp"\n')
    (headers / "nested.hpp").touch()
    return result
