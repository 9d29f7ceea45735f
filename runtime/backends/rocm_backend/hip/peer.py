"""Direct access from one device to the memory of another."""

import functools

from .device import HipDevice
from .error import check, hip

_ENABLED_BEFORE = "hipErrorPeerAccessAlreadyEnabled"


@functools.cache
def let_reach(device: HipDevice, peer: HipDevice) -> bool:
    """Whether a device reaches the memory of another directly, which it is allowed from now on."""
    label = f"from {device.label} to {peer.label}"
    if not check("hipDeviceCanAccessPeer", hip.hipDeviceCanAccessPeer(device.ordinal, peer.ordinal), label):
        return False
    with device.activated():
        enabled = hip.hipDeviceEnablePeerAccess(peer.ordinal, 0)
    if enabled[0].name == _ENABLED_BEFORE:
        hip.hipGetLastError()
    else:
        check("hipDeviceEnablePeerAccess", enabled, label)
    return True
