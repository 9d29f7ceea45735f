"""Both sides of a launch agree: a compiler puts each field of a struct where the launcher packs it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

from tallow.kernels import arguments
from tallow.runtime.program.values import ArgumentStruct

from .conftest import KERNELS, absent

STRUCT = re.compile(r"^struct (\w+) \{\n((?:    \w+ \w+(?:\[\d+\])?;\n)+)\};$", re.MULTILINE)
FIELD = re.compile(r" (\w+)(?:\[\d+\])?;")
# A field of a packer: what is skipped before it, how many elements it has, and their type.
PACKED = re.compile(r"(x*)(\d*[A-Za-wyz])")


def packed(packer: ArgumentStruct) -> list[int]:
    """Where a packer puts each field, followed by its size, and the size of all of them."""
    indices, text = [], "="
    for skipped, field in PACKED.findall(packer.format.replace("P", "Q")):
        indices += [struct.calcsize(text + skipped), struct.calcsize(f"={field}")]
        text += skipped + field
    return [*indices, packer.size]


def constant(name: str) -> str:
    """Return the name of a struct's packer."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def test_fields_are_where_the_launcher_packs_them(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        absent("no g++; in Debian 'apt-get install g++'")
    structs = [actual for file in sorted(KERNELS.glob("*.hip")) for actual in STRUCT.findall(file.read_text("utf-8"))]
    lines = ["#include <cstddef>", "#include <cstdint>", "#include <cstdio>"]
    for name, fields in structs:
        lines += [f"struct {name} {{", fields + "};", f"const size_t places_of_{name}[] = {{"]
        lines += [
            *(f"    offsetof({name}, {field}), sizeof({name}::{field})," for field in FIELD.findall(fields)),
            f"    sizeof({name})}};",
        ]
    lines.append("int main() {")
    for name, _ in structs:
        lines.append(f'    std::printf("\\n{name}");')
        lines.append(f'    for (size_t place : places_of_{name}) std::printf(" %zu", place);')
    program = tmp_path / "places"
    program.with_suffix(".cpp").write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    subprocess.run([compiler, "-o", program, program.with_suffix(".cpp")], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    rows = map(str.split, output.splitlines()[1:])
    actual = {constant(name): [int(index) for index in indices] for name, *indices in rows}
    packers = {name: packer for name, packer in vars(arguments).items() if isinstance(packer, ArgumentStruct)}
    assert actual == {name: packed(packer) for name, packer in packers.items()}
