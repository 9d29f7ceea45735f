"""What is of ROCm alone: its driver, its compiler and its libraries."""
