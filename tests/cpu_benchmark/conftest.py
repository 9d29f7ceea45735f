from __future__ import annotations

import pytest

from benchmarks.cpu.results import Machine, Results, Row


@pytest.fixture
def results() -> Results:
    """Of 1 and 4 threads, with an op that only bf16 has and one that only the small size has."""
    machine = Machine("a <CPU>", 4, {"tallow": "0.1.0", "NumPy": "2.4.6", "PyTorch": "2.13.0", "oneDNN": None}, True)
    rows = [
        Row(1, "f32", 24, "add", 4e-3, 8e-3, 2e-3, family="elementwise"),
        Row(1, "f32", 24, "gelu", 5e-3, 2.5e-3, family="elementwise"),
        Row(1, "f32", 10, "add", 1e-6, 2e-6, 5e-7, family="elementwise"),
        Row(1, "f32", 10, "matmul", 2e-6, 3e-6, 1e-6, family="products"),
        Row(1, "bf16", 24, "add", 2e-3, 1.6e-2, family="elementwise"),
        Row(1, "bf16", 24, "cast to f32", 3e-3, 3e-3, family="casts"),
        Row(1, "bf16", 24, "gelu", 5e-3, 5e-3, family="elementwise"),
        Row(4, "f32", 24, "add", 1e-3, 4e-3, 2e-3, family="elementwise"),
        Row(4, "bf16", 24, "gelu", 1e-3, 1e-3, family="elementwise"),
    ]
    return Results("python -m benchmarks.cpu run --threads 1 --threads 4", machine, rows)
