"""Benchmarks of several GPUs of one host: `python -m benchmarks.distributed --help`."""
