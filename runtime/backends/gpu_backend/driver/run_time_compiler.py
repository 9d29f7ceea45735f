"""Compilation at run time by hiprtc or NVRTC, whose functions have the same names but for how they begin."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from .....kernels.targets import Target
from ....base.error import CompilationFailed
from .error import LibraryError
from .target import target_of


class RunTimeCompiler(ABC):
    """A compiler that is a library: a module of functions, each of which returns a tuple that its status leads."""

    prefix: ClassVar[str]
    """How its functions begin, such as "nvrtc"."""
    code: ClassVar[str]
    """What its functions call the compiled code."""
    advice: ClassVar[str]
    """What to do where a call fails that no source makes fail."""

    targets: ClassVar[Sequence[Target]]
    """The targets of the backend."""

    def __init__(self, driver_version: Callable[[], str], library: Any, wave_size: int) -> None:
        self.driver_version = driver_version
        self.library = library
        self._wave_size = wave_size

    @property
    @abstractmethod
    def version(self) -> str:
        """The compiler and its version; BackendUnavailable where it is missing."""

    @abstractmethod
    def options(self, target: str) -> tuple[str, ...]:
        """The options for a target. The kernels' arithmetic is exact where the compiler contracts nothing."""

    def define(self, target: str) -> str:
        """Return the option by which the kernels' headers know the facts of a target."""
        return f"-D{target_of(self.targets, target, self._wave_size).macro}"

    @property
    def package_options(self) -> tuple[str, ...]:
        """What it is told besides of kernels of the package, which need less of it than those of users."""
        return ()

    def with_options(self, target: str, options: Sequence[str]) -> tuple[str, ...]:
        """What it is told where a user tells it something too, which takes the place of what it contradicts."""
        chosen = {_key(option) for option in options}
        return (*(option for option in self.options(target) if _key(option) not in chosen), *options)

    def compile(
        self, source: str, name: str, headers: Mapping[str, str], target: str, options: Sequence[str] = ()
    ) -> bytes:
        """The code object of a source, which messages call `name`; `headers` are texts by the name that it includes.

        Raises CompilationFailed with the compiler's messages, BackendUnavailable where the compiler is missing.
        """
        version = self.version
        texts = [text.encode() for text in headers.values()]
        names = [header.encode() for header in headers]
        program = self.call("CreateProgram", source.encode(), f"{name}.hip".encode(), len(headers), texts, names)
        try:
            given = [option.encode() for option in self.with_options(target, options)]
            (status,) = self._function("CompileProgram")(program, len(given), given)
            if status:
                raise CompilationFailed(name, target, version, self._messages(program) or status.name)
            code = bytearray(self.call(f"Get{self.code}Size", program))
            self.call(f"Get{self.code}", program, code)
            return bytes(code)
        finally:
            self.destroy(program)

    def call(self, name: str, *arguments: Any) -> Any:
        """What a function gives besides its status: None, a value or a tuple of several. Raises LibraryError."""
        status, *values = self._function(name)(*arguments)
        if status:
            raise LibraryError(self.prefix + name, status.name, self.advice)
        if len(values) > 1:
            return tuple(values)
        return values[0] if values else None

    def destroy(self, program: Any) -> None:
        """Give a program back."""
        self._function("DestroyProgram")(program)

    def _function(self, name: str) -> Any:
        return getattr(self.library, self.prefix + name)

    def _messages(self, program: Any) -> str:
        log = bytearray(self.call("GetProgramLogSize", program))
        if log:
            self.call("GetProgramLog", program, log)
        return log.rstrip(b"\0").decode(errors="replace").strip()


def _key(option: str) -> str:
    """What an option sets: "std" of "--std=c++17"."""
    return option.lstrip("-").partition("=")[0]
