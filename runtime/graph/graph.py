"""Graphs: calls on a device that are captured once and replayed as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..base.unpicklable import Unpicklable
from ..helpers.closing import Closing

if TYPE_CHECKING:
    from ...device import Device
    from ..backends.backend import BackendGraph


class Graph(Closing, Unpicklable):
    """What calls on a device enqueue, captured once and replayed as often as one likes, at the cost of one call.

    A replay does what the calls would do again, on the same memory: change the tensors that they read in place, with
    `copy_` for example, and read those that they made. Random draws go on in the device's stream, and an index out of
    range is raised by the next call that waits, as if the calls had been made in the place of the replay.

    Tensors that are made in the capture have memory that no other tensor gets while the graph or they themselves live.
    The graph also holds the memory of tensors that were made before and are read or written in the capture, so they may
    be dropped. Memory that a user's kernel is given by its address alone must live as long as the graph is replayed.

    Raises UnsupportedDevice on a device that has no graphs, as the CPU, BackendUnavailable where there is no such
    device.

    >>> backends = {cell.backend for cell in tl.support() if cell.method == "graph" and cell.status == "supported"}
    >>> for device in tl.devices():
    ...     if device.backend in backends:
    ...         x, graph = tl.ones(4, device=device), tl.Graph(device)
    ...         with graph.capture():
    ...             y = x * 2
    ...         _ = x.fill_(3.0)
    ...         graph.replay()  # y is 6
    """

    __slots__ = ("inner",)

    inner: BackendGraph
    """The backend's own graph."""

    _copy_advice = "capture the calls again"

    def __init__(self, device: Device | str) -> None:
        # A device imports this module.
        from ..tensor.base import device_of

        self.inner = device_of(device).graph()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Capture what this thread enqueues on the device inside a `with` block; nothing of it is done yet.

        What other threads do on the device meanwhile is done as ever; one that captures too waits for its turn. After
        an exception in the block the graph has captured nothing, and may capture again.

        Raises CaptureError inside of another capture on the device, InvalidArgument where the graph has captured
        something already or another thread captures it now, Closed after `close()`. Where the graph is closed during
        the block, the end of the block raises Closed: nothing was captured. In the block, what cannot be captured
        raises CaptureError and does nothing: reading elements, `synchronize`, making tensors of Python's or NumPy's
        numbers, loading files, sharing tensors with other libraries, copies between devices, `set_seed`, replays.
        """
        with self.inner.capture():
            yield

    def replay(self) -> None:
        """Enqueue what was captured once more; this waits for nothing.

        Raises InvalidArgument before a capture, CaptureError inside of one, Closed after `close()`.
        """
        self.inner.replay()

    def close(self) -> None:
        """Give back the graph and its memory, that of tensors when they end; replays under way are done before.

        Memory that a capture under way uses is given back at its end. Nothing happens when the graph is closed already.
        So do leaving a `with` block and garbage collection.
        """
        self.inner.close()

    @property
    def closed(self) -> bool:
        """Whether the graph was given back."""
        return self.inner.closed

    def __repr__(self) -> str:
        return repr(self.inner)
