"""The cache of compiled kernels on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tallow.rocm_backend.code_cache import CodeCache, cache_folder

MADE_OF = ("source", "-O3", "gfx90a", "hiprtc 9.0")


def fails() -> bytes:
    raise AssertionError("compiled again")


def entry_of(folder: Path) -> Path:
    (entry,) = folder.glob("*/*.co")
    return entry


@pytest.fixture
def filled(tmp_path):
    cache = CodeCache(tmp_path)
    assert cache.get(MADE_OF, lambda: b"code" * 1000) == b"code" * 1000
    return cache


def test_what_was_compiled_is_kept(filled, tmp_path):
    assert filled.get(MADE_OF, fails) == b"code" * 1000
    assert CodeCache(tmp_path).get(MADE_OF, fails) == b"code" * 1000


@pytest.mark.parametrize("place", range(len(MADE_OF)))
def test_whatever_a_kernel_is_made_of_tells_it_from_others(filled, place):
    other = list(MADE_OF)
    other[place] += "x"
    assert filled.get(other, lambda: b"other") == b"other"


def test_parts_do_not_run_into_each_other(filled):
    joined = ("source\n-O3", *MADE_OF[2:])
    assert filled.get(joined, lambda: b"other") == b"other"
    assert filled.get(("a", "bc"), lambda: b"1") != filled.get(("ab", "c"), lambda: b"2")


@pytest.mark.parametrize("size", [0, 1, 13, 14, 20, 45, 46, 47, 2000, 4045])
def test_an_entry_that_was_cut_is_compiled_again(filled, tmp_path, size):
    entry = entry_of(tmp_path)
    os.truncate(entry, size)
    assert filled.get(MADE_OF, lambda: b"again") == b"again"
    assert filled.get(MADE_OF, fails) == b"again"


@pytest.mark.parametrize("place", [0, 13, 14, 45, 46, 3000])
def test_an_entry_that_was_changed_is_compiled_again(filled, tmp_path, place):
    entry = entry_of(tmp_path)
    data = bytearray(entry.read_bytes())
    data[place] ^= 1
    entry.write_bytes(data)
    assert filled.get(MADE_OF, lambda: b"again") == b"again"


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = CodeCache(tmp_path / "file")
    assert cache.get(MADE_OF, lambda: b"code") == b"code"
    assert cache.get(MADE_OF, lambda: b"compiled again") == b"compiled again"


def test_a_home_that_nobody_knows_keeps_nothing(monkeypatch):
    for variable in ("TALLOW_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    assert cache_folder() is None
    cache = CodeCache(cache_folder())
    assert cache.get(MADE_OF, lambda: b"code") == b"code"
    assert cache.get(MADE_OF, lambda: b"compiled again") == b"compiled again"


def test_a_disk_that_is_full_keeps_nothing(tmp_path, monkeypatch):
    def replace(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    cache = CodeCache(tmp_path)
    assert cache.get(MADE_OF, lambda: b"code") == b"code"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]


def test_a_compilation_that_fails_leaves_the_cache_usable(tmp_path):
    cache = CodeCache(tmp_path)
    with pytest.raises(AssertionError):
        cache.get(MADE_OF, fails)
    assert cache.get(MADE_OF, lambda: b"code") == b"code"


def test_threads_compile_once(tmp_path):
    cache = CodeCache(tmp_path)
    compiled = []

    def compile_code() -> bytes:
        compiled.append(threading.get_ident())
        return b"code"

    threads = [threading.Thread(target=cache.get, args=(MADE_OF, compile_code)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_processes_compile_once_and_read_whole_entries(tmp_path):
    script = """
import sys, time
from pathlib import Path
from tallow.rocm_backend.code_cache import CodeCache
folder = Path(sys.argv[1])
def compile_code(name):
    with (folder / "compiled").open("a") as log:
        log.write(f"{name}\\n")
    time.sleep(0.05)
    return name.encode() * 100_000
for name in "abcdef":
    assert CodeCache(folder / "cache").get((name,), lambda: compile_code(name)) == name.encode() * 100_000
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, env=environment) for _ in range(6)]
    assert [process.wait(timeout=60) for process in running] == [0] * 6
    assert sorted((tmp_path / "compiled").read_text().split()) == list("abcdef")


def test_the_folder_is_the_users_cache_unless_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("TALLOW_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TALLOW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tallow"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tallow"
