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
    """The work that calls on a device enqueue, captured once and replayed any number of times at the cost of one call.

    A replay repeats the work of the calls on the same memory: change the tensors that they read in place, with
    `copy_` for example, and read their results. Random draws go on in the device's stream, and an index out of
    range is raised by the next call that waits, just as it is without a graph.

    Tensors created during the capture own memory that no other tensor gets while the graph or they themselves live.
    The graph also keeps older tensors alive that are read or written in the capture, so they may
    be dropped. Memory whose bare address a user's kernel takes must live as long as the graph is replayed.

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

        Other threads go on using the device meanwhile; one that captures too waits until this capture ends. After
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
        """Release the graph and its memory, that of tensors once they are dropped; running replays are completed first.

        Memory that a running capture uses is released at its end. Closing a closed graph does nothing.
        So do leaving a `with` block and garbage collection.
        """
        self.inner.close()

    @property
    def closed(self) -> bool:
        """Return True if the graph is closed."""
        return self.inner.closed

    def __repr__(self) -> str:
        return repr(self.inner)
