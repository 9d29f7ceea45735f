"""What several GPUs of one host do together: `python -m benchmarks.distributed --help`."""
