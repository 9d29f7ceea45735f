"""Templates read like the files that they emit: no logic in their tags, few tags, no backend's name."""

import itertools
import re
from difflib import SequenceMatcher
from pathlib import Path

import pytest
import yaml

from .project import REPOSITORY

TEMPLATES, RUNTIME = REPOSITORY / "templates", REPOSITORY / "runtime"
RENDERED = sorted(path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.j2"))
BACKENDS = sorted(path.stem for path in (REPOSITORY / "spec" / "backends").glob("*.yaml"))
# The folders of one backend each that fill a family's folder up: what two of them share belongs there.
SISTERS = [sorted((RUNTIME / "backends" / f"{name}_backend").rglob("*.py")) for name in ("cuda", "rocm")]
MAX_SHARED_LINES = 4
GENERATOR = sorted((REPOSITORY / "generator").rglob("*.py"))

# A name, or attributes of one, laid out: everything that a tag may look at.
NAME = r"[a-z_]+(?:\.[a-z_]+)*"
FILTER = r"quoted|cpp_comment|docstring\(\d+\)|comment\(\d+\)|join\(\"[ ,|]+\"\)"
LOOKUP = re.compile(rf"{NAME}(?: \| (?:{FILTER}))?")
TAGS = re.compile(
    rf"for [a-z_]+(?:, [a-z_]+)? in {NAME}(?:\.items\(\))?|if (?:not )?{NAME}|elif (?:not )?{NAME}|else|endif|endfor"
    r"|include '[^']+'|import \"[^\"]+\" as [a-z_]+"
)
# A part of other templates, which they import: macros, which are called like functions.
PARTS = [template for template in RENDERED if template.endswith(".include.j2")]
WHOLE = [template for template in RENDERED if template not in PARTS]
PART_TAGS = re.compile(rf"macro {NAME}\([a-z, ]*\)|endmacro|(?:el)?if {NAME} == \"[a-z]+\"")
CALL = re.compile(rf"{NAME}\((?:{NAME}|\"[a-z]+\")(?:, (?:{NAME}|\"[a-z]+\"))*\)")


def text_of(template: str) -> str:
    return (TEMPLATES / template).read_text(encoding="utf-8")


@pytest.mark.parametrize("template", RENDERED)
def test_tags_hold_no_logic(template: str) -> None:
    text = text_of(template)
    is_part = template in PARTS
    tags = [tag.strip("- \n") for tag in re.findall(r"\{%(.*?)%\}", text, flags=re.S)]
    assert not [tag for tag in tags if not TAGS.fullmatch(tag) and not (is_part and PART_TAGS.fullmatch(tag))]
    lookups = [lookup.strip() for lookup in re.findall(r"\{\{(.*?)\}\}", text, flags=re.S)]
    assert not [lookup for lookup in lookups if not LOOKUP.fullmatch(lookup) and not CALL.fullmatch(lookup)]
    assert is_part or "{#" not in text


@pytest.mark.parametrize("template", WHOLE)
def test_a_template_is_short_and_a_third_of_it_tags_at_most(template: str) -> None:
    """A tag is a line of control, which the output does not have. A line with {{ }} is one of the output's own."""
    lines = text_of(template).splitlines()
    tagged = [line for line in lines if "{%" in line]
    assert len(lines) <= 120
    assert len(tagged) * 3 <= len(lines), f"{len(tagged)} of {len(lines)} lines carry tags"


@pytest.mark.parametrize("template", WHOLE)
def test_a_tag_stands_alone_on_its_line(template: str) -> None:
    """So that `trim_blocks` and `lstrip_blocks` leave no trace of it."""
    for line in text_of(template).splitlines():
        if "{%" in line:
            assert re.fullmatch(r"\s*\{%[^%]*%\}", line), line


# The backend on the host is the one that the others stand on: numbers are converted there, and a tensor without a
# device is there. It is no name among others, and a template may use it; the generator does not know it either.
HOST = "cpu"
# A compiler's word for its target.
MACROS = re.compile(r"__CUDA_ARCH\w+")
# `hip` is the object layer of one backend: like that backend, it names the vendor.
OWN = (*(f"{backend}_backend" for backend in BACKENDS), "hip")
PREFIXES = [
    yaml.safe_load((REPOSITORY / "spec" / "backends" / f"{name}.yaml").read_text(encoding="utf-8"))["class_prefix"]
    for name in BACKENDS
]
FILES = [path for folder in (TEMPLATES, RUNTIME) for path in sorted(folder.rglob("*")) if path.is_file()]
TEXTS = [path.relative_to(REPOSITORY).as_posix() for path in FILES if "__pycache__" not in path.parts]
# PyTorch's names, such as torch.Tensor.cuda.
FOREIGN = "runtime/tensor/equivalents.py"
SHARED = [name for name in TEXTS if not any(folder in name.split("/") for folder in OWN) and name != FOREIGN]


def names_of_backends(text: str) -> list[str]:
    """Backends' names as words or parts of names, and their classes: cuda, CUDA, cuda_backend, CudaStorage."""
    words = re.findall(rf"(?<![a-z])(?:{'|'.join(BACKENDS)})(?![a-z])", text, flags=re.I)
    return words + re.findall(rf"\b(?:{'|'.join(PREFIXES)})(?:[A-Z]\w*)", text)


def test_no_backend_is_named_in_the_generator() -> None:
    # Python calls the processor's cores so.
    texts = {file: file.read_text(encoding="utf-8").replace("os.cpu_count()", "") for file in GENERATOR}
    assert {file.name: actual for file, text in texts.items() if (actual := names_of_backends(text))} == {}


def test_the_generator_knows_no_package() -> None:
    known = "|".join(["tallow", *(path.parent.name for path in (RUNTIME / "backends").glob("*/__init__.py"))])
    texts = {file: file.read_text(encoding="utf-8") for file in (*GENERATOR, REPOSITORY / "generator/README.md")}
    assert {file.name: actual for file, text in texts.items() if (actual := re.findall(known, text, flags=re.I))} == {}


def test_no_backend_is_named_in_a_file_that_serves_several() -> None:
    assert [name for name in SHARED if names_of_backends(name)] == []
    texts = {name: MACROS.sub("", (REPOSITORY / name).read_text(encoding="utf-8")) for name in SHARED}
    named = {
        name: [actual for actual in names_of_backends(text) if not actual.lower().startswith(HOST)]
        for name, text in texts.items()
    }
    assert {name: actual for name, actual in named.items() if actual} == {}


def test_the_search_finds_names() -> None:
    assert len(BACKENDS) >= 4
    assert len(SHARED) > len(RENDERED)
    actual = names_of_backends("if backend == 'rocm': from .cuda_backend import _METAL; return CudaStorage(Metal)")
    assert actual == ["rocm", "cuda", "METAL", "Metal", "CudaStorage"]


def code_of(file: Path) -> list[str]:
    """The lines that say something, imports aside."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(("import ", "from "))]


def test_what_two_backends_share_is_in_the_package_of_their_family() -> None:
    codes = [{file: code_of(file) for file in files} for files in SISTERS]
    shared = {}
    for one, other in itertools.product(*codes):
        lines = codes[0][one]
        matcher = SequenceMatcher(None, lines, codes[1][other], autojunk=False)
        start, _, length = matcher.find_longest_match()
        if length > MAX_SHARED_LINES:
            shared[one.name, other.name] = lines[start : start + length]
    assert shared == {}
