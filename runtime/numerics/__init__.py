"""Functions that array expressions call, in NumPy and in the words of array libraries."""
