"""Looks up the facts of a device's architecture among the targets of the spec."""

from collections.abc import Sequence

from .....kernels.targets import Target


def find_target(targets: Sequence[Target], name: str) -> Target | None:
    """Return the target that has or serves a name, or that drivers report by it; None if the spec lacks it."""
    return next((each for each in targets if name in (each.name, each.reported) or name in each.serves), None)


def target_of(targets: Sequence[Target], name: str, wave_size: int) -> Target:
    """Return the target whose facts hold for a name: if the spec has none, the first and plainest of its wave size."""
    return find_target(targets, name) or next(each for each in targets if each.wave_size == wave_size)
