"""Comparison of two specs: what is added, changed and removed, and what breaks callers."""
