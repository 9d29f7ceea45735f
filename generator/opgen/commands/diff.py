"""opgen diff."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from opgen.commands.options import patience, root_option
from opgen.commands.trees import Branch, show
from opgen.comparison.breaks import Break, breaks
from opgen.comparison.changes import Change, Comparison, Difference, compare
from opgen.comparison.records import ORDER
from opgen.comparison.revision import spec_at
from opgen.problem import one_line
from opgen.project import read_spec

_COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}
# More values that differ side by side are counted, and so are more subjects, but for those that callers use.
_MOST = 4
_LISTED = ("op", "storage method", "device method", "dtype", "backend", "format", "public module")


@click.command()
@root_option
@click.argument("revision", metavar="[REF]", default="HEAD")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def diff(root: Path, revision: str, style: str) -> None:
    """Print how the spec has changed since the commit REF, and what breaks callers.

    REF defaults to HEAD, so that the changes are those that are not committed. What breaks callers is
    printed with the rule that it breaks and why; 'opgen check --against REF' fails if anything does.

    \b
    opgen diff
    opgen diff v0.1.0
    opgen diff main --format json | jq '.breaks[].rule'
    """  # noqa: D301 -- \b is the character that click reads
    with patience("comparing"):
        comparison = compare(spec_at(root, revision), read_spec(root))
        broken = breaks(comparison)
    if style == "json":
        click.echo(json.dumps(_json(comparison, broken), indent=1))
        return
    show([*_branches(comparison.changes)])
    unbroken = "" if comparison.changes else f"no change of the spec since {revision}"
    if broken:
        show([Branch("breaks callers", parts=[_broken(each, revision) for each in broken], colour="red")])
    elif comparison.changes:
        unbroken = "nothing breaks callers"
    if unbroken:
        click.secho(unbroken, fg="green")


def _branches(changes: Iterable[Change]) -> Iterator[Branch]:
    """The changes; subjects that follow from others are counted where many are added or removed."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        is_listed = change.kind == "changed" or change.subject.kind in _LISTED
        alike.setdefault((change.kind, change.subject.kind, change.subject if is_listed else None), []).append(change)
    for (kind, subject, _), own in alike.items():
        if len(own) > _MOST:
            names = ", ".join(each.subject.name for each in own[:_MOST])
            yield Branch(f"{kind} {subject}: {len(own)}: {names}, ...", colour=_COLOURS[str(kind)])
            continue
        for each in own:
            text = f"{kind} {each.subject}".replace(ORDER, "order of")
            yield Branch(text, str(each.location), [*_parts(each.differences)], _COLOURS[str(kind)])


def _parts(differences: Iterable[Difference]) -> Iterator[Branch]:
    """The values that differ; those that are many side by side are counted."""
    alike: dict[tuple[str, tuple[str, ...]], list[Difference]] = {}
    for each in differences:
        alike.setdefault((each.kind, each.path[:-1]), []).append(each)
    for (kind, path), own in alike.items():
        if len(own) > _MOST:
            names = ", ".join(each.path[-1] for each in own[:_MOST])
            yield Branch(f"{'.'.join(path)}: {len(own)} {kind}: {names}, ...", colour=_COLOURS[kind])
            continue
        for each in own:
            name = each.name.replace(ORDER, "order")
            old, new = _shown(each.old), _shown(each.new)
            if kind == "changed":
                text = f"{name}: {old} -> {new}"
            else:
                value = new if kind == "added" else old
                text = f"{name}: {kind}{f', {value}' if value else ''}"
            yield Branch(text, str(each.location), colour=_COLOURS[kind])


def _shown(value: object) -> str:
    if value is None:
        return ""
    return one_line(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))


def _broken(each: Break, revision: str) -> Branch:
    excuse = "" if each.exception is None else f"; allowed: {each.exception}"
    location = f"{each.location} of {revision}" if each.is_gone else str(each.location)
    return Branch(f"{each.rule} {each.what}: {each.message}{excuse}", location)


def _json(comparison: Comparison, broken: Sequence[Break]) -> dict[str, object]:
    return {
        "changes": [
            {
                "kind": change.kind,
                "subject": change.subject.kind.replace(ORDER, "order"),
                "name": change.subject.name,
                "location": str(change.location),
                "differences": [
                    {
                        "kind": each.kind,
                        "path": [step.replace(ORDER, "order") for step in each.path],
                        "old": each.old,
                        "new": each.new,
                        "location": str(each.location),
                    }
                    for each in change.differences
                ],
            }
            for change in comparison.changes
        ],
        "breaks": [
            {
                "rule": each.rule,
                "what": each.what,
                "message": each.message,
                "location": str(each.location),
                "location_is_of": "old" if each.is_gone else "new",
                "exception": each.exception,
            }
            for each in broken
        ],
    }
