"""`opgen new backend` writes the file of a backend on an array library, from which generation works at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from .project import HERE, Project

NEW = ("new", "backend")
FILE = "spec/backends/slates.yaml"


@pytest.fixture
def arrays(small: Project) -> Project:
    shutil.copytree(HERE / "golden" / "overlays" / "arrays", small.root, dirs_exist_ok=True)
    return small.generate()


def write(project: Project, *arguments: str, name: str = "slates", module: str = "not_installed.slates") -> Path:
    result = project.run(*NEW, name, "--module", module, *(arguments or ("--family", "arrays")))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote spec/backends/{name}.yaml; look at its choices, then run 'opgen generate'\n"
    return project.root / f"spec/backends/{name}.yaml"


def test_generation_works_at_once(arrays: Project) -> None:
    write(arrays)
    arrays.generate()
    assert "tallow/slates_backend/__init__.py" in arrays.files()


def test_each_choice_is_marked(arrays: Project) -> None:
    lines = write(arrays).read_text(encoding="utf-8").splitlines()
    keys = (
        "doc",
        "class_prefix",
        "extra",
        "requires",
        "label",
        "display",
        "preference",
        "dlpack",
        "dtypes",
        "spellings",
    )
    for key in (*keys, "count", "handle", "name"):
        assert any(line.strip("# ").startswith(f"{key}:") and "  # " in line for line in lines), key


def test_what_no_two_backends_may_share_is_free(arrays: Project) -> None:
    write(arrays)
    write(arrays, name="bricks")
    arrays.generate()


def test_words_without_a_spelling_are_spelled_and_the_others_listed(arrays: Project) -> None:
    file = write(arrays)
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["array"]["spellings"] == {"take": "xp.take(x, positions)"}
    assert '    # exp: "xp.exp(x)"  # e to the power x\n' in text
    assert "    # bitcast:  # bitcast(x, dtype): the same bits\n" in text
    assert "is not installed here" in text


def test_no_lack_of_a_library_that_is_not_installed_is_invented(arrays: Project) -> None:
    arrays.edit("spec/dtypes.yaml", "numpy: numpy.float16", "numpy: ml_dtypes.bfloat16")
    text = write(arrays).read_text(encoding="utf-8")
    assert yaml.safe_load(text)["array"]["dtypes"]["f16"] == "xp.bfloat16"
    assert text.count("not_installed.slates is not installed here, so that nobody looked for what it lacks") == 2


def test_what_an_installed_library_lacks_is_marked(arrays: Project) -> None:
    file = write(arrays, module="math")
    text = file.read_text(encoding="utf-8")
    assert '    # sum: "xp.sum(x, axis=axis)"  # sum(x, axis): sums; no sum\n' in text
    assert "is not installed" not in text
    assert yaml.safe_load(text)["array"]["dtypes"]["f32"] == {"unsupported": "math has no float32; use another dtype"}


def test_nothing_is_overwritten(arrays: Project) -> None:
    file = write(arrays)
    before = file.read_bytes()
    result = arrays.run(*NEW, "slates", "--family", "arrays", "--module", "slates")
    assert (result.exit_code, result.stderr) == (
        1,
        f"{FILE} is there already; choose another name, or remove it\n",
    )
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("slates", "--family", "arays", "--module", "m"), "unknown family 'arays'; did you mean 'arrays'?"),
        (
            ("slates", "--family", "chips", "--module", "m"),
            "family 'chips' is not one of array libraries; give one of 'arrays'",
        ),
        (("../slates", "--family", "arrays", "--module", "m"), "'../slates' cannot be a name"),
        (("slates", "--family", "arrays", "--module", "m n"), "'m n' is no module; write what Python imports"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arrays: Project, arguments: tuple[str, ...], reason: str) -> None:
    result = arrays.run(*NEW, *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert not (arrays.root / FILE).exists()
