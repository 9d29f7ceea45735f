"""Tools."""

__all__ = ["hammer", "saw"]

hammer = saw = None
