"""How fast tallow is beside other libraries."""
