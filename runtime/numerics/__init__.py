"""What expressions over arrays call, in NumPy and in the words of array libraries."""
