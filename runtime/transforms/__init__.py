"""Transforms of functions: `vmap`, which runs one on a batch, and derivatives."""
