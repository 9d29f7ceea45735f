"""Benchmarks of tallow against other libraries."""
