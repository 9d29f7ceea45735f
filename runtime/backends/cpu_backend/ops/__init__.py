"""The ops of the CPU: by its own kernels, by oneDNN, and by NumPy."""
