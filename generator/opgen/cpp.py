"""As much C++ as it takes to resolve names: the tokens of an expression, and the names that a header defines."""

import re
from collections.abc import Iterator, Sequence

from opgen.cache.memo import memoize

_TOKEN = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?\*/ )
      | (?P<name> [A-Za-z_]\w* )
      | (?P<number> \.?\d (?: [eEpP][+-] | [\w.'] )* )
      | (?P<text> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
      | (?P<mark> \S )""",
    re.VERBOSE | re.DOTALL,
)
# What is no code: comments, texts and directives, whose brackets are none. One after the other is faster than at once.
_NO_CODE = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"//[^\n]*",
        r"/\*.*?\*/",
        r'"(?:\\.|[^"\\\n])*"',
        r"'(?:\\.|[^'\\])'",
        r"\n[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    )
)
_END = re.compile(r"[;{}]")
_TOKEN_TEXT = re.compile(r"\w+|\S")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", re.MULTILINE)
# The names that the language itself gives an expression, and T, the type of a functor's operands.
_WORDS = frozenset(
    {"T", "auto", "bool", "char", "const", "double", "false", "float", "int", "long", "nullptr", "short", "signed"}
    | {"sizeof", "static_cast", "true", "unsigned"}
)
_ATTRIBUTES = ("__attribute__", "alignas")


def camel(name: str) -> str:
    """Return the C++ name of a functor's struct: leaky_relu -> LeakyRelu."""
    return "".join(part.capitalize() for part in name.split("_"))


def snake(name: str) -> str:
    """Return the Python name for a struct: SoftmaxRows -> softmax_rows."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def names_in(expression: str) -> list[str]:
    """The names that an expression reads: not the words of C++, and no members."""
    matches = list(_TOKEN.finditer(expression))
    before = ["", *(match[0] for match in matches)]
    return [
        match[0]
        for match, previous in zip(matches, before, strict=False)
        if match.lastgroup == "name" and match[0] not in _WORDS and previous != "."
    ]


@memoize(lambda header: (header,), size=256)
def defined_in(header: str) -> frozenset[str]:
    """The functions, types and constants that a header defines outside of classes and functions."""
    macros = _MACRO.findall(header)
    text = f"\n{header}"
    for pattern in _NO_CODE:
        text = pattern.sub("", text)
    names: set[str] = set()
    for macro in macros:
        # What is defined through a macro is its argument.
        use = re.compile(rf"^{macro}\((\w+)\)", re.MULTILINE)
        names.update(use.findall(text))
        text = use.sub("", text)
    for declaration in _declarations(text):
        names.update(_declared(_TOKEN_TEXT.findall(declaration)))
    return frozenset(names)


def _declarations(text: str) -> Iterator[str]:
    """The heads of declarations, up to their bodies, in namespaces alone."""
    depth = start = 0
    for match in _END.finditer(text):
        if depth:
            depth += {"{": 1, "}": -1}.get(match[0], 0)
        else:
            head = text[start : match.start()].lstrip()
            yield head
            depth = int(match[0] == "{" and not head.startswith(("namespace", "extern")))
        start = match.end()


def _declared(head: list[str]) -> Iterator[str]:
    if head[:1] == ["template"]:
        head = head[_end(head, 1, "<", ">") :]
    for attribute in _ATTRIBUTES:
        if attribute in head:
            start = head.index(attribute)
            head = head[:start] + head[_end(head, start + 1, "(", ")") :]
    match head:
        case ["struct" | "class" | "union" | "enum" | "using", name, *_]:
            yield name
        case ["namespace" | "extern" | "static_assert", *_]:
            pass
        case _:
            # A function's name stands before its parameters, a constant's before its value.
            ends = [head.index(mark) for mark in "(=" if mark in head]
            name = head[min(ends) - 1] if ends else ""
            if name.isidentifier():
                yield name


def _end(tokens: Sequence[str], start: int, opening: str, closing: str) -> int:
    """Where the brackets that open at `start` are closed, and what follows begins."""
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position] == opening) - (tokens[position] == closing)
        if depth == 0:
            return position + 1
    return len(tokens)
