"""What unpickles devices, and so what is on them: it returns to the device that it was on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .error import BackendUnavailable, InvalidArgument

if TYPE_CHECKING:
    from .device import Device


def device(label: str) -> Device:
    """Return the device of a label; `BackendUnavailable` where it is missing."""
    from .device import Device

    try:
        return Device.parse(label)
    except (BackendUnavailable, InvalidArgument) as error:
        mend = f"unpickle where {label} is, or move what is pickled to the CPU first"
        raise BackendUnavailable(label.partition(":")[0], f"{error.reason}; {mend}") from None
