"""Shared by all storages: plans of their calls, and block-quantized weights."""
