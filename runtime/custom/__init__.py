"""Kernels and ops that users write."""
