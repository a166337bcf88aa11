"""Frames on their way out of one connection, in the order in which they were handed over.

* A frame is handed over whole, without a wait in between: a caller that is cancelled can never leave half a frame.
* The direct, non-blocking send is the rule. What the socket does not take at once is sent by a task of its own; until
  then the frames of later calls queue up, one for each caller that waits. That of a caller who leaves is taken out.
* While frames are joined, they queue up too, and leave together: many callers that start in one pass of the loop cost
  few system calls, and wake the daemon as rarely.
"""

import socket
from collections.abc import Callable

import anyio
import anyio.abc

_SEND_BYTES = 64 << 10
_JOIN_BYTES = 16 << 10
"""So much is sent without waiting for more to join: the daemon works on it meanwhile."""
_STALL_SECONDS = 60.0
"""How long the daemon may take no byte of a started frame. It stops reading while the connection's calls are at their
limit, which lasts as long as the slowest of them."""


class Outbox:
    """The sending half of a connection."""

    def __init__(self, sock: socket.socket, lose: Callable[[str], None]) -> None:
        """Sends on ``sock``, non-blocking; ``lose`` is called with the reason once the connection is lost."""
        self._socket = sock
        self._lose = lose
        self._queue: dict[str, bytes] = {}
        self._direct = False  # whether nothing is half sent, nor queued unless to be joined; not before ``open``
        self._joining = False
        self._joined_bytes = 0
        self._tasks: anyio.abc.TaskGroup  # there once ``open`` was called

    def __len__(self) -> int:
        """How many frames have queued up."""
        return len(self._queue)

    def __contains__(self, call_id: str) -> bool:
        """Whether nothing of that call's frame has gone out."""
        return call_id in self._queue

    def open(self, tasks: anyio.abc.TaskGroup) -> None:
        """Begin to send, what has queued up first; ``tasks`` is where a task for what has to wait is started."""
        self._tasks = tasks
        self._direct = not self._queue
        if self._queue:
            tasks.start_soon(self._send, memoryview(b""))

    def post(self, call_id: str, frame: bytes) -> None:
        """Send a frame, or queue it behind those that are being sent, or with those that it joins."""
        if not self._direct:
            self._queue[call_id] = frame
        elif self._joining:
            self._queue[call_id] = frame
            self._joined_bytes += len(frame)
            if self._joined_bytes >= _JOIN_BYTES:
                self._send_joined()
        else:
            sent = self._send_some(frame)
            if sent is not None and sent < len(frame):
                self._send_later(memoryview(frame)[sent:])

    def take_out(self, call_id: str) -> bool:
        """Whether nothing of a call's frame has gone out; nothing of it ever will."""
        return self._queue.pop(call_id, None) is not None

    def clear(self) -> None:
        """Drop what has not gone out."""
        self._queue.clear()

    def join(self) -> None:
        """From now on frames queue up, a few at most, until ``part``."""
        self._joining = True
        self._joined_bytes = 0

    def part(self) -> None:
        """Send what has joined; from now on frames leave as they come."""
        self._joining = False
        if self._direct:
            self._send_joined()

    def _send_joined(self) -> None:
        self._joined_bytes = 0
        if not self._queue:
            return
        data = b"".join(self._queue.values())
        sent = self._send_some(data)
        if sent is None:
            return
        if sent:
            self._queue.clear()
        if sent < len(data):
            self._send_later(memoryview(data)[sent:] if sent else memoryview(b""))

    def _send_some(self, data: bytes | memoryview) -> int | None:
        """How many bytes the socket took; None if the connection is lost instead."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lose(f"the daemon closed it ({error.strerror})")
            return None

    def _send_later(self, rest: memoryview) -> None:
        self._direct = False
        self._tasks.start_soon(self._send, rest)

    async def _send(self, rest: memoryview) -> None:
        """Send ``rest`` and then the queue, until there is none; from then on frames are sent directly."""
        while True:
            with anyio.move_on_after(_STALL_SECONDS) as patience:
                try:
                    await anyio.wait_writable(self._socket)
                except anyio.ClosedResourceError:
                    continue  # whoever reads was woken, and this with it
            if patience.cancelled_caught:
                self._lose(f"the daemon took no byte for {_STALL_SECONDS:g} s")
                return
            batch = {} if rest else self._batch()
            data = rest or memoryview(b"".join(batch.values()))
            sent = self._send_some(data)
            if sent is None:
                return
            if not sent:
                continue
            rest = data[sent:]
            for call_id in batch:
                del self._queue[call_id]
            if not rest and not self._queue:
                self._direct = True
                return

    def _batch(self) -> dict[str, bytes]:
        """The next frames of the queue, up to about what one send takes."""
        batch: dict[str, bytes] = {}
        size = 0
        for call_id, frame in self._queue.items():
            batch[call_id] = frame
            size += len(frame)
            if size >= _SEND_BYTES:
                break
        return batch
