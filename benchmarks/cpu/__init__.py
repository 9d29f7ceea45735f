"""Benchmark tallow on the CPU against PyTorch and NumPy: `python -m benchmarks.cpu --help`."""
