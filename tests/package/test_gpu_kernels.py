"""Where a kernel comes from: shipped, from the disk, or compiled."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tallow.runtime.backends.gpu_backend.driver.error import InvalidKernel
from tallow.runtime.backends.gpu_backend.driver.grid import MAX_BLOCKS, blocks_for
from tallow.runtime.backends.gpu_backend.execute import kernels as kernels_module
from tallow.runtime.backends.gpu_backend.execute import progress as progress_module
from tallow.runtime.backends.gpu_backend.execute.kernels import Kernels, one_kernel
from tallow.runtime.backends.gpu_backend.execute.progress import CompileProgress
from tallow.runtime.base.error import CompilationFailed
from tallow.runtime.kernels import code_object

SOURCE = """// Doubles.
#include "types.hpp"
struct Doubling { uint64_t address; };
TALLOW_KERNEL(double_f32, Doubling, twice<float>)
TALLOW_KERNEL(double_f64, Doubling, twice<double>)

} // namespace tallow
"""


@dataclass
class RecordingDriver:
    """A driver whose code objects are their sources, and whose kernels record their launches."""

    target: str = "gfx90a"
    options: tuple[str, ...] = ("-O3",)
    compiler_version: str = "hiprtc 9.0"
    package_options: tuple[str, ...] = ()
    compiled: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    launched: list[tuple] = field(default_factory=list)
    error: Exception | None = None

    def compile_options(self, options=()):
        return (*self.options, *options)

    def compile(self, source, name, headers, options=()):
        if self.error is not None:
            raise self.error
        assert list(headers) == ["types.hpp"]
        self.compiled.append(name)
        return source.encode()

    queue = None

    def load(self, code, name):
        self.loaded.append(name)
        return RecordingModule(self, code)


@dataclass
class RecordingModule:
    driver: RecordingDriver
    code: bytes

    def function(self, name, queue, block, argument_size, shared_bytes):
        assert name.encode() in self.code
        return lambda blocks, arguments: self.driver.launched.append((name, blocks, block, shared_bytes, arguments))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The sources of a package with one family."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "doubling.hip").write_text(SOURCE)
    (folder / "types.hpp").write_text("#pragma once\n")
    monkeypatch.setattr(code_object, "SOURCES", folder)
    monkeypatch.setattr(code_object, "HEADERS", (folder,))
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path / "cache"))
    caches = (kernels_module._source, kernels_module.headers)
    for cache in caches:
        cache.cache_clear()
    yield folder
    for cache in caches:
        cache.cache_clear()


def test_one_kernel_of_a_family(package):
    source = one_kernel("doubling", "double_f64")
    assert "double_f32" not in source
    assert SOURCE.replace(source.partition("} // namespace")[2], "").startswith("// Doubles.")
    assert source.count("TALLOW_KERNEL(") == 1
    assert "struct Doubling" in source
    assert source.endswith("} // namespace tallow\n")


def test_a_kernel_is_compiled_alone_and_once(package):
    driver = RecordingDriver()
    kernels = Kernels(driver)
    for _ in range(3):
        kernels.launch("doubling", "double_f32", 7, b"12345678", 98304)
    assert driver.compiled == driver.loaded == ["double_f32"]
    assert driver.launched == [("double_f32", 7, 256, 98304, b"12345678")] * 3


def test_no_blocks_launch_nothing(package):
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 0, b"")
    assert not driver.compiled
    assert not driver.launched


def test_a_grid_stays_below_two_to_the_32_threads(package):
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1 << 40, b"")
    assert driver.launched[0][1] == MAX_BLOCKS
    assert MAX_BLOCKS * 256 < 1 << 32 <= (MAX_BLOCKS + 1) * 256


@pytest.mark.parametrize(
    ("count", "itemsize", "packs", "blocks"),
    [(0, 4, 1, 0), (1, 4, 1, 1), (1024, 4, 1, 1), (1025, 4, 1, 2), (2048, 4, 2, 1), (4097, 1, 1, 2)],
)
def test_blocks(count, itemsize, packs, blocks):
    assert blocks_for(count, itemsize, packs) == blocks


def test_the_disk_comes_before_the_compiler(package):
    Kernels(RecordingDriver()).launch("doubling", "double_f32", 1, b"")
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert (driver.compiled, driver.loaded) == ([], ["double_f32"])


@pytest.mark.parametrize(
    "change",
    [
        {"target": "gfx942", "options": ("-O3", "gfx942")},
        {"options": ("-O2",)},
        {"compiler_version": "hiprtc 10.0"},
    ],
)
def test_another_target_option_or_compiler_compiles_anew(package, change):
    Kernels(RecordingDriver()).launch("doubling", "double_f32", 1, b"")
    driver = RecordingDriver(**change)
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == ["double_f32"]


def test_another_source_or_header_compiles_anew(package):
    for name in ("doubling.hip", "types.hpp"):
        Kernels(RecordingDriver()).launch("doubling", "double_f32", 1, b"")
        (package / name).write_text("// changed\n" + (package / name).read_text())
        kernels_module._source.cache_clear()
        kernels_module.headers.cache_clear()
        driver = RecordingDriver()
        Kernels(driver).launch("doubling", "double_f32", 1, b"")
        assert driver.compiled == ["double_f32"]


def prebuild(package: Path, target: str) -> str:
    path = package / "code" / target / "doubling.co"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"double_f32 double_f64")
    sources = {name: checksum(package / name) for name in ("doubling.hip", "types.hpp")}
    path.with_suffix(".json").write_text(json.dumps({"sources": sources, "code": checksum(path)}))
    return str(path)


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_was_shipped_for_the_target_comes_first(package):
    Kernels(RecordingDriver()).launch("doubling", "double_f32", 1, b"")
    shipped = prebuild(package, "gfx90a")
    driver = RecordingDriver()
    kernels = Kernels(driver)
    kernels.launch("doubling", "double_f32", 1, b"")
    kernels.launch("doubling", "double_f64", 1, b"")
    assert (driver.compiled, driver.loaded) == ([], [shipped])


def test_what_was_shipped_for_another_target_is_not_used(package):
    prebuild(package, "gfx942")
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == ["double_f32"]


@pytest.mark.parametrize("file", ["doubling.hip", "types.hpp"])
def test_what_was_shipped_of_older_sources_is_not_used(package, file):
    prebuild(package, "gfx90a")
    (package / file).write_text((package / file).read_text() + "// newer\n")
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == ["double_f32"]


@pytest.mark.parametrize("content", [b"", b"double_f32", b"double_f32 double_f65"])
def test_what_was_shipped_and_damaged_is_not_used(package, content):
    Path(prebuild(package, "gfx90a")).write_bytes(content)
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == driver.loaded == ["double_f32"]


def test_what_was_shipped_is_read_once(package, monkeypatch):
    shipped = prebuild(package, "gfx90a")
    read = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(str(path)), read_bytes(path))[1])
    Kernels(RecordingDriver()).launch("doubling", "double_f32", 1, b"")
    assert read.count(shipped) == 1


RECORDS = [None, "", "{}", "[]", '{"sources": 1}', '{"sources": {"gone.hpp": ""}}', '{"sources": {}}']


@pytest.mark.parametrize("record", RECORDS)
def test_what_was_shipped_without_a_good_record_is_not_used(package, record):
    path = Path(prebuild(package, "gfx90a")).with_suffix(".json")
    path.unlink() if record is None else path.write_text(record)
    driver = RecordingDriver()
    Kernels(driver).launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == ["double_f32"]


def test_threads_find_a_kernel_once(package):
    driver = RecordingDriver()
    kernels = Kernels(driver)
    threads = [threading.Thread(target=kernels.launch, args=("doubling", "double_f32", 1, b"")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.compiled == driver.loaded == ["double_f32"]
    assert len(driver.launched) == 8


def test_a_compilation_that_fails_is_tried_again(package):
    driver = RecordingDriver(error=CompilationFailed("double_f32", "gfx90a", "hiprtc 9.0", "log"))
    kernels = Kernels(driver)
    with pytest.raises(CompilationFailed):
        kernels.launch("doubling", "double_f32", 1, b"")
    driver.error = None
    kernels.launch("doubling", "double_f32", 1, b"")
    assert driver.compiled == ["double_f32"]


def test_a_kernel_or_a_family_that_is_not_there(package):
    kernels = Kernels(RecordingDriver())
    with pytest.raises(InvalidKernel, match=r"kernel double_i8: doubling\.hip of the package does not have it"):
        kernels.launch("doubling", "double_i8", 1, b"")
    with pytest.raises(InvalidKernel, match=r"tripling\.hip.*reinstall tallow"):
        kernels.launch("tripling", "triple_f32", 1, b"")
    kernels.launch("doubling", "double_f32", 1, b"")


def test_every_kernel_of_the_package_is_found_in_its_source():
    for path in code_object.SOURCES.glob("*.hip"):
        text = path.read_text()
        names = kernels_module._KERNEL.findall(text)
        assert len(names) == len(set(names)) == text.count("TALLOW_KERNEL(")
        # Of the families that fused kernels are compiled from there is none.
        assert names or path.stem in ("fused", "fused_rows")
        assert all(one_kernel(path.stem, name).count("TALLOW_KERNEL(") == 1 for name in names[-1:])


@pytest.fixture
def impatient(monkeypatch):
    """The progress of a process that has not compiled yet, whose first line comes at once."""
    for name in ("_PATIENCE", "_PATIENCE_OF_LOGS"):
        monkeypatch.setattr(progress_module, name, 0.0)
    monkeypatch.setattr(kernels_module, "progress", CompileProgress())


class SlowDriver(RecordingDriver):
    """A compiler that takes long enough for a line."""

    def compile(self, *arguments):
        time.sleep(0.2)
        return super().compile(*arguments)


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self):
        return True


def test_a_terminal_is_told_what_is_compiled_when_it_takes_long(package, impatient, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    kernels = Kernels(SlowDriver())
    kernels.launch("doubling", "double_f32", 1, b"")
    kernels.launch("doubling", "double_f64", 1, b"")
    text = "tallow compiles kernels at their first use: {} for gfx90a, after {} others\n".format
    assert terminal.getvalue() == text("double_f32", 0) + text("double_f64", 1)


def test_what_is_no_terminal_gets_one_line_in_all(package, impatient, capsys):
    kernels = Kernels(SlowDriver())
    kernels.launch("doubling", "double_f32", 1, b"")
    kernels.launch("doubling", "double_f64", 1, b"")
    text = "tallow compiles kernels at their first use: double_f32 for gfx90a, after 0 others"
    assert capsys.readouterr() == ("", f"{text}; later programs find them compiled\n")


def closed():
    """A stream of a program that ended it."""
    stream = io.StringIO()
    stream.close()
    return stream


class Strange:
    """A stream that is not a file."""

    def write(self, text):
        raise OSError(text)


@pytest.mark.parametrize("stream", [None, Strange(), closed()], ids=["none", "strange", "closed"])
def test_a_stream_that_takes_no_line_stops_nothing(package, impatient, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    Kernels(SlowDriver()).launch("doubling", "double_f32", 1, b"")


def test_nobody_is_told_of_what_takes_less_than_a_second(package, monkeypatch, capsys):
    monkeypatch.setattr(kernels_module, "progress", CompileProgress())
    Kernels(SlowDriver()).launch("doubling", "double_f32", 1, b"")
    assert capsys.readouterr() == ("", "")
