"""opgen new."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from opgen.additions import Additions
from opgen.arrays import is_module
from opgen.commands.init import init
from opgen.commands.options import Group, check_names, complete, lock, root_option
from opgen.entries import COMPOSED, KINDS, add_composed, add_dtype, add_method, add_op, functor_kind, has_method
from opgen.folders import OUTPUT
from opgen.model.kinds import CHOSEN_KINDS
from opgen.notes import module_name
from opgen.project import read_spec


@click.group(name="new", cls=Group)
def new() -> None:
    """Write something new to the spec, with every choice marked. Generation works at once.

    What is written is checked first: where the spec would have an error, nothing is. Comments and lines of the
    files stay as they are.

    \b
    opgen new op softsign --kind map --formula "x / (1 + abs(x))"
    opgen new dtype i8
    opgen new method trace --file linear
    opgen new backend torch --family array --module torch
    opgen new project mylib
    """  # noqa: D301 -- \b is the character that click reads


new.add_command(init, "project")


@new.command(name="op")
@root_option
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="Of what it computes each result.")
@click.option(
    "--formula", help="What it computes, of primitives; of a reduction or a scan, how two contributions join."
)
@click.option("--gradient", help="That of x, if it does not follow from the formula.")
def new_op(root: Path, name: str, kind: str, formula: str | None, gradient: str | None) -> None:
    """Add an op that one formula computes to spec/functors: its kernels and methods follow from that.

    A map computes each result of one element, x, or of two, x and y. A reduction joins elements, a scan those up to
    each, and an op of rows computes each result of an element and of reductions over its row. A composed op is a
    storage method of Tensor's methods, in spec/storage/composed.yaml.

    \b
    opgen new op softsign --kind map --formula "x / (1 + abs(x))"
    opgen new op total --kind reduction --formula "x + y"
    opgen new op running_total --kind scan --formula "x + y"
    opgen new op shares --kind row --formula "x / sum(x)"
    opgen new op scaled --kind composed --formula "self.sum(-1, keepdim=True) * self"
    """  # noqa: D301 -- \b is the character that click reads
    _require_name(name)
    if kind == COMPOSED:
        with _additions(root) as additions:
            _write(additions, add_composed(additions, name, formula))
        return
    with _additions(root) as additions:
        file = functor_kind(kind, formula)
        _write(additions, add_op(additions, name, file, formula, gradient))
    if file in CHOSEN_KINDS and not has_method(additions, file):
        click.echo(
            f"no storage method chooses between ops of {file}: write one with 'ops: {file}' to spec/storage", err=True
        )


@new.command(name="dtype")
@root_option
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["unsigned", "signed", "float", "complex"]),
    help="If the name does not say it, as i8 does.",
)
@click.option("--bytes", "size", type=click.IntRange(1, 16), help="Of an element, if the name does not say it.")
def new_dtype(root: Path, name: str, kind: str | None, size: int | None) -> None:
    """Add an element type to spec/dtypes.yaml, and to the backends that list a library's dtypes.

    \b
    opgen new dtype i8
    opgen new dtype complex64
    opgen new dtype float8_e3m4 --kind float --bytes 1
    """  # noqa: D301 -- \b is the character that click reads
    _require_name(name)
    with _additions(root) as additions:
        _write(additions, add_dtype(additions, name, kind, size))


@new.command(name="method")
@root_option
@click.argument("name")
@click.option(
    "--file",
    "family",
    metavar="NAME",
    help="The file of spec/storage that it joins; its own name by default.",
    shell_complete=complete(lambda project: (family.name for family in project.spec.families)),
)
def new_method(root: Path, name: str, family: str | None) -> None:
    """Add a storage method to spec/storage, and to every backend a cell that says that it lacks it.

    A cell names the function that does it, in runtime/backends/PACKAGE/ops.

    \b
    opgen new method trace
    opgen new method trace --file linear
    """  # noqa: D301 -- \b is the character that click reads
    _require_name(name)
    _require_name(family or name)
    with _additions(root) as additions:
        _write(additions, add_method(additions, name, family or name))


@new.command(name="backend")
@root_option
@click.argument("name")
@click.option(
    "--family",
    required=True,
    help="The family of spec/families that the backend extends.",
    shell_complete=complete(
        lambda project: (family.name for family in project.spec.backend_families if family.vocabulary)
    ),
)
@click.option("--module", required=True, help="The library, as Python imports it.")
def new_backend(root: Path, name: str, family: str, module: str) -> None:
    """Write spec/backends/NAME.yaml, a backend on an array library, with each choice marked.

    Where the library is installed, the words that it lacks are marked too.

    \b
    opgen new backend torch --family array --module torch
    opgen generate
    """  # noqa: D301 -- \b is the character that click reads
    # No other command imports what a person names.
    from opgen.new import import_library
    from opgen.new import new_backend as text_of

    spec = read_spec(root)
    families = {each.name: each for each in spec.backend_families}
    check_names("family", [family], families)
    if not families[family].vocabulary:
        others = ", ".join(f"'{each.name}'" for each in families.values() if each.vocabulary)
        message = f"family '{family}' is not one of array libraries"
        raise click.BadParameter(f"{message}; give one of {others}" if others else message, param_hint="--family")
    _require_name(name)
    if not is_module(module):
        raise click.BadParameter(f"'{module}' is no module; write what Python imports", param_hint="--module")
    path = Path("spec", "backends", f"{name}.yaml")
    library, reason = import_library(module)
    with _additions(root) as additions:
        additions.create(path, text_of(spec, families[family], name, module, library))
        _write(additions, [path])
    if library is None:
        advice = f"install it, remove {path.as_posix()} and run this again, or mark what it lacks by hand"
        click.secho(f"{reason} here, so that opgen could not look up what it lacks; {advice}", fg="yellow", err=True)


@contextlib.contextmanager
def _additions(root: Path) -> Iterator[Additions]:
    """Additions to a spec, read and written under the lock, so that no additions of other runs are lost."""
    with lock(root / OUTPUT):
        yield Additions(root)


def _require_name(name: str) -> None:
    for flaw in module_name(None, name):
        raise click.BadParameter(flaw)


def _write(additions: Additions, paths: Iterable[Path]) -> None:
    """Write what was added, and name the files."""
    additions.write()
    for path in paths:
        click.echo(f"{click.style('wrote', fg='green')} {path.as_posix()}")
    click.echo("look at the choices, then run 'opgen generate'")
