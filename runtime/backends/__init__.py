"""The backends, a subpackage of each and of each family, and what all of them provide."""
