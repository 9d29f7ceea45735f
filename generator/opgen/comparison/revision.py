"""The spec at a commit of git, read into a temporary folder."""

import os
import posixpath
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from opgen.folders import FOLDERS
from opgen.model.spec import Spec
from opgen.problem import Refusal, SpecError
from opgen.project import read_spec_alone

_TREE, _LINK, _SUBMODULE = "040000", "120000", "160000"


def spec_at(root: Path, revision: str) -> Spec:
    """The checked spec of the project below `root` at a commit.

    Refusal where there is no git, no such commit, or no spec there that this opgen reads.
    """
    repository = _Repository(root, _environment())
    commit = repository.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
    if not commit:
        raise Refusal(f"'{revision}' is no commit here; give a branch, a tag or a commit that 'git log' shows")
    prefix = os.fsdecode(repository.run("rev-parse", "--show-prefix")).rstrip("\n")
    with tempfile.TemporaryDirectory(prefix="opgen-") as name:
        folder = Path(name, prefix)
        paths = [posixpath.join(prefix, top) for top in FOLDERS]
        _CheckOut(repository.top, commit.decode(), Path(name)).write(paths)
        if not (folder / FOLDERS[0]).is_dir():
            raise Refusal(f"there is no spec/ at '{revision}'; give a commit that has one")
        try:
            return read_spec_alone(folder)
        except SpecError as error:
            first, count = error.problems[0], len(error.problems)
            errors = f"1 error, {first}" if count == 1 else f"{count} errors, first {first}"
            raise Refusal(
                f"this opgen cannot read the spec at '{revision}', in which it finds {errors}; "
                "it may be written for an older spec language: give a later commit"
            ) from None


class _Entry(NamedTuple):
    """A file, a link or a submodule at a commit."""

    mode: str
    identity: str
    path: str


@dataclass(frozen=True)
class _CheckOut:
    """The files of a commit, below a folder. They are what is committed, whatever attributes say of archives."""

    repository: "_Repository"
    commit: str
    target: Path

    def write(self, paths: Sequence[str]) -> None:
        """Write what is at some paths, and all that links there lead to."""
        written: dict[str, _Entry] = {}
        waiting = [*paths]
        while waiting:
            new = {entry.path: entry for entry in self._entries(waiting) if entry.path not in written}
            written |= new
            files = [entry for entry in new.values() if entry.mode != _SUBMODULE]
            waiting = []
            for entry, content in zip(files, self.repository.contents(files), strict=True):
                path = self.target / entry.path
                path.parent.mkdir(parents=True, exist_ok=True)
                if entry.mode != _LINK:
                    path.write_bytes(content)
                    continue
                link = os.fsdecode(content)
                led = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), link))
                if posixpath.isabs(led) or led.startswith("../"):
                    # What is outside the repository is as it is now.
                    path.symlink_to(self.repository.folder / led)
                else:
                    path.symlink_to(link)
                    waiting.append(led)
            for entry in new.values():
                if entry.mode == _SUBMODULE:
                    self._write_submodule(entry)

    def _entries(self, paths: Sequence[str]) -> Iterator[_Entry]:
        """Return the entries below some paths, and the links and submodules among the folders above them."""
        above = sorted({str(parent) for path in paths for parent in PurePosixPath(path).parents} - {"."})
        listed = self._listed("-r", self.commit, "--", *(path for path in paths if "." not in paths))
        if above:
            listed += self._listed(self.commit, "--", *above)
        for line in listed:
            facts, _, path = line.partition(b"\t")
            mode, _, identity = facts.decode().split()
            if mode != _TREE:
                yield _Entry(mode, identity, os.fsdecode(path))

    def _listed(self, *arguments: str) -> list[bytes]:
        return self.repository.run("ls-tree", "-z", "--full-tree", *arguments).split(b"\0")[:-1]

    def _write_submodule(self, entry: _Entry) -> None:
        folder = self.repository.folder / entry.path
        submodule = replace(self.repository, folder=folder)
        if not folder.is_dir() or submodule.top.folder != folder.resolve():
            raise Refusal(f"{entry.path} is a submodule that is not here; run 'git submodule update --init'")
        if not submodule.has(entry.identity):
            raise Refusal(f"submodule {entry.path} lacks the commit {entry.identity}; run 'git fetch' in it")
        _CheckOut(submodule, entry.identity, self.target / entry.path).write(["."])


@dataclass(frozen=True)
class _Repository:
    """The repository that a folder is in."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def top(self) -> "_Repository":
        """It by its own folder."""
        folder = os.fsdecode(self.run("rev-parse", "--show-toplevel")).rstrip("\n")
        return replace(self, folder=Path(folder))

    def has(self, identity: str) -> bool:
        """Return True if a commit is here."""
        return self._finished("cat-file", "-e", f"{identity}^{{commit}}").returncode == 0

    def contents(self, entries: Sequence[_Entry]) -> Iterator[bytes]:
        """The contents of files."""
        output = self.run("cat-file", "--batch", content="".join(f"{entry.identity}\n" for entry in entries).encode())
        start = 0
        for entry in entries:
            end = output.index(b"\n", start)
            *_, size = output[start:end].split()
            if not size.isdigit():
                raise Refusal(f"git has no content of {entry.path} at that commit; run 'git fetch'")
            start = end + 1 + int(size) + 1
            yield output[end + 1 : start - 1]

    def run(self, *arguments: str, content: bytes = b"") -> bytes:
        """Return the output of git; empty if rev-parse finds no commit."""
        result = self._finished(*arguments, content=content)
        reason = result.stderr.decode(errors="replace").strip()
        if result.returncode and (reason or arguments[0] != "rev-parse"):
            raise Refusal(f"git cannot read {self.folder}: {reason}; compare in a checkout that git reads")
        return result.stdout

    def _finished(self, *arguments: str, content: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return _git("-C", str(self.folder), *arguments, content=content, environment=self.environment)


def _environment() -> Mapping[str, str]:
    """Return the environment without the variables that git sets for hooks."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    local = _git("rev-parse", "--local-env-vars", environment=without).stdout.decode().split()
    return {
        name: value
        for name, value in os.environ.items()
        if name not in local or name.startswith("GIT_CONFIG")
        if not name.endswith("_PATHSPECS")
    }


def _git(*arguments: str, environment: Mapping[str, str], content: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["git", *arguments], input=content, capture_output=True, check=False, env=environment)
    except FileNotFoundError:
        raise Refusal("there is no git; install it, or put it on PATH") from None
