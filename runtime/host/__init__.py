"""NumPy on host memory: conversions of elements, numbers as arrays, and block-quantized weights."""
