"""Checks of SVG pictures that need no renderer."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

SPACE = "{http://www.w3.org/2000/svg}"
# Which font a reader has is not known. DejaVu's letters are wide: of its sans a letter is 0.57 of the size on average,
# of its bold 0.64 and of its fixed-width letters 0.61.
_LETTERS = {"sans": 0.58, "head": 0.65, "code": 0.61}

Box = tuple[float, float, float, float]
"""The left, upper, right and lower end."""


def wrong_texts(picture: str) -> list[str]:
    """The texts that leave the picture, or the smallest box around the point that they are placed at."""
    root = ET.fromstring(picture)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    boxes = [(0.0, 0.0, width, height)]
    for rect in root.iter(f"{SPACE}rect"):
        if not rect.get("class", "").startswith(("mark", "band")):
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes.append((x, y, x + width, y + height))
    wrong = []
    for element, box in _texts(root):
        at = float(element.attrib["x"]), float(element.attrib["y"])
        around = [it for it in boxes if it[0] <= at[0] <= it[2] and it[1] <= at[1] <= it[3]]
        smallest = min(around, key=lambda it: (it[2] - it[0]) * (it[3] - it[1]), default=boxes[0])
        if box[0] < smallest[0] or box[1] < smallest[1] or box[2] > smallest[2] or box[3] > smallest[3]:
            wrong.append(str(element.text))
    return wrong


def crossing_texts(picture: str) -> list[tuple[str, str]]:
    """The pairs of texts that run into each other."""
    results = [(str(element.text), box) for element, box in _texts(ET.fromstring(picture))]
    return [
        (text, other)
        for index, (text, box) in enumerate(results)
        for other, second in results[:index]
        if box[0] < second[2] and second[0] < box[2] and box[1] < second[3] and second[1] < box[3]
    ]


def hidden_marks(picture: str) -> list[tuple[str, str]]:
    """The pairs of marks of one op that lie on each other."""
    results = []
    for element in ET.fromstring(picture).iter():
        if element.get("class", "").startswith("mark") and len(element):
            results.append((str(element[0].text), _mark(element)))
    return [
        (text, other)
        for index, (text, box) in enumerate(results)
        for other, second in results[:index]
        # Less than a pixel is their border.
        if box[0] < second[2] and second[0] < box[2] and box[1] + 1 < second[3] and second[1] + 1 < box[3]
    ]


def _texts(root: ET.Element) -> Iterator[tuple[ET.Element, Box]]:
    style = str(next(root.iter(f"{SPACE}style")).text)
    by_class = dict(re.findall(r"^\s*\.(\w+) \{(.*?)\}", style, re.MULTILINE))
    [common] = re.findall(r"^\s*text \{(.*?)\}", style, re.MULTILINE)[:1]
    for element in root.iter(f"{SPACE}text"):
        classes = element.get("class", "").split()
        rules = " ".join([common, *(by_class.get(name, "") for name in classes)])
        size = float(re.findall(r"(\d+)px", rules)[-1])
        letter = _LETTERS[next((name for name in classes if name in _LETTERS), "sans")]
        width = size * letter * len(str(element.text))
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        anchor = (["start", *re.findall(r"text-anchor: (\w+)", rules)])[-1]
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        yield element, (left, y - 0.75 * size, left + width, y + 0.22 * size)


def _mark(element: ET.Element) -> Box:
    if element.tag == f"{SPACE}circle":
        x, y, half = (float(element.attrib[name]) for name in ("cx", "cy", "r"))
    elif element.tag == f"{SPACE}rect":
        half = float(element.attrib["width"]) / 2
        x, y = float(element.attrib["x"]) + half, float(element.attrib["y"]) + half
    else:
        x, top, half = map(float, re.findall(r"[\d.]+", element.attrib["d"])[:3])
        y = top + half
    return x - half, y - half, x + half, y + half
