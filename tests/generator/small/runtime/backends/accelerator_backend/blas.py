"""The library of the accelerator."""


class Blas:
    """The library, open."""
