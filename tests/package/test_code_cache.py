"""The cache of compiled kernels on disk."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tallow.runtime.backends.gpu_backend.driver.error import DriverError
from tallow.runtime.backends.gpu_backend.execute.kernels import is_refusal
from tallow.runtime.base.error import InvalidArgument
from tallow.runtime.kernels import code_cache
from tallow.runtime.kernels.code_cache import CodeCache, cache_folder

MADE_OF = ("source", "-O3", "gfx90a", "hiprtc 9.0")
NOBODY = 54321


@pytest.fixture(autouse=True)
def no_warning_but_those_that_are_expected() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Refusal(DriverError):
    unrecoverable = frozenset({"lost"})
    memory_exhausted = "no memory"


def fails() -> bytes:
    raise AssertionError("compiled again")


def entry_of(folder: Path) -> Path:
    (entry,) = folder.glob("*/*.co")
    return entry


@pytest.fixture
def filled(tmp_path):
    cache = CodeCache(tmp_path, is_refusal)
    assert cache.get(MADE_OF, lambda: b"code" * 1000, bytes) == b"code" * 1000
    return cache


def test_what_was_compiled_is_kept(filled, tmp_path):
    assert filled.get(MADE_OF, fails, bytes) == b"code" * 1000
    assert CodeCache(tmp_path).get(MADE_OF, fails, bytes) == b"code" * 1000


@pytest.mark.parametrize("place", range(len(MADE_OF)))
def test_whatever_a_kernel_is_made_of_tells_it_from_others(filled, place):
    other = list(MADE_OF)
    other[place] += "x"
    assert filled.get(other, lambda: b"other", bytes) == b"other"


def test_parts_do_not_run_into_each_other(filled):
    concatenated = ("source\n-O3", *MADE_OF[2:])
    assert filled.get(concatenated, lambda: b"other", bytes) == b"other"
    assert filled.get(("a", "bc"), lambda: b"1", bytes) != filled.get(("ab", "c"), lambda: b"2", bytes)


@pytest.mark.parametrize("size", [0, 1, 13, 14, 20, 45, 46, 47, 78, 79, 2000, 4077])
def test_an_entry_that_was_cut_is_compiled_again(filled, tmp_path, size):
    entry = entry_of(tmp_path)
    os.truncate(entry, size)
    assert filled.get(MADE_OF, lambda: b"again", bytes) == b"again"
    assert filled.get(MADE_OF, fails, bytes) == b"again"


@pytest.mark.parametrize("place", [0, 13, 14, 45, 46, 77, 78, 3000])
def test_an_entry_that_was_changed_is_compiled_again(filled, tmp_path, place):
    entry = entry_of(tmp_path)
    data = bytearray(entry.read_bytes())
    data[place] ^= 1
    entry.write_bytes(data)
    assert filled.get(MADE_OF, lambda: b"again", bytes) == b"again"


def test_an_entry_that_was_put_in_the_place_of_another_is_compiled_again(filled, tmp_path):
    entry = entry_of(tmp_path)
    assert filled.get(("other",), lambda: b"other", bytes) == b"other"
    (other,) = (path for path in tmp_path.glob("*/*.co") if path != entry)
    other.replace(entry)
    assert filled.get(MADE_OF, lambda: b"again", bytes) == b"again"
    assert filled.get(MADE_OF, fails, bytes) == b"again"


def test_code_that_cannot_be_loaded_is_compiled_again_once(filled, tmp_path):
    """A failure that other code would meet too changes nothing."""
    offered: list[bytes] = []

    def refuse(code: bytes, error: Exception) -> bytes:
        offered.append(code)
        if code != b"again":
            raise error
        return code

    refusal = InvalidArgument("load", "it is no code")
    for error in (Refusal("load", "lost", 1), Refusal("load", "no memory", 2)):
        with pytest.raises(Refusal):
            filled.get(MADE_OF, fails, lambda code, error=error: refuse(code, error))
    assert filled.get(MADE_OF, fails, bytes) == b"code" * 1000
    offered.clear()
    with pytest.raises(InvalidArgument, match="it is no code"):
        filled.get(MADE_OF, lambda: b"no better", lambda code: refuse(code, refusal))
    assert offered == [b"code" * 1000, b"no better"]
    assert filled.get(MADE_OF, lambda: b"again", lambda code: refuse(code, refusal)) == b"again"
    assert filled.get(MADE_OF, fails, bytes) == b"again"
    with pytest.raises(AssertionError):
        filled.get(MADE_OF, fails, lambda code: refuse(code * 2, Refusal("load", "refused", 3)))
    assert not list(tmp_path.glob("*/*.co"))


def assert_nothing_is_kept(folder: Path | None, reason: str) -> None:
    """A cache of this folder compiles every time; one warning, at the first time, gives this reason."""
    cache = CodeCache(folder)
    with pytest.warns(RuntimeWarning, match=reason) as told:
        assert cache.get(MADE_OF, lambda: b"code", bytes) == b"code"
    assert cache.get(MADE_OF, lambda: b"compiled again", bytes) == b"compiled again"
    assert CodeCache(folder).get(("other",), lambda: b"other", bytes) == b"other"
    (warning,) = told
    assert str(warning.message).startswith(f"compiled kernels are not stored{f' in {folder}' if folder else ''}: ")
    assert str(warning.message).endswith("; fix that, or set TALLOW_CACHE to a folder of your own")


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert_nothing_is_kept(tmp_path / "file", f"{tmp_path}/file: it is no folder")


def test_a_home_that_nobody_knows_keeps_nothing(monkeypatch):
    for variable in ("TALLOW_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    assert cache_folder() is None
    monkeypatch.setattr(code_cache, "_warned", set())
    assert_nothing_is_kept(cache_folder(), "this user has no home folder")


def test_a_disk_that_is_full_keeps_nothing(tmp_path, monkeypatch):
    def replace(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    assert_nothing_is_kept(tmp_path, f"{tmp_path}/..: No space left on device")
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"lock"}


def test_what_the_cache_makes_is_the_users_alone(tmp_path):
    before = os.umask(0o002)
    try:
        CodeCache(tmp_path / "made" / "here").get(MADE_OF, lambda: b"code", bytes)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) == 4


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another user own a file; whoever may not give files away becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


@pytest.mark.parametrize("place", [".", "cache", "cache/{shelf}"])
def test_a_folder_of_another_user_is_not_trusted(tmp_path, monkeypatch, place):
    cache = CodeCache(tmp_path / "cache")
    cache.get(MADE_OF, lambda: b"planted", bytes)
    shelf = entry_of(tmp_path / "cache").parent.name
    give_away(tmp_path / place.format(shelf=shelf), monkeypatch)
    with pytest.warns(RuntimeWarning, match=r"it belongs to another user, number \d+; fix that, or set TALLOW_CACHE"):
        assert cache.get(MADE_OF, lambda: b"code", bytes) == b"code"


@pytest.mark.parametrize(("place", "mode"), [(".", 0o702), ("cache", 0o777), ("cache/{shelf}", 0o1777)])
def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path, place, mode):
    cache = CodeCache(tmp_path / "cache")
    cache.get(MADE_OF, lambda: b"planted", bytes)
    folder = tmp_path / place.format(shelf=entry_of(tmp_path / "cache").parent.name)
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"{folder}: others can write to it; run 'chmod go-w {folder}'; fix that"):
        assert cache.get(MADE_OF, lambda: b"code", bytes) == b"code"
    folder.chmod(0o755)
    assert cache.get(MADE_OF, fails, bytes) == b"planted"


def test_a_folder_in_a_sticky_one_is_trusted(tmp_path):
    """There, as in /tmp, nobody can move what belongs to another."""
    for folder in (tmp_path, tmp_path / "cache"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    cache = CodeCache(tmp_path / "cache")
    cache.get(MADE_OF, lambda: b"code", bytes)
    assert cache.get(MADE_OF, fails, bytes) == b"code"


@pytest.mark.parametrize(
    ("name", "members", "is_trusted"),
    [("{user}", [], True), ("{user}", ["{user}"], True), ("{user}", ["somebody"], False), ("users", [], False)],
)
def test_a_group_is_trusted_that_has_nobody_else(tmp_path, monkeypatch, name, members, is_trusted):
    user = pwd.getpwuid(os.geteuid()).pw_name
    group = grp.struct_group((name.format(user=user), "x", 0, [member.format(user=user) for member in members]))
    monkeypatch.setattr(grp, "getgrgid", lambda number: group)
    tmp_path.chmod(0o770)
    cache = CodeCache(tmp_path)
    if is_trusted:
        cache.get(MADE_OF, lambda: b"code", bytes)
        assert cache.get(MADE_OF, fails, bytes) == b"code"
    else:
        assert_nothing_is_kept(tmp_path, f"{tmp_path}: others can write to it")


def test_an_entry_of_another_user_is_compiled_again(filled, tmp_path, monkeypatch):
    entry = entry_of(tmp_path)
    entry.chmod(0o666)
    assert filled.get(MADE_OF, lambda: b"again", bytes) == b"again"
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    if os.geteuid() == 0:
        os.chown(entry, NOBODY, -1)
        assert filled.get(MADE_OF, lambda: b"once more", bytes) == b"once more"
        assert entry.stat().st_uid == 0


def test_an_entry_that_is_a_link_or_a_pipe_is_compiled_again(filled, tmp_path):
    entry, elsewhere = entry_of(tmp_path), tmp_path / "elsewhere"
    entry.rename(elsewhere)
    entry.symlink_to(elsewhere)
    assert filled.get(MADE_OF, lambda: b"again", bytes) == b"again"
    entry.unlink()
    os.mkfifo(entry)
    assert filled.get(MADE_OF, lambda: b"once more", bytes) == b"once more"
    assert filled.get(MADE_OF, fails, bytes) == b"once more"
    assert b"code" * 1000 in elsewhere.read_bytes()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_is_no_plain_file_is_left_alone(tmp_path, kind):
    cache, victim = CodeCache(tmp_path / "cache"), tmp_path / "victim"
    victim.write_text("of value")
    cache.get(MADE_OF, lambda: b"code", bytes)
    entry = entry_of(tmp_path / "cache")
    entry.unlink()
    lock = entry.with_name("lock")
    lock.unlink()
    {"link": lambda: lock.symlink_to(victim), "pipe": lambda: os.mkfifo(lock), "folder": lock.mkdir}[kind]()
    with pytest.warns(RuntimeWarning, match=f"compiled kernels are not stored in .*: {lock}: "):
        assert cache.get(MADE_OF, lambda: b"code", bytes) == b"code"
    assert victim.read_text() == "of value"
    assert cache.get(MADE_OF, fails, bytes) == b"code"


def test_a_folder_behind_a_link_is_as_good_as_any(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    CodeCache(tmp_path / "link").get(MADE_OF, lambda: b"code", bytes)
    assert CodeCache(tmp_path / "real").get(MADE_OF, fails, bytes) == b"code"
    (tmp_path / "real").chmod(0o777)
    assert_nothing_is_kept(tmp_path / "link", f"{tmp_path}/real: others can write to it")


def test_a_compilation_that_fails_leaves_the_cache_usable(tmp_path):
    cache = CodeCache(tmp_path)
    with pytest.raises(AssertionError):
        cache.get(MADE_OF, fails, bytes)
    assert cache.get(MADE_OF, lambda: b"code", bytes) == b"code"


def test_threads_compile_once(tmp_path):
    cache = CodeCache(tmp_path)
    compiled = []

    def compile_code() -> bytes:
        compiled.append(threading.get_ident())
        return b"code"

    threads = [threading.Thread(target=cache.get, args=(MADE_OF, compile_code, bytes)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_processes_compile_once_and_read_whole_entries(tmp_path):
    script = """
import sys, time
from pathlib import Path
from tallow.runtime.kernels.code_cache import CodeCache
folder = Path(sys.argv[1])
def compile_code(name):
    with (folder / "compiled").open("a") as log:
        log.write(f"{name}\\n")
    time.sleep(0.05)
    return name.encode() * 100_000
for name in "abcdef":
    assert CodeCache(folder / "cache").get((name,), lambda: compile_code(name), bytes) == name.encode() * 100_000
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
