"""One connection to the daemon: frames out, replies in, correlated by ``call_id``.

The rules:

* a frame is handed to the connection whole, without a wait in between: a caller that is cancelled can never leave half
  a frame behind;
* the direct, non-blocking send is the rule; what the socket does not take at once is sent by a task of its own. Until
  then the frames of later calls queue up, one for each caller that waits; that of a caller who leaves is taken out;
* one reader hands out replies and wakes the callers; its one cancel scope also keeps the deadlines of all calls;
* a call id stays taken until its reply has come, even if its caller has gone: else a late reply would answer the next
  call of that id;
* a connection that is lost stays lost, and everyone who waits is told why.

Runs under trio and asyncio through anyio; not for use from several threads.
"""

import math
import socket
from dataclasses import dataclass

import anyio
import anyio.abc

from compass_forged.agent.errors import AgentError, CallIdInUse, ConnectionLost, ForgeTimeout, ProtocolViolation
from compass_forged.wire.codec import DecodeError, decode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES, FrameBuffer, FramingError
from compass_forged.wire.schema import FaultFrame, ReplyFrame

_RECEIVE_BYTES = 64 << 10
_SEND_BYTES = 64 << 10
_STALL_SECONDS = 60.0
"""How long the daemon may take no byte of a started frame. It stops reading while the connection's calls are at their
limit, which lasts as long as the slowest of them."""
_GIVEN_UP_MAX = 4096
"""How many calls may be given up and unanswered before the connection counts as broken."""


class Waiter:
    """A call in flight.

    ``answer`` is there once ``done`` is set: the reply, or why there is none; None if the connection was lost before
    anything of the call went out, so that it can be sent on another.
    """

    __slots__ = ("answer", "deadline", "done", "seconds")

    def __init__(self, seconds: float, deadline: float) -> None:
        """``deadline`` is a time of the loop's clock, ``seconds`` what to say when it has passed."""
        self.seconds = seconds
        self.deadline = deadline
        self.answer: ReplyFrame | AgentError | None = None
        self.done = anyio.Event()

    def settle(self, answer: ReplyFrame | AgentError | None) -> None:
        """Wake the caller."""
        self.answer = answer
        self.done.set()


@dataclass(slots=True)
class ReplyCounts:
    """Replies that nobody waited for: to calls that were given up, and to ids that were never in flight."""

    late: int = 0
    unknown: int = 0


class Connection:
    """A connected socket and the calls in flight on it. ``run`` serves it and owns the socket."""

    def __init__(self, sock: socket.socket, counts: ReplyCounts) -> None:
        """Takes over ``sock``, connected and non-blocking; adds to ``counts`` what nobody waited for."""
        self.lost: str | None = None
        self._socket = sock
        self._counts = counts
        self._buffer = FrameBuffer(REPLY_MAX_BYTES)
        self._waiters: dict[str, Waiter] = {}
        self._given_up: set[str] = set()
        self._queue: dict[str, bytes] = {}
        self._direct = False  # whether nothing is queued or half sent; not before ``run`` has begun
        self._scope = anyio.CancelScope()
        self._tasks: anyio.abc.TaskGroup  # there once ``run`` has begun
        self._reading: anyio.CancelScope | None = None

    @property
    def in_flight(self) -> int:
        """How many callers wait for a reply."""
        return len(self._waiters)

    @property
    def given_up(self) -> int:
        """How many calls were given up by their callers and are not answered yet."""
        return len(self._given_up)

    def post(self, call_id: str, frame: bytes, seconds: float, deadline: float) -> Waiter | None:
        """Send a frame, or queue it behind those that are being sent. The connection is not lost so far.

        Returns:
            What to wait on; None if the connection is lost and nothing of the frame went out.

        Raises:
            CallIdInUse: the id's reply has not come yet.
        """
        if call_id in self._waiters or call_id in self._given_up:
            raise CallIdInUse(call_id)
        if not self._direct:
            self._queue[call_id] = frame
        elif not self._post_directly(frame):
            return None
        waiter = self._waiters[call_id] = Waiter(seconds, deadline)
        if self._reading is not None and deadline < self._reading.deadline:
            self._reading.deadline = deadline
        return waiter

    def _post_directly(self, frame: bytes) -> bool:
        """Send at once what the socket takes and have the rest sent; False if the connection is lost instead."""
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.fail(f"the daemon closed it ({error.strerror})")
            return False
        if sent < len(frame):
            self._direct = False
            self._tasks.start_soon(self._send, memoryview(frame)[sent:])
        return True

    def give_up(self, call_id: str) -> None:
        """The caller waits no longer: what was not sent never will be, else the reply is dropped when it comes."""
        if self._waiters.pop(call_id, None) is None or self._queue.pop(call_id, None) is not None:
            return
        self._given_up.add(call_id)
        if len(self._given_up) > _GIVEN_UP_MAX:
            self.fail(f"the daemon left {_GIVEN_UP_MAX} calls unanswered")

    def fail(self, why: str) -> None:
        """Count the connection as lost and tell everyone who waits; idempotent."""
        if self.lost is not None:
            return
        self.lost = why
        for call_id, waiter in self._waiters.items():
            waiter.settle(None if call_id in self._queue else ConnectionLost(why))
        self._waiters.clear()
        self._given_up.clear()
        self._queue.clear()
        self._scope.cancel()

    async def run(self) -> None:
        """Serve the connection until it is lost or the task is cancelled, then close the socket."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    if self._queue:
                        self._tasks.start_soon(self._send, memoryview(b""))
                    self._direct = not self._queue
                    await self._read()
        finally:
            self.fail("the client was closed")
            self._socket.close()

    async def _read(self) -> None:
        while True:
            # The scope's deadline is at or before the earliest of the calls': it is moved forward only when it has
            # passed, so that a call that is answered in time costs no timer.
            with anyio.CancelScope(deadline=self._earliest_deadline()) as self._reading:
                while True:
                    await anyio.wait_readable(self._socket)
                    self._receive()
                    if self.lost is not None:
                        return
            self._expire(anyio.current_time())
            if self.lost is not None:
                return

    def _earliest_deadline(self) -> float:
        return min((waiter.deadline for waiter in self._waiters.values()), default=math.inf)

    def _expire(self, now: float) -> None:
        for call_id, waiter in [item for item in self._waiters.items() if item[1].deadline <= now]:
            waiter.settle(ForgeTimeout(waiter.seconds, "not_sent" if call_id in self._queue else "unknown"))
            self.give_up(call_id)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error.strerror or str(error))
            return
        if not data:
            self.fail("the daemon closed it" + (" within a frame" if self._buffer.in_frame else ""))
            return
        self._buffer.feed(data)
        try:
            while self.lost is None and (payload := self._buffer.next_frame()) is not None:
                self._dispatch(payload)
        except FramingError as error:
            self.fail(f"the daemon's bytes are no frames: {error}")

    def _dispatch(self, payload: bytes) -> None:
        try:
            reply = decode_reply(payload)
        except DecodeError as error:
            # Where the call is known, only that call is hurt; else one call would wait for ever.
            if not error.call_id:
                self.fail(f"a reply cannot be read: {error}")
                return
            self._settle(error.call_id, ProtocolViolation(str(error)))
            return
        if not reply.call_id:
            self.fail(f"{reply.code}: {reply.message}" if isinstance(reply, FaultFrame) else "a result has no call_id")
            return
        self._settle(reply.call_id, reply)

    def _settle(self, call_id: str, answer: ReplyFrame | AgentError) -> None:
        waiter = self._waiters.pop(call_id, None)
        if waiter is not None:
            waiter.settle(answer)
        elif call_id in self._given_up:
            self._given_up.discard(call_id)
            self._counts.late += 1
        else:
            self._counts.unknown += 1

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

    async def _send(self, rest: memoryview) -> None:
        """Send ``rest`` and then the queue, until there is none; from then on frames are sent directly."""
        while True:
            with anyio.move_on_after(_STALL_SECONDS) as patience:
                await anyio.wait_writable(self._socket)
            if patience.cancelled_caught:
                self.fail(f"the daemon took no byte for {_STALL_SECONDS:g} s")
                return
            batch = {} if rest else self._batch()
            data = rest or memoryview(b"".join(batch.values()))
            try:
                rest = data[self._socket.send(data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                self.fail(f"the daemon closed it ({error.strerror})")
                return
            for call_id in batch:
                del self._queue[call_id]
            if not rest and not self._queue:
                self._direct = True
                return
