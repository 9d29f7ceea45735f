"""The reference of the command line, from click."""

import inspect
import re
from collections.abc import Iterator

import click


def page(main: click.Group, name: str) -> str:
    """Describe each command, with its examples and options, in Markdown."""
    lines = ["# Command line", *_command(main, click.Context(main, info_name=name), 1)]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    if level > 1:
        yield from ("", f"{'#' * min(level, 3)} {context.command_path}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", "```text", f"{context.command_path} {usage}", "```")
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(command.help or "")):
        # Below \b click keeps lines as they are: these are examples.
        example = paragraph.removeprefix("\b\n")
        yield ""
        yield from ("```console", *example.splitlines(), "```") if example != paragraph else [_text(paragraph)]
    options = [it.get_help_record(context) for it in command.get_params(context) if isinstance(it, click.Option)]
    if options:
        bar = r"\|"
        yield from ("", "| option | what it does |", "| --- | --- |")
        yield from (f"| `{name.replace('|', bar)}` | {_text(text)} |" for name, text in filter(None, options))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            member = command.get_command(context, each)
            if member is not None and not member.hidden:
                yield from _command(member, click.Context(member, info_name=each, parent=context), level + 1)


def _text(text: str) -> str:
    return re.sub(r"([*_<>\[\]|])", r"\\\1", " ".join(text.split()))
