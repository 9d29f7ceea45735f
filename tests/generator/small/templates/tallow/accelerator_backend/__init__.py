"""The accelerator."""
