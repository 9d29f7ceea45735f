"""A module in a folder of its own."""
