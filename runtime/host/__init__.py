"""NumPy in the memory of the host: elements converted, numbers as arrays, and weights in blocks."""
