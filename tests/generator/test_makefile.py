"""The Makefile in a folder whose path has a space."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from .project import REPOSITORY


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_paths_with_spaces_stay_whole(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    shutil.copy(REPOSITORY / "Makefile", folder)
    (folder / "pyproject.toml").touch()
    command = ["make", "--dry-run", "PYTHON=/opt/my python/bin/python3", "test", "test-gpu", "bench-gpu"]
    # A make that runs the tests would have this one name the folders that it enters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    words = [word for line in said.replace("\\\n", " ").splitlines() for word in shlex.split(line)]
    assert f"ROCM_PATH={folder}/build/hip_host" in words
    assert f"TALLOW_CACHE={folder}/build/kernel_cache" in words
    assert any(word.startswith(f"PYTHONPATH={folder}/generated:{folder}/generator") for word in words)
    assert ".ci/python '/opt/my python/bin/python3')" in said
    # Nothing else names the folder, so nothing is cut in two.
    assert all(word.split("=")[0] in ("ROCM_PATH", "TALLOW_CACHE", "PYTHONPATH") for word in words if "a b" in word)
    assert not any(word.startswith(str(tmp_path / "a")) and "a b" not in word for word in words)
