"""A decoder of GPT-2's size on tallow and on PyTorch: `python -m benchmarks.model --help`."""
