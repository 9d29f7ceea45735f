"""Small helpers that know nothing of tensors."""
