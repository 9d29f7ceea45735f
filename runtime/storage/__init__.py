"""What storages share: plans of their calls, and weights in blocks."""
