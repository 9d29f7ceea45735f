"""The tests of `make test-gpu` with a Python that has pytest, but not what opgen is made with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_without_the_packages_of_opgen_the_tests_are_collected_and_skipped() -> None:
    program = """
import sys, pytest
for package in ("click", "jinja2", "ruff", "yaml"):
    sys.modules[package] = None
sys.exit(pytest.main(["-p", "no:cacheprovider", "-q", "-rs", *sys.argv[1:]]))
"""
    indices = [TESTS / "backends/test_backends.py", TESTS / "conformance/test_edges.py"]
    command = [sys.executable, "-c", program, *map(str, indices)]
    result = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 5, result.stdout + result.stderr  # no test is left
    assert "test_backends.py" in result.stdout and "could not import 'click'" in result.stdout
    assert "error" not in result.stdout.lower()


def test_without_ruff_the_spec_is_read_and_the_tests_of_its_edges_run() -> None:
    program = """
import sys, pytest
sys.modules["ruff"] = None
sys.exit(pytest.main(["-p", "no:cacheprovider", "-q", "-k", "relu", *sys.argv[1:]]))
"""
    command = [
        sys.executable,
        "-c",
        program,
        str(TESTS / "backends/test_backends.py"),
        str(TESTS / "conformance/test_edges.py"),
    ]
    result = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
