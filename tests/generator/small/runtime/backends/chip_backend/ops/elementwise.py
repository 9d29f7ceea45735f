"""One result for each element."""


def unary(op, x, *parameters):
    """An op of every element."""


def powf(x, alpha):
    """Every element to a power."""


def negate(library, op, x):
    """The negative by a library, or None for what it refuses."""
