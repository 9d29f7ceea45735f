"""Time networks on tallow beside PyTorch and onnxruntime: `python -m benchmarks.networks --help`."""
