"""The CUDA backend: its driver, its compiler and its libraries."""
