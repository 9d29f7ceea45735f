"""Which files a user's kernel may include."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tallow.runtime.backends.gpu_backend.execute.includes import files_of

HEADERS = {"types.hpp": '#include "basic.hpp"\n', "basic.hpp": "#include <own/sizes.h>\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of headers beside the current one, which is empty."""
    for name, text in {
        "own/sizes.h": '#include "more.h"\n',
        "own/more.h": "",
        "first.h": "",
        "second.h": "",
        "loop.h": '#pragma once\n#include "own/../own/back.h"\n',
        "own/back.h": '#include "../loop.h"\n',
    }.items():
        path = tmp_path / "headers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("CPATH", raising=False)
    monkeypatch.delenv("CPLUS_INCLUDE_PATH", raising=False)
    return tmp_path / "headers"


def names_of(folder: Path, source: str, *options: str) -> list[str] | None:
    files = files_of(source, options, HEADERS)
    if files is None:
        return None
    return sorted(os.path.relpath(file.rpartition(" ")[0][1:-1], folder) for file in files)


@pytest.mark.parametrize(
    "options",
    [
        ("-I{}",),
        ("-I", "{}"),
        ("-I {}",),
        ("--include-path={}",),
        ("-isystem", "{}"),
        ("-iquote{}", "-DX=1"),
        ("-I../headers/own/..",),
        ("-DX -I{}",),
        ("-Xclang,-I,{}",),
    ],
)
def test_files_are_found_in_the_folders_that_options_name(folder: Path, options: tuple[str, ...]) -> None:
    inputs = [option.format(folder) for option in options]
    assert names_of(folder, '#include "first.h"\n#include <own/sizes.h>', *inputs) == [
        "first.h",
        "own/more.h",
        "own/sizes.h",
    ]


@pytest.mark.parametrize("options", [("-include", "{}/first.h"), ("--pre-include=first.h", "-I{}")])
def test_a_file_that_an_option_includes(folder: Path, options: tuple[str, ...]) -> None:
    assert names_of(folder, "", *(option.format(folder) for option in options)) == ["first.h"]


def test_files_beside_the_process_in_the_environment_and_by_their_whole_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_of(folder, '#include "first.h"') == []
    assert names_of(folder, f'#include "{folder}/first.h"') == ["first.h"]
    Path("first.h").write_text("")
    assert names_of(folder, '#include "first.h"') == ["../here/first.h"]
    monkeypatch.setenv("CPATH", f"{folder / 'own'}{os.pathsep}{folder}")
    # Whichever of them the compiler takes.
    assert names_of(folder, '#include "first.h"') == ["../here/first.h", "first.h"]


def test_files_that_headers_of_tallow_include(folder: Path) -> None:
    assert names_of(folder, '#include "types.hpp"', f"-I{folder}") == ["own/more.h", "own/sizes.h"]
    assert names_of(folder, "", f"-I{folder}") == []


def test_files_that_include_each_other(folder: Path) -> None:
    assert names_of(folder, "#include <loop.h>", f"-I{folder}") == ["loop.h", "own/back.h"]


def test_a_change_of_any_file_is_told(folder: Path) -> None:
    def found() -> object:
        return files_of("#include <own/sizes.h>", [f"-I{folder}"], HEADERS)

    before = found()
    assert found() == before
    (folder / "own/more.h").write_text("// changed")
    assert found() != before
    (folder / "own/more.h").write_text("")
    assert found() == before
    # One that is found before another is.
    (folder / "more.h").write_text("")
    assert found() != before


# Directives that include first.h and second.h.
FORMS = {
    "conditions": '#if 0\n#include "first.h"\n#elif __has_include("second.h")\n#include "second.h"\n#endif',
    "spaces and comments": ' /* a\n b */ # /* c */ include/**/"first.h" // d\n\t#\tinclude <second.h>',
    "joined lines": '#incl\\\nude "first.h"\n# \\\ninclude \\\n  "second.h"',
    "a comment that ends in a backslash and a space": '// C:\\ \n#include "first.h"\n#include "second.h"',
    "digraphs and trigraphs": '%:include "first.h"\n??=include "second??/\n.h"',
    "other directives": '#include_next "first.h"\n#import "second.h"',
    "strings of comments": 'const char* a = "/*";\n#include "first.h"\nconst char* b = "*/ //";\n#include "second.h"',
    "a raw string": 'const char* a = R"(\n\\\n)";\n#include "first.h"\n#include "second.h"\n',
    "other ends of lines": '// a\r\n#include "first.h"\r\n#include "second.h"\r\n',
    "a mark of UTF-8": '\ufeff#include "first.h"\n#include "second.h"',
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_directive_is_followed(folder: Path, form: str) -> None:
    (folder / "form.h").write_bytes(FORMS[form].encode())
    actual = names_of(folder, '#include "form.h"', f"-I{folder}")
    assert actual == ["first.h", "form.h", "second.h"]
    if shutil.which("g++") is None:
        return
    # A compiler reads none but these.
    command = ["g++", "-x", "c++", "-std=c++17", "-trigraphs", "-w", "-M", f"-I{folder}", str(folder / "form.h")]
    read = subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ").split()
    assert {os.path.relpath(file, folder) for file in read if str(folder) in file} <= set(actual)


@pytest.mark.parametrize(
    "text",
    [
        '#define NAME "first.h"\n#include NAME\n',
        "#include/**/NAME(first)\n",
        "/* a\n*/ #include \\\nNAME\n",
        'asm(".incbin \\"data\\"");',
    ],
)
def test_a_file_that_a_macro_names_is_known_to_nobody(folder: Path, text: str) -> None:
    assert names_of(folder, text) is None
    (folder / "named.h").write_text(text)
    assert names_of(folder, '#include "named.h"', f"-I{folder}") is None


@pytest.mark.parametrize("text", ["// Each #include follows.\n", "/*\n * #include it\n */\n", "int included; // #\n"])
def test_what_comments_say_is_no_directive(folder: Path, text: str) -> None:
    assert names_of(folder, text) == []


def test_what_is_no_file_is_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.h")
    (folder / "gone.h").symlink_to("nowhere")
    source = f'#include "pipe.h"\n#include "gone.h"\n#include "own"\n#include "{"long" * 2000}"\n#include "\udcff.h"\n'
    assert names_of(folder, source, f"-I{folder}", "-D" + "X" * 5000) == []
