"""The parts that are specific to ROCm: its driver, its compiler and its libraries."""
