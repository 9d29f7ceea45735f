"""The files that a user's source includes, so that a change of one of them gives new code.

hiprtc and NVRTC neither report the files they read nor preprocess alone. So this follows every `#include`, in included
files too, in any condition, and takes every file that the name may mean: next to the including file, in the current
folder, and in each folder that an option or the environment names. Any file that a compiler reads is among them, or
among its own headers, which change with its version. Where a macro names the file, only the compiler knows it.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

Files: TypeAlias = tuple[str, ...]
"""Of each file its path and a checksum of its content."""

# Spaces and comments, of which a line may have some anywhere between the words of a directive. Until Python 3.11.4
# possessive quantifiers of what backtracks find less than there is.
_GAP: Final = r"(?:[^\S\n]|/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)*"
_NAME: Final = r'(?:"([^"\n]+)"|<([^>\n]+)>)'
_INCLUDE: Final = re.compile(
    rf"(?:\#|%:|\?\?=){_GAP}(?:include|include_next|import|embed)\b{_GAP}(?:{_NAME}|(?P<macro>[^\W\d]|[\\$]))"
)
# Code may test whether a file exists without including it.
_QUESTION: Final = re.compile(rf"__has_(?:include|include_next|embed){_GAP}\({_GAP}{_NAME}")
# A directive has a line of its own, on which only the end of a comment may come before it; comments speak of some.
_BEFORE: Final = re.compile(rf"(?:.*\*/)?{_GAP}")
# What joins two lines for some compilers, besides what does for all.
_LOOSE_JOINT: Final = re.compile(r"(?:\\[^\S\n]+|\?\?/[^\S\n]*)\n")
_SEPARATORS: Final = re.compile(r"[\s,]+")
# Variables that hold folders of headers for compilers that look at them.
_VARIABLES: Final = ("CPATH", "CPLUS_INCLUDE_PATH")
# No path is longer.
_LONGEST_PATH: Final = 4096


def files_of(source: str, options: Sequence[str], headers: Mapping[str, str]) -> Files | None:
    """Return the files that a source may include, also through `headers`, by name; None where some are unknown."""
    named = set(_named(options))
    here = Path()
    folders = [here, *map(Path, sorted(filter(os.path.isdir, named)))]
    for variable in _VARIABLES:
        folders += map(Path, os.environ.get(variable, "").split(os.pathsep))
    files: dict[Path, str] = {}
    # Texts to look at, each with the folder that it is in, and paths that were looked at.
    waiting: list[tuple[Path, str]] = [(here, source)]
    seen: set[Path] = set()
    left = dict(headers)

    def look_for(name: str, including: Path) -> None:
        if name in left:
            waiting.append((here, left.pop(name)))
        for folder in (including, *folders):
            path = folder / name
            if path in seen:
                continue
            seen.add(path)
            content = _content(path)
            if content is None:
                continue
            # Files that include each other through "../" have few names like this. Files next to a link stay there.
            inside = path.parent.resolve()
            if inside / path.name not in files:
                files[inside / path.name] = hashlib.sha256(content).hexdigest()
                waiting.append((inside, content.decode("utf-8-sig", "surrogateescape")))

    for each in sorted(named):
        look_for(each, here)
    while waiting:
        including, text = waiting.pop()
        for name in _included(text):
            if name is None:
                return None
            look_for(name, including)
    return tuple(f"{str(path)!a} {checksum}" for path, checksum in sorted(files.items()))


def _content(path: Path) -> bytes | None:
    """The text of a file; None where there is none, or one that the compiler cannot read either."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _included(text: str) -> Iterator[str | None]:
    """The names of files that a text includes; None for one that it does not say."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\\\n", "")
    spliced = _LOOSE_JOINT.sub("", text)
    for form in (text,) if spliced == text else (text, spliced):
        for match in itertools.chain(_INCLUDE.finditer(form), _QUESTION.finditer(form)):
            if not match.lastgroup:
                yield match[match.lastindex or 0]
            elif _BEFORE.fullmatch(form, form.rfind("\n", 0, match.start()) + 1, match.start()):
                yield None
        # By which an assembler reads a file.
        if ".incbin" in form:
            yield None


def _named(options: Sequence[str]) -> Iterator[str]:
    """The files or folders that an option may name: options of compilers differ in form."""
    for option in options:
        for part in (option, *_SEPARATORS.split(option)):
            for start in range(max(len(part) - _LONGEST_PATH, 0), len(part)):
                yield part[start:]
