"""Errors that only a GPU backend raises. Those of every backend are in `tallow.error`."""

from ..error import TallowError


class CompilationFailed(TallowError, RuntimeError):
    """A kernel does not compile here; `log` is what the compiler wrote."""

    def __init__(self, kernel: str, target: str, compiler: str, log: str) -> None:
        super().__init__(kernel, target, compiler, log)
        self.kernel = kernel
        self.target = target
        self.compiler = compiler
        self.log = log

    def __str__(self) -> str:
        return (
            f"{self.compiler} does not compile kernel {self.kernel} for {self.target}; where it does not know the"
            f" target, install a newer one, else reinstall tallow. It wrote:\n{self.log}"
        )


class InvalidKernel(TallowError, RuntimeError):
    """A kernel cannot be taken from the package: a file is missing or is not what it should be."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(kernel, reason)
        self.kernel = kernel
        self.reason = reason

    def __str__(self) -> str:
        return f"kernel {self.kernel}: {self.reason}"


class LibraryError(TallowError, RuntimeError):
    """A call of a vendor's library failed; `status` is its name for the reason."""

    def __init__(self, call: str, status: str, advice: str) -> None:
        super().__init__(call, status, advice)
        self.call = call
        self.status = status
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.call}: {self.status}; {self.advice}"
