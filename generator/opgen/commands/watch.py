"""opgen watch."""

import contextlib
import gc
import time
from collections.abc import Iterable
from pathlib import Path

import click

from opgen.commands.options import lock, print_errors, root_option, tell_file
from opgen.folders import FOLDERS, OUTPUT
from opgen.problem import Refusal, SpecError
from opgen.watch import Watcher

# Editors write a file in several steps; these are milliseconds.
_STEP, _LONGEST, _PAUSE = 20, 200, 200


@click.command()
@root_option
def watch(root: Path) -> None:
    """Check the spec and generate whenever a file of it, of templates/ or of runtime/ is saved.

    It says what changed, or what is wrong, and goes on until it is interrupted. It needs watchfiles:
    pip install watchfiles.

    \b
    opgen watch
    """  # noqa: D301 -- \b is the character that click reads
    try:
        from watchfiles import watch as saved
    except ImportError:
        raise Refusal("watchfiles is not installed; run pip install watchfiles") from None
    folders = [root / name for name in FOLDERS if (root / name).is_dir()]
    notices = saved(
        *folders, step=_STEP, debounce=_LONGEST, rust_timeout=_PAUSE, yield_on_timeout=True, raise_interrupt=False
    )
    # From the first one on, what is saved while opgen writes is not lost.
    next(notices)
    watcher = Watcher(root)
    _update(watcher, root, ())
    click.echo(f"watching {', '.join(folder.name for folder in folders)}; Ctrl+C ends it")
    with contextlib.suppress(KeyboardInterrupt):  # which the watch raises or swallows, as it comes
        for changes in notices:
            if changes:
                _update(watcher, root, sorted({Path(file) for _, file in changes}))


def _update(watcher: Watcher, root: Path, changed: Iterable[Path]) -> None:
    start = time.monotonic()
    names = ", ".join(file.relative_to(root).as_posix() for file in changed) or "all"
    try:
        with lock(root / OUTPUT):
            _, changes = watcher.update(root / OUTPUT, changed)
    except SpecError as error:
        print_errors(error, root)
        return
    except Refusal as error:
        click.secho(str(error), fg="red", err=True)
        return
    for change in changes:
        tell_file(f"{OUTPUT}/{change.path}", is_removed=change.new is None)
    click.echo(f"{names}: {len(changes)} files changed in {1000 * (time.monotonic() - start):.0f} ms")
    # Nobody waits now. A command that ends soon collects nothing.
    gc.collect()
