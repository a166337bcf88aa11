"""One connection to the daemon: frames out, replies in, correlated by ``call_id``.

The rules:

* frames leave through the outbox, whole or not at all, as its own rules say;
* a caller that is alone reads its reply itself. Where several wait, the keeper reads: a task that hands out replies and
  wakes the callers. It also keeps the deadlines of all calls, and watches the connection while there are none;
* a call id stays taken until its reply has come, even if its caller has gone: else a late reply would answer the next
  call of that id;
* a connection that is lost stays lost, and everyone who waits is told why.

Callers read for themselves because waking one task from another costs a pass of the loop, which would be a good part of
what the client adds to a call that is answered at once. Runs under trio and asyncio through anyio; not for use from
several threads.
"""

import math
import socket
import time
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from compass_forged.agent.errors import AgentError, CallIdInUse, ConnectionLost, ForgeTimeout, ProtocolViolation
from compass_forged.agent.outbox import Outbox
from compass_forged.wire.codec import DecodeError, decode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES, FrameBuffer, FramingError
from compass_forged.wire.schema import FaultFrame, ReplyFrame

_RECEIVE_BYTES = 64 << 10
_GIVEN_UP_MAX = 4096
"""How many calls may be given up and unanswered before the connection counts as broken."""
_LINGER_SECONDS = 0.5
"""How often the keeper looks whether callers that come one after the other still do. If none does, it reads itself: so
much later may the end of a connection be seen that has just been used. No call is hurt by it: its send fails, and it
goes out on a new connection."""
_JOIN_PASSES = 2
"""After the first, some of the callers that were woken may still have their turn; after the second, none has."""


class Waiter:
    """A call in flight.

    ``answer`` is there once it is no longer ``pending``: the reply, or why there is none; None if the connection was
    lost before anything of the call went out, so that it can be sent on another. ``done`` wakes its caller; there is
    none if that reads for itself.
    """

    __slots__ = ("answer", "deadline", "done", "pending", "seconds")

    def __init__(self, seconds: float, deadline: float, done: anyio.Event | None) -> None:
        """``deadline`` is a time of ``time.monotonic``, ``seconds`` what to say when it has passed."""
        self.seconds = seconds
        self.deadline = deadline
        self.done = done
        self.answer: ReplyFrame | AgentError | None = None
        self.pending = True

    def settle(self, answer: ReplyFrame | AgentError | None) -> None:
        """Wake the caller."""
        self.answer = answer
        self.pending = False
        if self.done is not None:
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
        self._outbox = Outbox(sock, self.fail)
        self._waiters: dict[str, Waiter] = {}
        self._given_up: set[str] = set()
        self._scope = anyio.CancelScope()
        # The class of the running loop: anyio would look for the loop at each event.
        self._new_event: type[anyio.Event] = type(anyio.Event())
        # Who reads: the caller of ``_alone``; nobody if ``_free``, and the next caller may; else the keeper.
        self._alone: Waiter | None = None
        self._free = False
        self._turns = 0  # how many callers have read for themselves so far
        self._looks = False  # whether the keeper looks again soon, while it stands by
        self._wanted = self._new_event()  # set once the keeper is to read again
        self._alarm = anyio.CancelScope()  # the keeper's, which ends its wait; at the latest when a call is overdue
        self._alarm_at = -math.inf

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
            What to hand to ``answer`` before anything else is waited for; None if the connection is lost and nothing of
            the frame went out.

        Raises:
            CallIdInUse: the id's reply has not come yet.
        """
        if call_id in self._waiters or call_id in self._given_up:
            raise CallIdInUse(call_id)
        self._outbox.post(call_id, frame)
        if self.lost is not None:
            return None
        if self._free:
            self._free = False
            self._turns += 1
            waiter = self._alone = Waiter(seconds, deadline, None)
        else:
            waiter = Waiter(seconds, deadline, self._new_event())
        self._waiters[call_id] = waiter
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return waiter

    async def answer(self, call_id: str, waiter: Waiter) -> ReplyFrame | AgentError | None:
        """Wait for a call that was posted; a caller that is cancelled gives it up.

        Returns:
            The waiter's ``answer``.
        """
        try:
            if waiter.done is None:
                await self._read_alone(waiter)
            else:
                await waiter.done.wait()
        except BaseException:
            self._give_up(call_id)
            raise
        return waiter.answer

    def fail(self, why: str) -> None:
        """Count the connection as lost and tell everyone who waits; idempotent."""
        if self.lost is not None:
            return
        self.lost = why
        for call_id, waiter in self._waiters.items():
            waiter.settle(None if call_id in self._outbox else ConnectionLost(why))
        self._waiters.clear()
        self._given_up.clear()
        self._outbox.clear()
        self._wake_alone()
        self._scope.cancel()

    async def run(self) -> None:
        """Serve the connection until it is lost or the task is cancelled, then close the socket."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    self._outbox.open(tasks)
                    await self._keep()
        finally:
            self.fail("the client was closed")
            self._socket.close()

    # --- who reads --------------------------------------------------------------------------------------------------

    async def _read_alone(self, waiter: Waiter) -> None:
        """Read until ``waiter`` has its answer."""
        try:
            while waiter.pending:
                try:
                    await self._read_once()
                except anyio.ClosedResourceError:
                    continue  # it was woken
        except Exception as error:
            self.fail(f"the client has failed: {error!r}")  # a reply may have been lost, for which another waits
            raise
        finally:
            self._alone = None
            if self._waiters or self._given_up:
                self._wanted.set()
            else:
                self._free = True
                if not self._looks:
                    self._look_soon()

    def _wake_alone(self) -> None:
        if self._alone is not None:
            # Nothing is closed: this is how a task is woken that waits for a socket, without a cost to each wait.
            anyio.notify_closing(self._socket)

    async def _keep(self) -> None:
        """The keeper: reads, or leaves that to the callers, and keeps the deadlines of all calls."""
        while self.lost is None:
            await self._read_until_idle()
            self._free = True
            self._wanted = self._new_event()
            await self._stand_by()

    async def _read_until_idle(self) -> None:
        """Read until something has come and nobody waits for more, or the connection is lost."""
        while self.lost is None:
            # The alarm is at or before the earliest deadline: it is moved forward only when it has gone off, so that a
            # call that is answered in time costs no timer.
            with anyio.CancelScope() as self._alarm:
                self._set_alarm(self._earliest_deadline())
                await self._read()
                return
            self._expire(time.monotonic())

    async def _stand_by(self) -> None:
        """Keep deadlines while callers read, until the keeper is wanted, or nobody has come for a while."""
        turns = self._turns
        while self.lost is None:
            with anyio.CancelScope() as self._alarm:
                self._set_alarm(self._earliest_deadline())
                # While a caller reads there is nothing to look for: it says when it has done.
                self._looks = False
                if self._alone is None:
                    self._look_soon()
                await self._wanted.wait()
                return
            self._expire(time.monotonic())
            if self._free and self._turns == turns:
                self._free = False
                return
            turns = self._turns

    def _look_soon(self) -> None:
        self._looks = True
        self._set_alarm(min(self._alarm_at, time.monotonic() + _LINGER_SECONDS))

    async def _read(self) -> None:
        while True:
            await self._read_once()
            if self.lost is not None or not (self._waiters or self._given_up):
                return

    async def _read_once(self) -> None:
        """Wait for replies and hand them out; where several callers are woken, what they send next leaves together."""
        await anyio.wait_readable(self._socket)
        woken = self._receive()
        if woken <= 1:
            return
        self._outbox.join()
        try:
            for _ in range(_JOIN_PASSES):
                await anyio.lowlevel.checkpoint()
                if len(self._outbox) >= woken - 1:  # one may be this task itself
                    return
        finally:
            self._outbox.part()

    # --- deadlines --------------------------------------------------------------------------------------------------

    def _set_alarm(self, until: float) -> None:
        self._alarm_at = until
        self._alarm.deadline = anyio.current_time() + until - time.monotonic()

    def _earliest_deadline(self) -> float:
        return min((waiter.deadline for waiter in self._waiters.values()), default=math.inf)

    def _expire(self, now: float) -> None:
        for call_id, waiter in [item for item in self._waiters.items() if item[1].deadline <= now]:
            waiter.settle(ForgeTimeout(waiter.seconds, "not_sent" if call_id in self._outbox else "unknown"))
            self._give_up(call_id)
            if waiter is self._alone:
                self._wake_alone()

    def _give_up(self, call_id: str) -> None:
        """The caller waits no longer: what was not sent never will be, else the reply is dropped when it comes."""
        if self._waiters.pop(call_id, None) is None or self._outbox.take_out(call_id):
            return
        self._given_up.add(call_id)
        if len(self._given_up) > _GIVEN_UP_MAX:
            self.fail(f"the daemon left {_GIVEN_UP_MAX} calls unanswered")

    # --- replies ----------------------------------------------------------------------------------------------------

    def _receive(self) -> int:
        """Receive once and hand out the replies that are whole; how many callers were answered."""
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.fail(error.strerror or str(error))
            return 0
        if not data:
            self.fail("the daemon closed it" + (" within a frame" if self._buffer.in_frame else ""))
            return 0
        self._buffer.feed(data)
        before = len(self._waiters)
        try:
            while self.lost is None and (payload := self._buffer.next_frame()) is not None:
                self._dispatch(payload)
        except FramingError as error:
            self.fail(f"the daemon's bytes are no frames: {error}")
        return before - len(self._waiters)

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
