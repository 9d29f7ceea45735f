"""A family of storage methods."""
