"""What ops are given."""


class Operand:
    """A storage and its layout."""
