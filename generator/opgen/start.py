"""A new project: the starter of the package that it builds on, with the project's name in it."""

import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath

from opgen.base import Base, find_base
from opgen.folders import PACKAGE_FILE
from opgen.loader import load_file
from opgen.problem import Problem, Refusal, SpecError, did_you_mean

# The entry point of packages that projects can build on.
_GROUP = "opgen.base"
_STARTER = "starter"
# The ending of a starter's files, so that no tool takes them for what they become, and the name of folders named as the
# project is.
_ENDING, _NAME = ".in", "NAME"


def choose_base(package: str | None) -> Base:
    """The installed package of this name that has a starter, or the only one that there is."""
    declared = sorted({entry.value for entry in entry_points(group=_GROUP)})
    if package is None and len(declared) != 1:
        reason = f"several packages are ({', '.join(declared)})" if declared else "no such package is"
        raise Refusal(f"a project builds on a package with a starter, and {reason} installed; name it with --base")
    name = declared[0] if package is None else package
    base = find_base(name)
    if base is None or not (base.folder / _STARTER).is_dir():
        raise Refusal(f"'{name}' is no installed package with a starter{did_you_mean(name, declared, 'install it')}")
    return base


def start(base: Base, name: str, target: Path) -> list[PurePosixPath]:
    """Write the project `name` to the folder `target`, all of it or nothing; its files."""
    if target.exists() or target.is_symlink():
        raise Refusal(f"{target} is there already; choose another name, or remove it")
    words = {"name": name, "base": base.package, "version": _version(base)}
    files = dict(_filled(base.folder / _STARTER, words))
    try:
        with tempfile.TemporaryDirectory(prefix=".opgen-", dir=target.parent, ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary, name)
            for path, text in files.items():
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            folder.rename(target)
    except OSError as error:
        raise Refusal(f"{target}: {error.strerror}; nothing was written") from error
    return [*files]


def _filled(starter: Path, words: Mapping[str, str]) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the files of a starter with their placeholders filled in, such as <<name>>."""
    for file in sorted(starter.rglob(f"*{_ENDING}")):
        parts = [words["name"] if part == _NAME else part for part in file.relative_to(starter).parts]
        text = file.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"<<{word}>>", value)
        yield PurePosixPath(*parts[:-1], parts[-1].removesuffix(_ENDING)), text


def _version(base: Base) -> str:
    """The version of a base, whose runtime no other one is sure to have."""
    problems: list[Problem] = []
    package = load_file(base.folder / PACKAGE_FILE, Path(base.package) / PACKAGE_FILE, problems)
    content = package.root.content if package is not None else None
    if problems or not isinstance(content, dict) or "version" not in content:
        raise SpecError(problems) if problems else Refusal(f"'{base.package}' does not say its version; reinstall it")
    return str(content["version"].content)
