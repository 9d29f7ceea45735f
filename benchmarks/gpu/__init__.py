"""Times every family of ops on a GPU beside PyTorch and CuPy: `python -m benchmarks.gpu --help`."""
