"""Finds kernels by name and launches them: prebuilt code objects where the target has them, else compiled here."""

import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .....kernels.arguments import COOPERATIVE, FAMILIES
from .....kernels.constants import BLOCK_SIZE
from ....base.error import InvalidArgument
from ....kernels import code_object
from ....kernels.code_cache import CodeCache, Loaded, cache_folder
from ..driver import fork, slow_path
from ..driver.error import DriverError, InvalidKernel
from ..driver.gpu_driver import GpuDriver
from ..driver.grid import MAX_BLOCKS
from ..driver.launch import Function
from .progress import progress

if TYPE_CHECKING:
    from .includes import Files

# A kernel in an emitted source, and its name.
_KERNEL: Final = re.compile(r"^TALLOW_KERNEL\((\w+), .*\n", re.MULTILINE)


class Kernels:
    """The kernels of one device. A kernel is looked up once; a launch then is one dict access and one call."""

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self.cache = open_cache()
        self._functions: dict[str, Function] = {}
        self._prebuilt: dict[str, Any] = {}
        self._lock = threading.Lock()

    def launch(self, family: str, name: str, blocks: int, arguments: bytes, shared_bytes: int = 0) -> None:
        """Enqueue kernel `name` of a family on `blocks` blocks, or as many as are possible; none launch nothing.

        `arguments` are the packed bytes of the kernel's one struct; `shared_bytes` are those of GpuDriver.function. The
        first launch of a kernel finds it and may have to compile it: that raises CompilationFailed, InvalidKernel, or
        BackendUnavailable where no compiler is there.
        """
        if blocks == 0:
            return
        function = self.function(family, name, len(arguments), shared_bytes)
        function(blocks if blocks < MAX_BLOCKS else MAX_BLOCKS, arguments)

    def has(self, family: str) -> bool:
        """Return True if the device has what the kernels of a family need."""
        return set(self._driver.facts.has).issuperset(FAMILIES[family])

    def function(self, family: str, name: str, argument_size: int, shared_bytes: int = 0) -> Function:
        """A function that enqueues a kernel on at most MAX_BLOCKS blocks: see `launch`."""
        function = self._functions.get(name)
        return self._find(family, name, argument_size, shared_bytes) if function is None else function

    def _find(self, family: str, name: str, argument_size: int, shared_bytes: int) -> Function:
        if slow_path.required:
            fork.require_own()
        with self._lock:
            function = self._functions.get(name)
            if function is None:
                module = self._prebuilt_module(family)
                if module is None:
                    module = self._compiled(family, name, lambda code: self._driver.load(code, name))
                kernel = name, self._driver.queue, BLOCK_SIZE, argument_size, shared_bytes
                function = module.cooperative_function(*kernel) if family in COOPERATIVE else module.function(*kernel)
                self._functions[name] = function
        return function

    def _prebuilt_module(self, family: str) -> Any:
        if family not in self._prebuilt:
            path = code_object.path_of(self._driver.target, family)
            code = code_object.current(path)
            self._prebuilt[family] = None if code is None else self._driver.load(code, str(path))
        return self._prebuilt[family]

    def _compiled(self, family: str, name: str, load: Callable[[bytes], Loaded]) -> Loaded:
        source = one_kernel(family, name)
        return compiled(self.cache, self._driver, source, name, load, self._driver.package_options)


def compiled(
    code_cache: CodeCache,
    driver: GpuDriver,
    source: str,
    name: str,
    load: Callable[[bytes], Loaded],
    options: Sequence[str] = (),
    files: "Files | None" = (),
) -> Loaded:
    """The result of `load` for the code object of a source, which may include the kernels' headers, and `files`.

    It comes from the cache where that has it, and always from the compiler where the files are unknown.
    """

    def compile_code() -> bytes:
        with progress.compiling(name, driver.target):
            return driver.compile(source, name, headers(), options)

    if files is None:
        return load(compile_code())
    made_of = (source, *headers().values(), *driver.compile_options(options), driver.compiler_version, *files)
    return code_cache.get(made_of, compile_code, load)


def open_cache() -> CodeCache:
    """The cache of kernels that were compiled here."""
    return CodeCache(cache_folder(), is_refusal)


def is_refusal(error: Exception) -> bool:
    """Whether the driver refused code, where it may take other code."""
    if isinstance(error, DriverError):
        return not (error.permanent or error.out_of_memory)
    return isinstance(error, InvalidArgument)


def one_kernel(family: str, name: str) -> str:
    """Return the source of a family with one of its kernels: all kernels take far longer to compile."""
    text = _composed.get(family) or _source(family)
    if name not in _KERNEL.findall(text):
        raise InvalidKernel(name, f"{family}.hip of the package does not have it; reinstall tallow")
    return _KERNEL.sub(lambda kernel: kernel[0] if kernel[1] == name else "", text)


# The sources of families that were composed at run time.
_composed: Final[dict[str, str]] = {}


def compose(base: str, family: str, text: str) -> None:
    """Define `family` as the kernels of a text that extends the source of a family without kernels."""
    _composed[family] = f"{_source(base)}\n{text}"


@cache
def _source(family: str) -> str:
    return _read(code_object.SOURCES / f"{family}.hip")


@cache
def headers() -> dict[str, str]:
    """The texts of the headers that kernels include, by name."""
    folders = (code_object.SOURCES, *code_object.HEADERS)
    paths = sorted((path for folder in folders for path in folder.glob("*.hpp")), key=lambda path: path.name)
    return {path.name: _read(path) for path in paths}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidKernel(path.name, f"{error}; reinstall tallow") from error
