"""Messages about texts that are no YAML: libyaml's own name tokens, these what to write."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import yaml

from opgen.problem import Location, Problem, lines_of

# An entry of a mapping in lines, and a value that ends with its line.
_ENTRY: Final = re.compile(r"(?P<indentation> *)(?P<key>[\w.-]+):(?: +(?P<value>[^\s#].*)| *(?:#.*)?)")
_WHOLE_VALUE: Final = re.compile(r"[^|>&*'\"{\[].*|'.*'|\".*\"|{.*}|\[.*\]")
_CONFLICT: Final = re.compile(r"^(?:<{7}|\|{7}|>{7})(?: .*)?$", re.MULTILINE)
_ODD_SPACES: Final = re.compile("[\u00a0\u2000-\u200b\u202f\u2060\u3000]")
# Signs that begin something else than a plain text.
_SIGNS: Final = "@%`|>!&*?-,]}#"
_TRUTHS: Final = {
    **dict.fromkeys(("yes", "y", "on", "true", "1"), "true"),
    **dict.fromkeys(("no", "n", "off", "false", "0"), "false"),
}
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")
_CLOSED: Final = {"{": "}", "[": "]", '"': '"', "'": "'"}
_LINE_VALUE: Final = re.compile(r"\s*(?:- +)?(?P<key>[\w.-]+):[ \t]+(?P<value>\S.*)")
_FLOW_VALUE: Final = re.compile(r"\s*(?P<key>[\w.-]+):[ \t]+(?P<value>\S[^,}\]]*)")
_NO_SPACE: Final = re.compile(r"\s*(?P<key>[\w.-]+):(?P<value>[^\s:/].*)")
_ASSIGNMENT: Final = re.compile(r"\s*(?P<key>[\w.-]+)\s*=\s*(?P<value>\S.*)")


@dataclass(frozen=True)
class _Line:
    """A line that may be wrong; the number counts from 1."""

    number: int
    text: str


def find_conflict(text: str, location: Location) -> Problem | None:
    """The first marker of a merge with conflicts in the text of a file, whose first character is at `location`."""
    marker = _CONFLICT.search(text)
    if marker is None:
        return None
    line = text.count("\n", 0, marker.start()) + 1
    message = f"a merge left a conflict, which '{marker[0]}' marks; keep the lines of one side and remove the markers"
    return Problem(replace(location, line=line), message)


def diagnose(text: str, location: Location, error: yaml.MarkedYAMLError) -> Problem:
    """Return the error that libyaml reports at `location`, at its cause if that is known."""
    lines = lines_of(text)
    line = lines[location.line - 1] if location.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return Problem(location, "a tab indents this line; indent it with spaces")
    if (lost := _lost_entry(lines[: location.line])) is not None:
        return Problem(location, lost)
    reason = str(error.problem or error.context)
    if "undefined alias" in reason:
        alias = line[location.column :].split()[0].rstrip(",]}")
        fix = f"write '&{alias}' before the value that it repeats, or put a text that begins with * in quotes"
        return Problem(location, f"alias '*{alias}' repeats nothing; {fix}")
    context = error.context_mark.line + 1 if error.context_mark else location.line
    if error.context_mark and "quoted scalar" in str(error.context):
        moved = replace(location, line=context, column=error.context_mark.column + 1)
        return Problem(moved, "the quote that opens here is not closed; close it, or put the text in quotes as a whole")
    for suspect in _suspects(lines, location.line, context):
        for column, message in _errors_of(suspect, location):
            return Problem(replace(location, line=suspect.number, column=column), message)
    if (indented := _indentation(lines[: location.line], location)) is not None:
        return Problem(location, indented)
    if error.context_mark and error.context and "flow" in error.context and "node" not in error.context:
        opening = error.context_mark
        bracket = lines[opening.line][opening.column]
        message = f"the bracket {bracket} is not closed, or lacks a comma; close it with {_CLOSED[bracket]}"
        return Problem(replace(location, line=context, column=opening.column + 1), message)
    if "node content" in reason:
        # After a comment the parser has gone on to the next line that has anything.
        last = max((number for number, each in enumerate(lines[: location.line], 1) if each.strip()), default=1)
        moved = location if last == location.line else replace(location, line=last, column=1)
        return Problem(moved, "a value is missing, or begins with a sign that no plain text has; put it in quotes")
    if "another document" in reason:
        return Problem(location, "a second document begins here; remove this line")
    if error.problem and error.context and error.context_mark:
        reason += f" {error.context} that begins at line {context}"
    return Problem(location, f"not valid YAML: {reason}; look at the quotes, brackets and indentation up to here")


def _suspects(lines: Sequence[str], reached: int, context: int) -> Iterator[_Line]:
    """Yield the line at which the parser has stopped, the one before it, and the one where the construct begins."""
    before = next((number for number in range(reached - 1, 0, -1) if lines[number - 1].strip()), reached)
    for number in dict.fromkeys((reached, before, context)):
        if 0 < number <= len(lines):
            yield _Line(number, lines[number - 1])


def _errors_of(line: _Line, location: Location) -> Iterator[tuple[int, str]]:
    """Yield what a line does that no YAML has, and the column."""
    if (space := _ODD_SPACES.search(line.text)) is not None:
        yield space.start() + 1, f"U+{ord(space[0]):04X} looks like a space, and is none; write a space"
    if (entry := _NO_SPACE.fullmatch(line.text)) is not None:
        yield (
            entry.start("key") + 1,
            f"'{entry['key']}:' has no space after it; write '{entry['key']}: {entry['value']}'",
        )
    if (entry := _ASSIGNMENT.fullmatch(line.text)) is not None:
        yield entry.start("key") + 1, f"'{entry[0].strip()}' is no entry; write '{entry['key']}: {entry['value']}'"
    if (entry := _LINE_VALUE.fullmatch(line.text)) is not None:
        yield from _unquoted(entry, 0)
    # In brackets, the entry that the parser was at.
    if line.number == location.line and "{" in line.text[: location.column]:
        start = max(line.text.rfind(sign, 0, location.column) for sign in "{,") + 1
        if (entry := _FLOW_VALUE.match(line.text[start:])) is not None:
            yield from _unquoted(entry, start)


def _unquoted(entry: re.Match[str], start: int) -> Iterator[tuple[int, str]]:
    """Yield why the value of an entry must be in quotes, and its column."""
    value = entry["value"].partition(" #")[0].rstrip()
    first, closing = value[:1], _CLOSED.get(value[:1])
    if closing is not None:
        is_whole = _QUOTED.fullmatch(value) if first in "\"'" else value.endswith(closing) or closing not in value
        if is_whole:  # or one that goes on in the next line
            return
        why = f"a value that begins with {first} ends with the next {closing}"
    elif first in _SIGNS:
        if value in ("|", ">", "|-", ">-", "|+", ">+"):
            return
        why = f"a text that begins with {first} is no plain one"
    elif ": " in value or value.endswith(":"):
        why = f"'{value}' has a colon, as if it were a key"
    else:
        return
    shown = json.dumps(value.strip(), ensure_ascii=False)
    yield start + entry.start("value") + 1, f"{why}; put it in quotes, as in {entry['key']}: {shown}"


def _indentation(lines: Sequence[str], location: Location) -> str | None:
    """The message where the last of `lines` is indented like none of those above it."""
    depths = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not depths or location.column != depths[-1] + 1:
        return None
    *above, depth = depths
    open_depths: list[int] = []
    for each in above:
        open_depths = [*(other for other in open_depths if other < each), each]
    if lines[-1].lstrip().startswith("- "):
        return f"an element of a list stands among keys; write '{lines[-1].lstrip()[2:].strip()}' without the dash"
    if depth in open_depths:
        return None
    known = " or ".join(str(each) for each in sorted(open_depths)[-3:])
    return f"the indentation of this line is {depth}, and of those that it could follow {known}; indent it like one"


def _lost_entry(lines: Sequence[str]) -> str | None:
    """Of lines whose last one is an error, the message where it is an entry below a key that has a value already."""
    entries = [match for line in lines if (match := _ENTRY.fullmatch(line)) is not None]
    written = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(entries) < 2 or written[-2:] != [match.string for match in entries[-2:]]:
        return None
    *above, entry = entries
    owner = above[-1]
    if len(owner["indentation"]) >= len(entry["indentation"]) or not _WHOLE_VALUE.fullmatch(
        _without_comment(owner["value"])
    ):
        return None
    message = f"'{entry['key']}' is indented below '{owner['key']}', which has a value"
    holders = [one["key"] for one in above if not one["value"] and len(one["indentation"]) < len(entry["indentation"])]
    fix = f"move it to the end of '{holders[-1]}'" if holders else "move it below its own key"
    return f"{message}; {fix}, or indent it like '{owner['key']}'"


def _without_comment(value: str | None) -> str:
    return (value or "").partition(" #")[0].rstrip()


def value_fix(wanted: str, content: object) -> str:
    """The end of a message about a value of another type than `wanted`; empty where the message says enough."""
    if wanted == "text" and content is None:
        return "; write it, in quotes where it begins with #, & or !"
    if wanted == "text":
        return "; put it in quotes"
    if wanted == "true or false" and str(content).lower() in _TRUTHS:
        return f"; write {_TRUTHS[str(content).lower()]}"
    if isinstance(content, str) and re.fullmatch(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", content.strip()):
        return f"; write {content.strip().replace('_', '')}"
    return ""


def mapping_fix(content: object) -> str:
    """The end of a message about a value that is no mapping, where a text is an entry without its space."""
    key = re.match(r"[\w.-]+:(?=\S)", content) if isinstance(content, str) else None
    return f"; write a space after '{key[0]}'" if key is not None else ""


def key_fix(key: str) -> str:
    """The end of a message about an unknown key that is no misspelling but YAML that means something else."""
    if key == "<<":
        return "; write the entries out, which no alias can add"
    name, colon, value = key.partition(":")
    return f"; write a space after the colon, '{name}: {value}'" if colon and value else ""
