"""Errors that only a GPU backend raises. Those of every backend are in `tallow.error`."""

from typing import ClassVar, Self

from ....base.error import TallowError


class DriverError(TallowError, RuntimeError):
    """A call of the vendor's driver failed.

    `call` is the function, `name` and `code` are the driver's own ("hipErrorOutOfMemory", 2), `detail` says what the
    call was about.
    """

    unrecoverable: ClassVar[frozenset[str]] = frozenset()
    """The names of those after which every later call on the device fails too."""
    memory_exhausted: ClassVar[str] = ""
    """The name of the error that means that device memory is exhausted."""

    def __init__(self, call: str, name: str, code: int, detail: str = "") -> None:
        super().__init__(call, name, code, detail)
        self.call = call
        self.name = name
        self.code = code
        self.detail = detail

    def about(self, detail: str) -> Self:
        """Return this error with a detail that says what the call was about."""
        return type(self)(self.call, self.name, self.code, detail)

    @property
    def permanent(self) -> bool:
        """Whether every later call on the device fails too, until a new process opens it."""
        return self.name in self.unrecoverable

    @property
    def recoverable(self) -> bool:
        """Whether later calls on the device can succeed."""
        return not self.permanent

    @property
    def out_of_memory(self) -> bool:
        """Whether the call failed for want of device memory."""
        return self.name == self.memory_exhausted

    def __str__(self) -> str:
        about = f" ({self.detail})" if self.detail else ""
        advice = "" if self.recoverable else "; the device is lost to this process: start a new one"
        return f"{self.call}{about}: {self.name}, code {self.code}{advice}"


class Closed(TallowError, ValueError):
    """Something was used after it was closed; `what` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is closed; use it before close() or inside its with block"


class InvalidKernel(TallowError, RuntimeError):
    """A kernel cannot be taken from the package: a file is missing or is not what it should be."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(kernel, reason)
        self.kernel = kernel
        self.reason = reason

    def __str__(self) -> str:
        return f"kernel {self.kernel}: {self.reason}"


class LibraryError(TallowError, RuntimeError):
    """A call of a vendor's library failed.

    `status` is its name for the reason, `detail` says what the call was about.
    """

    def __init__(self, call: str, status: str, advice: str, detail: str = "") -> None:
        super().__init__(call, status, advice, detail)
        self.call = call
        self.status = status
        self.advice = advice
        self.detail = detail

    def __str__(self) -> str:
        about = f" ({self.detail})" if self.detail else ""
        return f"{self.call}{about}: {self.status}; {self.advice}"
