"""Time tallow on the CPU beside PyTorch and NumPy: `python -m benchmarks.cpu --help`."""
