"""What is of CUDA alone: its driver, its compiler and its libraries."""
