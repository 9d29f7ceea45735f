"""The page of the command line has every command, with its options and examples."""

from __future__ import annotations

from collections.abc import Iterator

import click
from opgen.cli import main

from docs.site.commands import page


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_every_command_is_on_the_page() -> None:
    text = page(main, "opgen")
    for path, command in commands(main, "opgen"):
        own = text.partition(f"# {path}\n")[2].partition("\n## ")[0]
        if not isinstance(command, click.Group):
            examples = own.partition("```console\n")[2].partition("```")[0].splitlines()
            assert examples, path
            assert any(line.startswith("opgen ") for line in examples), path
        for option in command.params:
            assert not isinstance(option, click.Option) or f"`{option.opts[0]}" in own, (path, option.name)


def test_marks_of_markdown_are_texts() -> None:
    @click.command()
    @click.option("--names", metavar="A|B", help="Any *of* <these>.")
    def one(names: str) -> None:
        """Give [x] or a_b.

        \b
        tool one --names '*'
        """

    text = page(click.Group("tool", {"one": one}), "tool")
    assert r"Give \[x\] or a\_b." in text
    assert r"| `--names A\|B` | Any \*of\* \<these\>. |" in text
    assert "```console\ntool one --names '*'\n```" in text
