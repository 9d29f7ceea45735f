"""What the change of a spec means: what is added, changed and removed, and what of it breaks callers."""
