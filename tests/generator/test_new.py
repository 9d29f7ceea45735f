"""`opgen new` writes something new to a spec, from which generation works at once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from opgen import write as write_stage
from opgen.entries import functor_kind

from .project import HERE, OPGEN, Project

NEW = ("new", "backend")
FILE = "spec/backends/slates.yaml"


@pytest.fixture
def arrays(small: Project) -> Project:
    shutil.copytree(HERE / "golden" / "overlays" / "arrays", small.root, dirs_exist_ok=True)
    return small.generate()


def write(project: Project, *arguments: str, name: str = "slates", module: str = "not_installed.slates") -> Path:
    result = project.run(*NEW, name, "--module", module, *(arguments or ("--family", "arrays")))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote spec/backends/{name}.yaml\nlook at the choices, then run 'opgen generate'\n"
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
    arrays.edit("spec/dtypes.yaml", "exponent: 5, fraction: 10, multiplicand: f16", "exponent: 8, fraction: 7")
    text = write(arrays).read_text(encoding="utf-8")
    assert yaml.safe_load(text)["array"]["dtypes"]["f16"] == "xp.bfloat16"
    assert text.count("not_installed.slates is not installed here, so its missing functions are unknown") == 2


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


def new(project: Project, *arguments: str) -> list[str]:
    """The files that `opgen new` says it wrote; then generation has to work."""
    result = project.run("new", *arguments)
    assert result.exit_code == 0, result.output
    *wrote, last = result.stdout.splitlines()
    assert last == "look at the choices, then run 'opgen generate'"
    project.generate()
    return [line.removeprefix("wrote ") for line in wrote]


def added(before: str, after: str) -> str:
    """What was put into a text, which otherwise is as it was."""
    old, remaining = before.splitlines(), after.splitlines()
    own = []
    for line in remaining:
        if old and line == old[0]:
            old.pop(0)
        else:
            own.append(line)
    assert old == []
    return "\n".join(own)


def test_a_new_op_is_one_entry(small: Project) -> None:
    file = small.root / "spec/functors/unary.yaml"
    text = "# A comment.\n" + file.read_text(encoding="utf-8") + "\n# Another one, at the end.\n"
    file.write_text(text, encoding="utf-8")
    arguments = ("op", "bent", "--kind", "map", "--formula", formula := "x * x + x")
    # One backend has no cell for all ops of the kind.
    assert new(small, *arguments) == ["spec/functors/unary.yaml", "spec/backends/host.yaml"]
    entry = yaml.safe_load(added(text, file.read_text(encoding="utf-8")))
    assert entry == {"bent": {"doc": "what bent gives", "dtypes": "real", "formula": formula}}
    assert small.run("matrix", "bent").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "formula", "file"),
    [
        *(("map", "x + 1", "unary"), ("map", "x * y", "binary"), ("map", "x > y", "cmp"), ("map", "x +", "unary")),
        *(("reduction", "x + y", "reduce"), ("row", "x / sum(x)", "row"), ("scan", "x + y", "scan")),
    ],
)
def test_the_file_of_an_op_follows_from_its_kind(kind: str, formula: str, file: str) -> None:
    assert functor_kind(kind, formula) == file


def test_the_first_op_of_rows_writes_the_files_that_they_need(small: Project) -> None:
    files = new(small, "op", "shares", "--kind", "row", "--formula", "x * x * count")
    assert files == [
        *("spec/functors/row.yaml", "spec/functors/row_gradient.yaml", "spec/storage/row.yaml"),
        *("spec/families/chips.yaml", "spec/backends/host.yaml"),
    ]
    assert small.run("matrix", "shares_gradient").exit_code == 0
    assert new(small, "op", "more", "--kind", "row", "--formula", "x + count")[0] == "spec/functors/row.yaml"


def test_the_first_scan_writes_the_files_that_it_needs(small: Project) -> None:
    files = new(small, "op", "running", "--kind", "scan", "--formula", "x + y")
    own = ["spec/functors/scan.yaml", "spec/storage/scan.yaml"]
    assert files == [*own, "spec/families/chips.yaml", "spec/backends/host.yaml"]
    assert small.run("matrix", "running").exit_code == 0
    assert new(small, "op", "more", "--kind", "scan")[0] == "spec/functors/scan.yaml"


def test_an_entry_is_put_where_its_mapping_ends(small: Project) -> None:
    file = small.root / "spec/functors/binary.yaml"
    new(small, "op", "both", "--kind", "map", "--formula", "x * y + x")
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[2] == "  both:"
    assert lines[-1].startswith("unsupported:")


def test_a_file_that_is_missing_is_written(small: Project) -> None:
    (small.root / "spec/functors/binary.yaml").unlink()
    result = small.run("new", "op", "both", "--kind", "map", "--formula", "x * y + x")
    assert result.exit_code == 0, result.output
    assert "no storage method chooses between ops of binary" in result.stderr
    small.generate()


def test_a_new_dtype_is_whole(small: Project) -> None:
    assert new(small, "dtype", "i8") == ["spec/dtypes.yaml"]
    actual = yaml.safe_load((small.root / "spec/dtypes.yaml").read_text(encoding="utf-8"))["dtypes"]["i8"]
    assert actual == {"doc": "signed 8-bit integer", "kind": "signed", "bytes": 1, "compute": "i8", "safetensors": "I8"}


@pytest.mark.parametrize(
    ("name", "bits"), [("bf16", (8, 7, None)), ("f8e5m2fnuz", (5, 2, "fnuz")), ("f16e6m9", (6, 9, None))]
)
def test_the_name_of_a_new_float_says_its_bits(small: Project, name: str, bits: tuple[int, int, str | None]) -> None:
    assert new(small, "dtype", name) == ["spec/dtypes.yaml"]
    result = yaml.safe_load((small.root / "spec/dtypes.yaml").read_text(encoding="utf-8"))["dtypes"][name]
    assert (result["exponent"], result["fraction"], result.get("specials")) == bits
    small.generate()


@pytest.mark.parametrize("arguments", [("complex64",), ("pair", "--kind", "complex", "--bytes", "8")])
def test_a_new_complex_dtype_names_the_dtype_of_its_parts(small: Project, arguments: tuple[str, ...]) -> None:
    assert new(small, "dtype", *arguments) == ["spec/dtypes.yaml"]
    actual = yaml.safe_load((small.root / "spec/dtypes.yaml").read_text(encoding="utf-8"))["dtypes"][arguments[0]]
    assert (actual["kind"], actual["bytes"], actual["real"]) == ("complex", 8, "f32")
    assert (actual["compute"], "index_mark" in actual) == (arguments[0], False)


def test_backends_that_list_dtypes_say_that_they_lack_a_new_one(arrays: Project) -> None:
    write(arrays)
    assert "spec/backends/slates.yaml" in new(arrays, "dtype", "i8")
    backend = yaml.safe_load((arrays.root / "spec/backends/slates.yaml").read_text(encoding="utf-8"))
    assert backend["array"]["dtypes"]["i8"] == {"unsupported": "i8 is not written yet; use another dtype"}


def test_a_new_method_has_a_cell_on_every_backend(small: Project) -> None:
    files = ["spec/storage/linear.yaml", "spec/families/chips.yaml", "spec/backends/host.yaml"]
    assert sorted(new(small, "method", "trace", "--file", "linear")) == sorted(files)
    assert sorted(new(small, "method", "det", "--file", "linear")) == sorted(files)
    result = small.run("matrix", "trace", "--backend", "host")
    assert "unsupported: trace is not written yet" in result.stdout


def test_a_backend_of_a_family_that_lacks_a_method_says_so(arrays: Project) -> None:
    new(arrays, "method", "trace")
    write(arrays)
    arrays.generate()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("op", "exp", "--kind", "map"), 1, "spec/functors/unary.yaml has the op 'exp' already"),
        (
            ("op", "bent", "--kind", "map", "--formula", "exq(x)"),
            1,
            "unknown primitive 'exq' in 'formula' of op 'bent'",
        ),
        (("op", "Bent", "--kind", "map"), 2, "'Bent' cannot be a name"),
        (("dtype", "u8"), 1, "spec/dtypes.yaml has the dtype 'u8' already"),
        (("dtype", "posit"), 1, "what 'posit' is does not follow from its name; give --kind and --bytes"),
        (("method", "powf", "--file", "elementwise"), 1, "spec/storage/elementwise.yaml has the method 'powf' already"),
    ],
)
def test_what_cannot_be_added_changes_nothing(
    small: Project, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = {file: file.read_bytes() for file in small.root.rglob("*.yaml")}
    result = small.run("new", *arguments)
    assert (result.exit_code, message in result.stderr) == (code, True), result.output
    assert {file: file.read_bytes() for file in small.root.rglob("*.yaml")} == before


WRITERS = {
    "op": ("new", "op", "twice", "--kind", "map", "--formula", "x + x"),
    "dtype": ("new", "dtype", "i64"),
    "method": ("new", "method", "trace", "--file", "elementwise"),
    "backend": ("new", "backend", "slates", "--family", "arrays", "--module", "slates"),
    "schema": ("schema",),
    "generate": ("generate",),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_another_run_writes_before_the_lock_is_free_is_not_lost(
    arrays: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {
        "spec/functors/unary.yaml": ("ops:\n", "ops:\n  # another\n"),
        "spec/storage/elementwise.yaml": ("methods:\n", "methods:\n  # another\n"),
        "spec/dtypes.yaml": ("dtypes:\n", "dtypes:\n  # another\n"),
        "spec/package.yaml": ("max_rank: 8", "max_rank: 9"),
    }
    real, waits = write_stage._wait_for_lock, []

    def wait(*arguments: Any) -> None:
        for file, (find, replace) in entries.items() if not waits else ():
            arrays.edit(file, find, replace)
        waits.append(arguments)
        real(*arguments)

    monkeypatch.setattr(write_stage, "_wait_for_lock", wait)
    result = arrays.run(*WRITERS[name])
    assert result.exit_code == 0, result.output
    assert len(waits) == 1
    if name == "generate":
        assert b"MAX_RANK = 9" in arrays.files()["tallow/limits.py"]
    assert all(entry in (arrays.root / file).read_text(encoding="utf-8") for file, (_, entry) in entries.items())
    arrays.generate()


@pytest.mark.full
def test_18_runs_at_once_lose_nothing(small: Project) -> None:
    names = [f"op_{number}" for number in range(18)]
    options = ("--kind", "map", "--formula", "x * x")
    started = [subprocess.Popen([OPGEN, "--root", small.root, "new", "op", name, *options]) for name in names]
    assert [process.wait() for process in started] == [0] * len(started)
    text = (small.root / "spec/functors/unary.yaml").read_text(encoding="utf-8")
    assert {*names} <= yaml.safe_load(text)["ops"].keys()
    small.generate()
