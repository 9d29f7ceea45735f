"""What every module stands on: errors, shapes, layouts, and what callers pass."""
