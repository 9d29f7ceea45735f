"""Storages of a device."""


def zeros(device, shape, dtype):
    """A storage of zeros."""


def synchronize(device):
    """Wait until the device is done."""
