"""One result for each element."""


def unary(op, x, *parameters):
    """An op of every element."""


def powf(x, alpha):
    """Every element to a power."""
    return x.library.bitcast(x, x.dtype)
