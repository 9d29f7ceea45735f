"""The errors of the package."""


class InvalidLayout(Exception):
    """A layout that an op cannot have."""


class ShapeMismatch(Exception):
    """Two layouts whose shapes should be one."""


class InvalidArgument(Exception):
    """An argument that an op cannot have."""


class CaptureError(Exception):
    """A call that a graph cannot hold."""


class OutOfReach(Exception):
    """What nothing reaches."""
