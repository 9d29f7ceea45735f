"""The picture of README says of each backend what the matrix says."""

import json
import xml.etree.ElementTree as ET

import pytest
import yaml
from pictures import crossing_texts, wrong_texts

from .project import HERE, REPOSITORY, Project

SVG = "{http://www.w3.org/2000/svg}"
BACKENDS = sorted(path.stem for path in (REPOSITORY / "spec" / "backends").glob("*.yaml"))


def drawn(project: Project) -> dict[str, tuple[str, str]]:
    """By the name of each backend's storage its words, and how its box looks."""
    elements = list(ET.parse(project.output / "docs/flow.svg").getroot())
    names = [element for element in elements if element.get("class") == "code left"]
    results = {}
    for name in names:
        box, words = elements[elements.index(name) - 1], elements[elements.index(name) + 1]
        assert box.tag == f"{SVG}rect"
        assert words.get("y") == name.get("y")
        results[str(name.text)] = str(words.text), str(box.get("class"))
    return results


def storage_of(backend: str) -> str:
    file = REPOSITORY / "spec" / "backends" / f"{backend}.yaml"
    return f"{yaml.safe_load(file.read_text(encoding='utf-8'))['class_prefix']}Storage"


def test_each_backend_has_a_row() -> None:
    assert sorted(drawn(Project(REPOSITORY))) == sorted(storage_of(backend) for backend in BACKENDS)


@pytest.fixture(scope="module")
def cells() -> list[dict[str, str | None]]:
    result: list[dict[str, str | None]] = json.loads(Project(REPOSITORY).run("matrix", "--format", "json").stdout)
    return result


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_says_what_the_matrix_says(cells: list[dict[str, str | None]], backend: str) -> None:
    words, style = drawn(Project(REPOSITORY))[storage_of(backend)]
    vias = [cell["via"] for cell in cells if cell["backend"] == backend and cell["via"]]
    assert (style == "made") == bool(vias)
    libraries = {word for via in vias if ": " in via for word in via.partition(": ")[0].split(", ")} - {
        "nondeterministic"
    }
    assert set(words.split(", ")[1:]) == (libraries if vias else {"and says so"})


def test_a_backend_that_is_added_is_drawn(repository: Project) -> None:
    repository.change(HERE / "golden/changes/add_backend")
    before = drawn(repository)
    assert drawn(repository.generate()) == before | {"VulkanStorage": ("unsupported, and says so", "absent")}
    assert wrong_texts((repository.output / "docs/flow.svg").read_text(encoding="utf-8")) == []


def test_words_stay_in_their_boxes() -> None:
    picture = (Project(REPOSITORY).output / "docs/flow.svg").read_text(encoding="utf-8")
    assert wrong_texts(picture) == []
    assert crossing_texts(picture) == []


def test_a_row_has_room_for_its_words(repository: Project) -> None:
    repository.edit("spec/backends/cuda.yaml", "class_prefix: Cuda", "class_prefix: CudaOfAVeryLongNameIndeed")
    picture = (repository.generate().output / "docs/flow.svg").read_text(encoding="utf-8")
    assert "CudaOfAVeryLongNameIndeedStorage" in picture
    assert wrong_texts(picture) == []
    assert crossing_texts(picture) == []
