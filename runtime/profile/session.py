"""Observes the calls on all devices while a profile is active."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import Final, Protocol

from ..backends.backend import BackendDevice, visiting_devices
from ..backends.profiler import CallRecord, DeviceProfiler
from ..core.extensions import extensions
from ..gradient.call_sites import user_frame
from .ranges import Ranges


class Sink(Protocol):
    """Something that takes the calls of all devices, from when it is started until it is stopped."""

    waits: bool
    """Whether the times of launches must be known when a call has ended."""

    def add(self, call: CallRecord, allocated: int | None) -> None:
        """Take a call that has ended, and the bytes in use of its device's memory."""


class Session:
    """The active profiles, and the observers of all devices: `backends.profiler.Listener`."""

    def __init__(self) -> None:
        self._profiles: tuple[Sink, ...] = ()
        self.waits = False
        """Whether a profile needs the times of launches when a call ends."""
        self._observers: dict[int, DeviceProfiler] = {}
        self._observations = ExitStack()
        self._lock = threading.RLock()
        self._ranges = Ranges()

    def start(self, profile: Sink) -> None:
        """Give a profile all calls from now on."""
        with self._lock:
            self._choose((*self._profiles, profile))
            if len(self._profiles) == 1:
                self._observations.enter_context(visiting_devices(self._observe))

    def stop(self, profile: Sink) -> None:
        """Wait for the devices, so that times are known, and give a profile no more calls."""
        for observer in list(self._observers.values()):
            observer.settle(blocking=True)
        with self._lock:
            self._choose(tuple([other for other in self._profiles if other is not profile]))
            if not self._profiles:
                self._observations.close()
                self._observers.clear()

    def _choose(self, profiles: tuple[Sink, ...]) -> None:
        self._profiles = profiles
        self.waits = any(profile.waits for profile in profiles)

    def _observe(self, device: BackendDevice) -> None:
        with self._lock:
            # Some objects that stand for one device share their plans.
            if self._profiles and id(device.plans) not in self._observers:
                observer = device.profiler(extensions.device_class(device).label, self)
                self._observers[id(device.plans)] = observer
                self._observations.callback(observer.close)
                self._observations.enter_context(device.plans.observed_by(observer, is_innermost=True))

    def begin(self, call: CallRecord) -> None:
        """Note the line of the user's code, and begin a range of the vendors' profilers."""
        frame, _ = user_frame(sys._getframe(2))
        call.line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._ranges.push(call.title)

    def end(self, call: CallRecord, allocated: int | None) -> None:
        """Give the call to all profiles."""
        self._ranges.pop()
        for profile in self._profiles:
            profile.add(call, allocated)


session: Final = Session()
