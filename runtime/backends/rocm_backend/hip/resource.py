"""What every owner of a HIP handle shares: see `Resource`."""

from typing import ClassVar

from ...gpu_backend.driver.resource import Resource
from .error import HipClosed


class HipResource(Resource):
    """A resource whose use after `close()` raises `HipClosed`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed
