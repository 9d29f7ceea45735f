"""Benchmarks every family of ops on a GPU against PyTorch and CuPy: `python -m benchmarks.gpu --help`."""
