"""Compilation of kernels at run time, by the calls of a vendor's compiler that opgen emits from spec/drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from ....base.error import BackendUnavailable, CompilationFailed
from .error import LibraryError
from .target import find_target, target_of


class RunTimeCompiler:
    """The compiler of a backend on GPUs.

    `calls` is the module of its calls: a function for each operation of the family's `compiler`. Kernels for a target
    that the compiler does not know are compiled for the generic target of the GPU's family.
    """

    def __init__(self, calls: Any, driver_version: Callable[[], str], wave_size: int) -> None:
        self.calls = calls
        self._driver_version = driver_version
        self._wave_size = wave_size
        # By target that the compiler does not know, the generic one.
        self._generic: dict[str, str] = {}

    @cached_property
    def version(self) -> str:
        """The compiler and its version; BackendUnavailable where it is missing."""
        return str(self.calls.version_text(self._numbers, self._driver_version))

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        has = self.calls.has
        missing = [] if has is None else [name for name in self.calls.FUNCTIONS if not has(name)]
        if missing:
            raise self._unavailable(f"does not load or lacks {', '.join(missing)}")
        try:
            return tuple(self.calls.version())
        # What bindings raise where the library, or a function of it, is not there.
        except RuntimeError as error:
            raise self._unavailable(f"does not load ({error})") from error

    def _unavailable(self, problem: str) -> BackendUnavailable:
        calls = self.calls
        reason = (
            f"kernels cannot be compiled, since {calls.NAME} {problem}; {calls.INSTALL}, or install a tallow with"
            " kernels that are compiled for this GPU"
        )
        return BackendUnavailable(calls.BACKEND, reason)

    def options(self, target: str) -> tuple[str, ...]:
        """The options for a target. The kernels' arithmetic is exact where the compiler contracts nothing."""
        is_generic = any(each.generic == target for each in self.calls.TARGETS)
        return tuple(self.calls.options(target, self.define(target), is_generic))

    def define(self, target: str) -> str:
        """Return the option by which the kernels' headers know the facts of a target."""
        return f"-D{target_of(self.calls.TARGETS, target, self._wave_size).macro}"

    @property
    def package_options(self) -> tuple[str, ...]:
        """Further options for kernels of the package, which need less of the compiler than those of users."""
        further = self.calls.package_options
        return () if further is None else tuple(further(self._numbers))

    def with_options(self, target: str, options: Sequence[str]) -> tuple[str, ...]:
        """The options for a target and those of a user, which replace those that they contradict."""
        chosen = {_key(option) for option in options}
        return (*(option for option in self.options(target) if _key(option) not in chosen), *options)

    def compile(
        self, source: str, name: str, headers: Mapping[str, str], target: str, options: Sequence[str] = ()
    ) -> bytes:
        """The code object of a source, which messages call `name`; `headers` are texts by the name that it includes.

        Raises CompilationFailed with the compiler's messages, BackendUnavailable where the compiler is missing.
        """
        try:
            return self._compile(source, name, headers, self._generic.get(target, target), options)
        except CompilationFailed:
            facts = find_target(self.calls.TARGETS, target)
            generic = None if facts is None else facts.generic
            if generic is None or target in self._generic or self._knows(target) or not self._knows(generic):
                raise
        self._generic[target] = generic
        return self._compile(source, name, headers, generic, options)

    def _knows(self, target: str) -> bool:
        """Return True if it compiles anything for a target."""
        try:
            self._compile("", "empty", {}, target, ())
        except CompilationFailed:
            return False
        return True

    def _compile(
        self, source: str, name: str, headers: Mapping[str, str], target: str, options: Sequence[str]
    ) -> bytes:
        calls, version = self.calls, self.version
        texts = [text.encode() for text in headers.values()]
        names = [header.encode() for header in headers]
        program = calls.create(source.encode(), f"{name}.hip".encode(), texts, names, name)
        try:
            try:
                calls.compile(program, [option.encode() for option in self.with_options(target, options)])
            except LibraryError as error:
                raise CompilationFailed(name, target, version, self._messages(program) or error.status) from None
            code = bytearray(calls.code_size(program, name))
            calls.code(program, code, name)
            return bytes(code)
        finally:
            with suppress(LibraryError):
                calls.destroy(program)

    def _messages(self, program: Any) -> str:
        log = bytearray(self.calls.log_size(program))
        if log:
            self.calls.log(program, log)
        return log.rstrip(b"\0").decode(errors="replace").strip()


def _key(option: str) -> str:
    """The setting of an option: "std" of "--std=c++17"."""
    return option.lstrip("-").partition("=")[0]
