"""Pictures of pages as part of the page, so that they follow its theme and not that of the system."""

import re
from html import escape
from pathlib import Path

# A paragraph that is nothing but a picture.
_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([\w./-]+\.svg)\)$", re.MULTILINE)
_STYLE = re.compile(r"<style>\n(.*?)</style>", re.DOTALL)
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(.*?)\n *\}(?=\n|$)", re.DOTALL)
_SELECTOR = re.compile(r"(?<![\w.-])(?:text|rect|\.[a-z][\w-]*)(?= \{)")


def inline(page: str, folder: Path) -> str:
    """Inline each picture that has rules for a dark background; links are relative to `folder`."""

    def drawn(match: re.Match[str]) -> str:
        text, file = match[1], folder / match[2]
        picture = file.read_text(encoding="utf-8")
        if _DARK.search(picture) is None:
            return match[0]
        label = escape(" ".join(text.split()), quote=True)
        # The page says what it shows; a title of the picture would be a tooltip everywhere.
        picture = re.sub(r'<title id="title">.*?</title>\n', "", picture, count=1)
        width = re.findall(r'viewBox="0 0 (\d+) ', picture)[0]
        # Its letters are as large as they were drawn: where the page is narrower, it scrolls.
        attributes = f'class="plots" style="width: {width}px" aria-label="{label}"'
        picture = re.sub(r'aria-labelledby="[^"]*"', attributes, picture, count=1)
        picture = _STYLE.sub(lambda style: f"<style>\n{_scoped(style[1])}</style>", picture, count=1)
        return f'```{{raw}} html\n<figure class="wide">\n{picture}</figure>\n```'

    return _PICTURE.sub(drawn, page)


def _scoped(style: str) -> str:
    """Rules of a file for one picture of a page, whose theme says whether its ground is dark."""
    dark = "".join(rules for rules in _DARK.findall(style))
    light = _DARK.sub("", style)
    return "\n".join(
        [
            _SELECTOR.sub(lambda match: f"svg.plots {match[0]}", light).strip(),
            _SELECTOR.sub(lambda match: f'html[data-theme="dark"] svg.plots {match[0]}', dark),
            "",
        ]
    )
