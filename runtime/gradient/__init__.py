"""Gradients: how calls of storages are recorded, and how gradients go back through them."""
