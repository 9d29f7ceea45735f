"""The emitted kernels and the HIP runtime for the CPU are laid out as .clang-format says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The sources are laid out as the headers are.
STYLE = ", ".join(line for line in (ROOT / "runtime/kernels/.clang-format").read_text().splitlines() if line[0] != "#")
FOLDERS = ("generated/tallow/kernels", "runtime/kernels", "tests/hip_host/source", "tests/hip_host/include/hip")


@pytest.mark.parametrize("folder", FOLDERS)
def test_clang_format_would_change_nothing(folder: str):
    tool = shutil.which("clang-format", path=str(Path(sys.executable).parent))
    assert tool, "clang-format is a development dependency; pip install -e '.[dev]'"
    files = [path for path in sorted((ROOT / folder).iterdir()) if path.suffix in (".hip", ".hpp", ".h", ".cpp")]
    assert files
    style = [f"--style={{{STYLE}}}"] if "generated" in folder else []
    done = subprocess.run([tool, "--dry-run", "-Werror", *style, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
