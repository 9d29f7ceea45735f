"""NumPy's functions on tensors: what `numpy.f(tensor)` calls through NumPy's protocols."""
