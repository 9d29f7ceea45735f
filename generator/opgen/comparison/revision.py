"""The spec at a commit of git, read into a temporary folder."""

import io
import subprocess
import tempfile
import zipfile
from pathlib import Path

from opgen.folders import FOLDERS
from opgen.model import Spec
from opgen.problem import Refusal, SpecError
from opgen.project import read_spec_alone


def spec_at(root: Path, revision: str) -> Spec:
    """The checked spec of the project below `root` at a commit.

    Refusal where there is no git, no such commit, or no spec there that this opgen reads.
    """
    commit = (
        _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    )
    if not commit:
        raise Refusal(f"'{revision}' is no commit here; give a branch, a tag or a commit that 'git log' shows")
    names = _git(root, "ls-tree", "--name-only", commit, "--", *FOLDERS).decode().split()
    if FOLDERS[0] not in names:
        raise Refusal(f"there is no spec/ at '{revision}'; give a commit that has one")
    archive = _git(root, "archive", "--format=zip", commit, "--", *names)
    with tempfile.TemporaryDirectory(prefix="opgen-") as name:
        folder = Path(name)
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            files.extractall(folder)
        try:
            return read_spec_alone(folder)
        except SpecError as error:
            first, count = error.problems[0], len(error.problems)
            mistakes = f"1 mistake, {first}" if count == 1 else f"{count} mistakes, first {first}"
            raise Refusal(
                f"this opgen cannot read the spec at '{revision}', in which it finds {mistakes}; "
                "it may be written for an older spec language: give a later commit"
            ) from None


def _git(root: Path, *arguments: str) -> bytes:
    """What git prints; nothing where rev-parse finds no commit."""
    try:
        result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise Refusal("there is no git; install it, or put it on PATH") from None
    reason = result.stderr.decode(errors="replace").strip()
    if result.returncode and (reason or arguments[0] != "rev-parse"):
        raise Refusal(f"git cannot read {root}: {reason}; compare in a checkout that git reads")
    return result.stdout
