"""Functions that are traced, fused to kernels, captured and replayed."""
