"""Objects that are neither copied nor pickled."""

from typing import Any, ClassVar, NoReturn

from .error import InvalidArgument


class Unpicklable:
    """An object of a device or of this process, which `copy` and `pickle` refuse with InvalidArgument."""

    __slots__ = ()

    _copy_advice: ClassVar[str]
    """The text of the error's advice."""

    def __reduce_ex__(self, _: Any) -> NoReturn:
        reason = f"an object of class {type(self).__name__} is neither copied nor pickled"
        raise InvalidArgument(type(self).__name__, f"{reason}; {self._copy_advice}")
