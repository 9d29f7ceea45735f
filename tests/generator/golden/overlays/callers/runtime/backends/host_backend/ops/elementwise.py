"""One result for each element."""


def unary(op, x, *parameters):
    """An op of every element."""


def elu(op, x, alpha=1.0):
    """The op ELU of every element."""


def powf(x, alpha):
    """Every element to a power."""


def scale(x, factor, offset):
    """Every element times a factor, plus an offset."""


def pair(op, x, y):
    """An op of every pair, in place."""
